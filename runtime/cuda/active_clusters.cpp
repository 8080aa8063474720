#include "runtime/cuda/active_clusters.h"

#include <memory>

namespace sparsekiln::cuda {
namespace {

constexpr int kFirstCapability = 90;
/// PTX, which any driver takes that has clusters.
constexpr const char* kIdle = R"(.version 7.8
.target sm_90
.address_size 64
.visible .entry idle()
{
  ret;
}
)";

}  // namespace

std::int32_t active_clusters(const Context& context, std::int32_t ctas) {
  const DriverApi& api = context.api();
  if (context.device().compute_capability < kFirstCapability || api.max_active_clusters == nullptr) return 0;
  const ContextScope scope(context);
  CUmodule loaded = nullptr;
  if (api.module_load_data(&loaded, kIdle, 0, nullptr, nullptr) != CUDA_SUCCESS) return 0;
  const auto unload = [&](CUmodule module) { static_cast<void>(api.module_unload(module)); };
  const std::unique_ptr<CUmod_st, decltype(unload)> module(loaded, unload);
  CUfunction idle = nullptr;
  const auto shared = static_cast<int>(context.device().shared_bytes_per_cta);
  if (api.module_get_function(&idle, module.get(), "idle") != CUDA_SUCCESS ||
      api.func_set_attribute(idle, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared) != CUDA_SUCCESS)
    return 0;
  CUlaunchAttribute cluster{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {static_cast<unsigned>(ctas), 1, 1};
  CUlaunchConfig launch{};
  launch.gridDimX = static_cast<unsigned>(ctas);
  launch.gridDimY = launch.gridDimZ = 1;
  launch.blockDimX = 32;
  launch.blockDimY = launch.blockDimZ = 1;
  launch.sharedMemBytes = static_cast<unsigned>(shared);
  launch.attrs = &cluster;
  launch.numAttrs = 1;
  int clusters = 0;
  return api.max_active_clusters(&clusters, idle, &launch) == CUDA_SUCCESS ? clusters : 0;
}

}  // namespace sparsekiln::cuda

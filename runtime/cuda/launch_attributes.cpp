#include "runtime/cuda/launch_attributes.h"

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln::cuda {
namespace {

constexpr int kFirstCapability = 90;
/// The first CUDA whose graphs keep what one kernel may overlap of another (CUDA 12.3, CUgraphEdgeData).
constexpr int kFirstWithOverlapInGraphs = 12030;

bool launches_with_attributes(const Context& context) {
  return context.device().compute_capability >= kFirstCapability && context.api().launch_kernel_ex != nullptr;
}

void check_support(const Context& context, const Entry& entry) {
  const DeviceInfo& device = context.device();
  if (device.compute_capability < kFirstCapability)
    throw Error(ErrorKind::driver,
                fmt::format("the kernel {} is launched in clusters, which takes sm_90 or later, and {} is "
                            "sm_{}; compile for this device",
                            entry.passes.front(), device.name, device.compute_capability));
  if (context.api().launch_kernel_ex == nullptr)
    throw Error(ErrorKind::driver,
                fmt::format("the kernel {} is launched in clusters, by cuLaunchKernelEx, which this driver "
                            "does not have; one for CUDA 11.6 or later would work",
                            entry.passes.front()));
}

}  // namespace

std::vector<CUlaunchAttribute> launch_attributes(const Context& context, const Entry& entry,
                                                 std::size_t pass) {
  const LaunchAttributes& asked = entry.attributes;
  std::vector<CUlaunchAttribute> attributes;
  if (asked.clustered()) {
    check_support(context, entry);
    if (entry.workers % asked.cluster[0] != 0)
      throw Error(ErrorKind::internal, fmt::format("the {} workers of the kernel {} are not clusters of {}",
                                                   entry.workers, entry.passes.front(), asked.cluster[0]));
    CUlaunchAttribute cluster{};
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim.x = static_cast<unsigned>(asked.cluster[0]);
    cluster.value.clusterDim.y = static_cast<unsigned>(asked.cluster[1]);
    cluster.value.clusterDim.z = 1;
    attributes.push_back(cluster);
  }
  if ((asked.overlaps_previous || (pass > 0 && asked.passes_overlap)) && launches_with_attributes(context)) {
    CUlaunchAttribute overlap{};
    overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    overlap.value.programmaticStreamSerializationAllowed = 1;
    attributes.push_back(overlap);
  }
  return attributes;
}

bool captures_overlap(const Context& context) {
  return context.driver().version() >= kFirstWithOverlapInGraphs;
}

}  // namespace sparsekiln::cuda

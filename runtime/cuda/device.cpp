#include "runtime/cuda/device.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "runtime/cuda/module.h"
#include "runtime/cuda/stream.h"

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

/// How many clusters of `ctas` CTAs are on the device at once where each CTA takes a multiprocessor for
/// itself; which may be fewer than it has multiprocessors for, since those of a cluster are in one GPC. As
/// the driver says, which is given a small kernel for that; 0 where the device has no clusters or the driver
/// does not say.
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

CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

/// Events on a stream of the context made for this, with all launches of a sample between two of them.
class EventStopwatch final : public Stopwatch {
 public:
  explicit EventStopwatch(const std::shared_ptr<const Context>& context)
      : stream_(context), timer_(context) {}
  double milliseconds(const Launch& launch, int launches) const override {
    timer_.start(stream_.handle());
    for (int i = 0; i < launches; ++i) launch(stream_.handle());
    timer_.stop(stream_.handle());
    return timer_.milliseconds();
  }

 private:
  Stream stream_;
  Timer timer_;
};

class ContextDevice final : public Device {
 public:
  explicit ContextDevice(std::shared_ptr<const Context> context) : context_(std::move(context)) {}

  Target target() const override {
    const DeviceInfo& device = context_->device();
    return {Target::Kind::cuda, fmt::format("sm_{}", device.compute_capability), device.multiprocessors};
  }

  std::string description() const override {
    const int version = driver().version();
    return fmt::format("{}, CUDA driver {}.{}", context_->device().name, version / 1000, version % 1000 / 10);
  }
  About about() const override {
    const int version = driver().version();
    return {context_->device().name, fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10),
            context_->device().l2_bytes};
  }
  /// A kernel of 10 µs is launched 200 times a sample: what the first launch takes to arrive is lost in them.
  Timing timing() const override {
    return {.policy = "interleaved rounds, cold L2, 1",
            .clock = "cuda events",
            .sample_ms = 2,
            .fewest_launches = 10,
            .cold = true,
            .measures = !context_->emulated()};
  }
  std::unique_ptr<Stopwatch> stopwatch() const override { return std::make_unique<EventStopwatch>(context_); }
  std::int32_t active_clusters(std::int32_t ctas) const override {
    return cuda::active_clusters(*context_, ctas);
  }

  std::unique_ptr<Module> load(std::shared_ptr<const Binary> binary) const override {
    return load_module(context_, std::move(binary));
  }

  void* allocate(std::size_t bytes) const override {
    const ContextScope scope(*context_);
    CUdeviceptr memory = 0;
    const CUresult result = api().mem_alloc(&memory, std::max<std::size_t>(bytes, 1));
    if (result != CUDA_SUCCESS) {
      driver().fail(result, fmt::format("allocating {} bytes on {}", bytes, context_->device().name));
    }
    return reinterpret_cast<void*>(memory);
  }

  void release(void* memory) const noexcept override {
    const ContextScope scope(*context_, std::nothrow);
    if (memory != nullptr && scope.entered()) static_cast<void>(api().mem_free(address(memory)));
  }

  void copy_in(void* to, const void* from, std::size_t bytes) const override {
    if (bytes == 0) return;
    const ContextScope scope(*context_);
    driver().check(api().memcpy_htod(address(to), from, bytes), "copying to the device");
    // From pageable memory the driver may return when the source is read but the destination not yet written,
    // which kernels on streams that do not wait for the legacy stream could see.
    driver().check(api().stream_synchronize(CU_STREAM_LEGACY), "copying to the device");
  }

  void copy_out(void* to, const void* from, std::size_t bytes) const override {
    if (bytes == 0) return;
    const ContextScope scope(*context_);
    driver().check(api().memcpy_dtoh(to, address(from), bytes), "copying from the device");
  }

  void synchronize() const override {
    const ContextScope scope(*context_);
    driver().check(api().ctx_synchronize(), "waiting for the device");
  }

  [[nodiscard]] const std::shared_ptr<const Context>& context() const noexcept { return context_; }

 private:
  const Driver& driver() const noexcept { return context_->driver(); }
  const DriverApi& api() const noexcept { return context_->api(); }

  std::shared_ptr<const Context> context_;
};

}  // namespace

std::shared_ptr<const Device> open_device(int ordinal) { return open_device(Context::open(ordinal)); }

std::shared_ptr<const Device> open_device(std::shared_ptr<const Context> context) {
  return std::make_shared<const ContextDevice>(std::move(context));
}

std::shared_ptr<const Context> context_of(const Device& device) {
  const auto* const on_cuda = dynamic_cast<const ContextDevice*>(&device);
  return on_cuda == nullptr ? nullptr : on_cuda->context();
}

}  // namespace sparsekiln::cuda

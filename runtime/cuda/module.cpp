#include "runtime/cuda/module.h"

#include <cuda.h>
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <sparsekiln/binary.h>
#include <sparsekiln/error.h>

#include "compiler/batch_bound.h"
#include "runtime/cuda/attached_tables.h"
#include "runtime/cuda/launch_plan.h"
#include "runtime/cuda/loaded_code.h"
#include "runtime/cuda/stream_workspaces.h"
#include "runtime/cuda/tensor_maps.h"

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

/// What cuLaunchKernelEx is given for a pass of an entry; nothing where cuLaunchKernel does. Overlap with the
/// launch before is the last attribute. It is left out where the driver has no such function or the device is
/// older than sm_90: nothing but time is lost. For clusters this throws `driver`, with what would work, and
/// `internal` where the entry's workers do not make whole clusters.
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

/// Whether a stream that is captured takes launches that overlap others into its graph.
bool captures_overlap(const Context& context) {
  return context.driver().version() >= kFirstWithOverlapInGraphs;
}

/// The shared memory that a CTA gets without asking (CUDA C++ Programming Guide, technical specifications per
/// compute capability).
constexpr std::int32_t kSharedWithoutAsking = 48 * 1024;

/// The largest workspace that any launch of this Binary needs.
std::size_t workspace_bound(const Binary& binary) {
  return static_cast<std::size_t>(binary.workspace_bytes(std::numeric_limits<std::int64_t>::max()));
}

/// Whether an entry is one that a CUDA launch can carry out, for every n it serves.
void check_entry(const Entry& entry) {
  if (entry.passes.empty()) throw Error(ErrorKind::internal, "a CUDA kernel without passes");
  if (entry.up_to <= kMostBatch) return;
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("a batch of up to {}: kernels count whole tiles of it in 32 bits; ask for at most {}",
                  entry.up_to, kMostBatch));
}

/// One entry, ready: everything that cuLaunchKernel takes except the operands.
struct Launchable {
  struct Pass {
    CUfunction function;
    std::vector<CUlaunchAttribute> attributes;  ///< none: cuLaunchKernel does
  };
  std::vector<Pass> passes;
  unsigned workers;
  std::int32_t tile_n;
  std::int32_t rows_of_one;
  unsigned threads;
  unsigned dynamic_shared_bytes;
  LaunchPlan plan;
  unsigned cluster_tiles;  ///< batch tiles of a cluster
  unsigned most_rows;      ///< of the grid
  const void* tables;      ///< of an attached layout; else null
  TensorMaps tensor_maps;

  /// Rows of the grid for so many batch tiles: whole clusters. Where there are more tiles than the grid has
  /// rows, a CTA computes several: tile, tile + gridDim.y …
  [[nodiscard]] unsigned rows(std::int64_t tiles) const {
    const auto most = static_cast<unsigned>(std::min<std::int64_t>(tiles, most_rows));
    if (cluster_tiles == 1) [[likely]]
      return most;
    const unsigned whole = (most + cluster_tiles - 1) / cluster_tiles * cluster_tiles;
    return whole <= kMostGridRows ? whole : whole - cluster_tiles;
  }
};

void allow_dynamic_shared(const Context& context, CUfunction function, const Entry& entry,
                          std::string_view pass) {
  if (entry.dynamic_shared_bytes + entry.resources.shared_bytes <= kSharedWithoutAsking) return;
  const CUresult result = context.api().func_set_attribute(
      function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, entry.dynamic_shared_bytes);
  if (result == CUDA_SUCCESS) return;
  context.driver().fail(
      result,
      fmt::format("giving the kernel {} {} bytes of shared memory a CTA, where {} has {}", pass,
                  entry.dynamic_shared_bytes, context.device().name, context.device().shared_bytes_per_cta));
}

void check_threads(const Context& context, CUfunction function, const Entry& entry, std::string_view pass) {
  int most = 0;
  const CUresult result =
      context.api().func_get_attribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
  context.driver().check(result, "asking how many threads a CTA of a kernel may have");
  if (entry.threads <= most) return;
  throw Error(
      ErrorKind::driver,
      fmt::format(
          "the kernel {} needs {} threads a CTA, and on {} it can have {}; choose a config with fewer "
          "warps",
          pass, entry.threads, context.device().name, most));
}

class ContextModule final : public Module {
 public:
  ContextModule(std::shared_ptr<const Context> context, std::shared_ptr<const Binary> binary)
      : context_(std::move(context)),
        binary_(std::move(binary)),
        code_(std::make_shared<const LoadedCode>(context_, *binary_)),
        tables_(context_, *binary_),
        workspaces_(context_, workspace_bound(*binary_)),
        launch_kernel_(context_->api().launch_kernel),
        captures_overlap_(captures_overlap(*context_)) {
    for (std::size_t index = 0; index < binary_->entries.size(); ++index) {
      const Entry& entry = binary_->entries[index];
      entries_.push_back({passes_of(entry), static_cast<unsigned>(entry.workers), entry.tile_n,
                          entry.rows_of_one, static_cast<unsigned>(entry.threads),
                          static_cast<unsigned>(entry.dynamic_shared_bytes), LaunchPlan(entry.arguments),
                          static_cast<unsigned>(entry.attributes.cluster[1]),
                          static_cast<unsigned>(entry.tiles_in_flight), tables_.argument(index),
                          TensorMaps(*context_, entry)});
    }
  }

  /// The code of `other` with another layout.
  ContextModule(const ContextModule& other, std::shared_ptr<const Binary> binary)
      : context_(other.context_),
        binary_(std::move(binary)),
        code_(other.code_),
        tables_(context_, *binary_),
        workspaces_(context_, workspace_bound(*binary_)),
        launch_kernel_(other.launch_kernel_),
        captures_overlap_(other.captures_overlap_),
        entries_(other.entries_) {
    for (std::size_t index = 0; index < entries_.size(); ++index) {
      entries_[index].workers = static_cast<unsigned>(binary_->entries[index].workers);
      for (std::size_t pass = 0; pass < entries_[index].passes.size(); ++pass)
        entries_[index].passes[pass].attributes = launch_attributes(*context_, binary_->entries[index], pass);
      entries_[index].most_rows = static_cast<unsigned>(binary_->entries[index].tiles_in_flight);
      entries_[index].tables = tables_.argument(index);
      entries_[index].tensor_maps = TensorMaps(*context_, binary_->entries[index]);
    }
  }

  std::unique_ptr<Module> relayout(std::shared_ptr<const Binary> binary) const override {
    check_has_layout(*binary);
    if (binary->entries.size() != entries_.size() || binary->source != binary_->source)
      throw Error(ErrorKind::internal, "another layout came with other code");
    const ContextScope scope(*context_);
    return std::make_unique<ContextModule>(*this, std::move(binary));
  }

  std::int32_t device() const override { return context_->device().ordinal; }

  void launch(std::size_t index, const Launch& launch) const override {
    if (!context_->is_current()) [[unlikely]] {
      context_->admit_thread();
      const ContextScope scope(*context_);
      return this->launch(index, launch);
    }
    const Launchable& entry = entries_[index];
    if (!entry.tensor_maps.empty()) [[unlikely]]
      return launch_with_tensor_maps(index, launch);
    LaunchPlan::Values values(entry.plan, launch, entry.tables);
    launch_passes(index, launch, values.pointers());
  }

  void* workspace(void* stream, std::int64_t bytes) const override {
    if (!context_->is_current()) [[unlikely]] {
      context_->admit_thread();
      const ContextScope scope(*context_);
      return workspace(stream, bytes);
    }
    if (bytes > static_cast<std::int64_t>(workspaces_.bound())) [[unlikely]] {
      throw Error(ErrorKind::internal,
                  fmt::format("a workspace of {} bytes, where the kernel's largest has {}", bytes,
                              workspaces_.bound()));
    }
    return workspaces_.of(static_cast<CUstream>(stream), static_cast<std::size_t>(bytes));
  }

 private:
  void launch_passes(std::size_t index, const Launch& launch, void** parameters) const {
    const Launchable& entry = entries_[index];
    const std::int64_t rows_of_one = launch.rows_of_one != 0 ? launch.rows_of_one : entry.rows_of_one;
    const unsigned rows = entry.rows(batch_tiles(launch.n * rows_of_one, entry.tile_n));
    for (std::size_t pass = 0; pass < entry.passes.size(); ++pass) {
      const CUresult result =
          entry.passes[pass].attributes.empty()
              ? launch_kernel_(entry.passes[pass].function, entry.workers, rows, 1, entry.threads, 1, 1,
                               entry.dynamic_shared_bytes, static_cast<CUstream>(launch.stream), parameters,
                               nullptr)
              : launch_with_attributes(entry, entry.passes[pass], rows, launch.stream, parameters);
      if (result != CUDA_SUCCESS) [[unlikely]]
        fail(result, binary_->entries[index], pass, launch.n);
    }
  }

  /// In a function of its own: the other launches have no use for so much of the stack.
  [[gnu::noinline]] void launch_with_tensor_maps(std::size_t index, const Launch& launch) const {
    const Launchable& entry = entries_[index];
    CUtensorMap maps[kMostTensorMaps];  // of a type that is aligned as the driver asks
    entry.tensor_maps.encode(*context_, launch, maps);
    LaunchPlan::Values values(entry.plan, launch, entry.tables, maps);
    launch_passes(index, launch, values.pointers());
  }

  /// The kernels of an entry, resident, which may have its threads and its shared memory.
  [[nodiscard]] std::vector<Launchable::Pass> passes_of(const Entry& entry) const {
    std::vector<Launchable::Pass> passes;
    for (const std::string& pass : entry.passes) {
      const CUfunction function = code_->function(pass);
      check_threads(*context_, function, entry, pass);
      allow_dynamic_shared(*context_, function, entry, pass);
      passes.push_back({function, launch_attributes(*context_, entry, passes.size())});
    }
    return passes;
  }

  [[nodiscard]] CUresult launch_with_attributes(const Launchable& entry, const Launchable::Pass& pass,
                                                unsigned rows, void* stream, void** parameters) const {
    CUlaunchConfig config{};
    config.gridDimX = entry.workers;
    config.gridDimY = rows;
    config.gridDimZ = 1;
    config.blockDimX = entry.threads;
    config.blockDimY = 1;
    config.blockDimZ = 1;
    config.sharedMemBytes = entry.dynamic_shared_bytes;
    config.hStream = static_cast<CUstream>(stream);
    config.attrs = const_cast<CUlaunchAttribute*>(pass.attributes.data());  // they are read
    config.numAttrs = static_cast<unsigned>(pass.attributes.size());
    const bool overlaps = pass.attributes.back().id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    if (overlaps && !captures_overlap_ && is_captured(config.hStream)) [[unlikely]]
      --config.numAttrs;
    return context_->api().launch_kernel_ex(&config, pass.function, parameters, nullptr);
  }

  /// The legacy default stream cannot be captured.
  [[nodiscard]] bool is_captured(CUstream stream) const {
    if (stream == nullptr || stream == CU_STREAM_LEGACY) return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return context_->api().stream_is_capturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
  }

  [[noreturn]] void fail(CUresult result, const Entry& entry, std::size_t pass, std::int64_t n) const {
    context_->driver().fail(
        result,
        fmt::format(
            "launching {} for a batch of {} on {} ({} threads a CTA, {} bytes of dynamic shared memory)",
            entry.passes[pass], n, context_->device().name, entry.threads, entry.dynamic_shared_bytes));
  }

  std::shared_ptr<const Context> context_;
  std::shared_ptr<const Binary> binary_;
  std::shared_ptr<const LoadedCode> code_;  ///< of all layouts
  AttachedTables tables_;
  mutable StreamWorkspaces workspaces_;
  PFN_cuLaunchKernel_v4000 launch_kernel_;
  bool captures_overlap_;
  std::vector<Launchable> entries_;
};

}  // namespace

std::unique_ptr<Module> load_module(std::shared_ptr<const Context> context,
                                    std::shared_ptr<const Binary> binary) {
  if (binary->target.kind != Target::Kind::cuda) {
    throw Error(ErrorKind::driver,
                fmt::format("loading a kernel for {} on {}: it is machine code for the cpu; compile for cuda",
                            binary->target.arch, context->device().name));
  }
  check_has_layout(*binary);
  for (const Entry& entry : binary->entries) check_entry(entry);
  const ContextScope scope(*context);
  return std::make_unique<ContextModule>(context, std::move(binary));
}

}  // namespace sparsekiln::cuda

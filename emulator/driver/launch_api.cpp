#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "emulator/driver/call.h"
#include "emulator/driver/capture.h"
#include "emulator/machine/cluster.h"
#include "emulator/machine/launch.h"
#include "emulator/machine/report.h"

// Launches and occupancy (CUDA Driver API 13.0, sections 6.22 and 6.26).

using namespace sparsekiln::driver;
namespace emulator = sparsekiln::emulator;

namespace {

/// The sizes of one launch, and how it follows the one before it.
struct Shape {
  unsigned grid[3];
  unsigned block[3];
  unsigned dynamic_shared_bytes;
  unsigned cluster[3] = {0, 0, 0};  ///< blocks; 0: the launch does not say
  bool overlaps = false;            ///< it may begin before the one before it has ended
};

/// What a device answers to each sort of fault. What it would not notice is a failed launch.
CUresult result_of(emulator::FaultKind kind) {
  switch (kind) {
    case emulator::FaultKind::out_of_bounds:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case emulator::FaultKind::misaligned:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case emulator::FaultKind::deadlock:
    case emulator::FaultKind::barrier_not_reached:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case emulator::FaultKind::invalid_operation:
      return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    default:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
}

CUresult check_shape(const Function& function, const Shape& shape) {
  const sparsekiln::ptx::Function& kernel = function.program->function;
  std::uint64_t threads = 1;
  bool required = true;
  for (int i = 0; i < 3; ++i) {
    if (shape.grid[i] == 0 || shape.grid[i] > static_cast<unsigned>(kGridLimit[i]))
      return CUDA_ERROR_INVALID_VALUE;
    if (shape.block[i] == 0 || shape.block[i] > static_cast<unsigned>(kBlockLimit[i]))
      return CUDA_ERROR_INVALID_VALUE;
    threads *= shape.block[i];
    required = required && (kernel.required_threads[0] == 0 || shape.block[i] == kernel.required_threads[i]);
  }
  const bool fits = threads <= kThreadsPerBlock && (kernel.max_threads == 0 || threads <= kernel.max_threads);
  const bool shared = shape.dynamic_shared_bytes <= static_cast<unsigned>(function.dynamic_shared_limit);
  return fits && required && shared ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/// Clusters are as the kernel says, or as the launch says where the kernel does not; else blocks are alone.
/// They are of up to eight blocks, which divide the grid; larger ones need an attribute that is not
/// implemented.
CUresult settle_cluster(const Function& function, Shape& shape) {
  const sparsekiln::ptx::Function& kernel = function.program->function;
  const bool said = shape.cluster[0] != 0;
  const bool required = kernel.required_cluster[0] != 0;
  if (kernel.needs_cluster && !said && !required) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  for (int axis = 0; axis < 3; ++axis) {
    const unsigned size = required ? kernel.required_cluster[axis] : 1;
    if (said && required && shape.cluster[axis] != size) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    if (!said) shape.cluster[axis] = size;
  }
  const unsigned size = shape.cluster[0] * shape.cluster[1] * shape.cluster[2];
  if (size == 1) return CUDA_SUCCESS;
  if (devices()[function.context->device].compute_capability < kFirstWithClusters)
    return CUDA_ERROR_NOT_SUPPORTED;
  for (int axis = 0; axis < 3; ++axis)
    if (shape.cluster[axis] == 0 || shape.grid[axis] % shape.cluster[axis] != 0)
      return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  return size <= emulator::kMostOfCluster ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

/// The buffer that `extra` names: CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE in any order, then _END.
CUresult from_buffer(void** extra, std::vector<std::byte>& parameters) {
  const void* buffer = nullptr;
  const std::size_t* bytes = nullptr;
  for (void** at = extra; *at != CU_LAUNCH_PARAM_END; at += 2) {
    if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = at[1];
    } else if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = static_cast<const std::size_t*>(at[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (bytes == nullptr || *bytes < parameters.size() || (buffer == nullptr && !parameters.empty()))
    return CUDA_ERROR_INVALID_VALUE;
  if (!parameters.empty()) std::memcpy(parameters.data(), buffer, parameters.size());
  return CUDA_SUCCESS;
}

CUresult gather(const emulator::Program& program, void** each, void** extra,
                std::vector<std::byte>& parameters) {
  parameters.assign(program.param_bytes, std::byte{0});
  if (each != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (extra != nullptr) return from_buffer(extra, parameters);
  const auto& wanted = program.function.parameters;
  if (each == nullptr && !wanted.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (each[i] == nullptr || wanted[i].offset + wanted[i].bytes > parameters.size())
      return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(parameters.data() + wanted[i].offset, each[i], wanted[i].bytes);
  }
  return CUDA_SUCCESS;
}

emulator::Checks checks_of(unsigned bits) {
  return {.unwritten = (bits & EMULATOR_CHECK_UNWRITTEN) != 0,
          .races = (bits & EMULATOR_CHECK_RACES) != 0,
          .counters = (bits & EMULATOR_CHECK_COUNTERS) != 0};
}

/// From now on the context is of no use, as on a device.
CUresult fail(Context& context, CUresult result, const char* report) {
  process().set_report(report);
  context.fault = result;
  return process().blocking_launches ? result : CUDA_SUCCESS;
}

/// How many blocks of a kernel a multiprocessor holds; registers are not counted, since PTX does not allocate
/// them.
int blocks_per_multiprocessor(const Function& function, int threads, std::size_t dynamic_shared) {
  const DeviceFacts& device = devices()[function.context->device];
  const int warps = (threads + 31) / 32;
  const std::size_t shared =
      function.program->shared_bytes + dynamic_shared + device.shared_reserved_per_block;
  const auto by_shared = shared == 0 ? static_cast<std::size_t>(device.blocks_per_multiprocessor)
                                     : static_cast<std::size_t>(device.shared_per_multiprocessor) / shared;
  return std::min({device.blocks_per_multiprocessor, device.threads_per_multiprocessor / (32 * warps),
                   static_cast<int>(std::min<std::size_t>(by_shared, 1024))});
}

/// Runs a kernel to its end. What it does wrong the next call says, as with a device that is still at it.
CUresult execute(Context& context, OverlapChain& chain, const Function& function, const Shape& shape,
                 const std::vector<std::byte>& parameters) {
  if (context.fault != CUDA_SUCCESS) return context.fault;
  emulator::LaunchRequest request;
  request.program = function.program.get();
  request.memory = &context.memory;
  for (int i = 0; i < 3; ++i) {
    request.grid[i] = shape.grid[i];
    request.block[i] = shape.block[i];
    request.cluster[i] = shape.cluster[i];
  }
  request.dynamic_shared_bytes = shape.dynamic_shared_bytes;
  request.parameters = parameters;
  request.seed = process().seed;
  request.number = ++context.launches;
  request.host_threads = process().threads;
  request.checks = checks_of(process().checks);
  const DeviceFacts& device = devices()[context.device];
  request.multiprocessors = static_cast<std::uint32_t>(device.multiprocessors);
  const auto threads = static_cast<int>(shape.block[0] * shape.block[1] * shape.block[2]);
  const bool overlapping = device.compute_capability >= kFirstWithClusters;
  if (request.checks.races && overlapping)
    chain.add(request, shape.overlaps);
  else
    chain.end();
  request.resident_blocks = request.multiprocessors * static_cast<std::uint32_t>(blocks_per_multiprocessor(
                                                          function, threads, shape.dynamic_shared_bytes));
  try {
    process().count(function, emulator::run(request));
    return CUDA_SUCCESS;
  } catch (const emulator::Fault& fault) {
    return fail(context, result_of(fault.kind()), fault.what());
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    return fail(context, CUDA_ERROR_UNKNOWN, error.what());
  }
}

CUresult launch(CUfunction handle, const Shape& shape, CUstream stream_handle, void** each, void** extra) {
  return in_context(EMULATOR_FAULT_LAUNCH, [&](const std::shared_ptr<Context>& context) -> CUresult {
    auto function = process().functions.find(handle);
    if (function == nullptr) {  // a CUkernel may stand for its function in the current context
      CUfunction in_this = nullptr;
      if (cuKernelGetFunction(&in_this, reinterpret_cast<CUkernel>(handle)) == CUDA_SUCCESS)
        function = process().functions.find(in_this);
    }
    if (function == nullptr || function->context != context) return CUDA_ERROR_INVALID_HANDLE;
    StreamUse stream;
    if (const CUresult result = find_stream(context, stream_handle, stream); result != CUDA_SUCCESS)
      return result;
    if (const CUresult result = check_shape(*function, shape); result != CUDA_SUCCESS) return result;
    Shape settled = shape;
    if (const CUresult result = settle_cluster(*function, settled); result != CUDA_SUCCESS) return result;
    std::vector<std::byte> parameters;
    if (const CUresult result = gather(*function->program, each, extra, parameters); result != CUDA_SUCCESS)
      return result;
    return submit(stream, [function, shape = settled, parameters = std::move(parameters)](
                              Context& where, OverlapChain& chain) {
      return execute(where, chain, *function, shape, parameters);
    });
  });
}

/// Whether this driver does as an attribute asks, or may take no notice of it.
bool is_granted(const CUlaunchAttribute& attribute) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return true;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      return attribute.value.cooperative == 0;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      return true;
    default:
      return false;
  }
}

/// The sizes and the attributes of a launch.
CUresult shape_of(const CUlaunchConfig* config, Shape& shape) {
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  shape = {{config->gridDimX, config->gridDimY, config->gridDimZ},
           {config->blockDimX, config->blockDimY, config->blockDimZ},
           config->sharedMemBytes};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (!is_granted(attribute)) return CUDA_ERROR_NOT_SUPPORTED;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      shape.overlaps = attribute.value.programmaticStreamSerializationAllowed != 0;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      const auto& size = attribute.value.clusterDim;
      const unsigned cluster[3] = {size.x, size.y, size.z};
      std::copy_n(cluster, 3, shape.cluster);
    }
  }
  return CUDA_SUCCESS;
}

/// Clusters whose blocks are on the device together: each is within one GPC.
int clusters_at_once(const Function& function, const Shape& shape) {
  const auto threads = static_cast<int>(shape.block[0] * shape.block[1] * shape.block[2]);
  const int of_each = blocks_per_multiprocessor(function, threads, shape.dynamic_shared_bytes);
  const auto size = static_cast<int>(shape.cluster[0] * shape.cluster[1] * shape.cluster[2]);
  int clusters = 0;
  for (const int multiprocessors : gpcs(devices()[function.context->device]))
    clusters += multiprocessors * of_each / size;
  return clusters;
}

CUresult occupancy(int* blocks, CUfunction handle, int threads, size_t dynamic_shared) {
  return in_context([&](const std::shared_ptr<Context>&) -> CUresult {
    const auto function = process().functions.find(handle);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (blocks == nullptr || threads < 1) return CUDA_ERROR_INVALID_VALUE;
    const bool launches = threads <= kThreadsPerBlock &&
                          dynamic_shared <= static_cast<std::size_t>(function->dynamic_shared_limit);
    *blocks = launches ? blocks_per_multiprocessor(*function, threads, dynamic_shared) : 0;
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned dynamic_shared_bytes,
                        CUstream stream, void** parameters, void** extra) {
  return launch(function, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_shared_bytes},
                stream, parameters, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  Shape shape{};
  if (const CUresult result = shape_of(config, shape); result != CUDA_SUCCESS) return result;
  return launch(function, shape, config->hStream, parameters, extra);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     size_t dynamic_shared) {
  return occupancy(blocks, function, threads, dynamic_shared);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int threads,
                                                              size_t dynamic_shared, unsigned) {
  return occupancy(blocks, function, threads, dynamic_shared);
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle, const CUlaunchConfig* config) {
  return in_context([&](const std::shared_ptr<Context>&) -> CUresult {
    const auto function = process().functions.find(handle);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    Shape shape{};
    if (const CUresult result = shape_of(config, shape); result != CUDA_SUCCESS) return result;
    if (clusters == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_shape(*function, shape); result != CUDA_SUCCESS) return result;
    if (devices()[function->context->device].compute_capability < kFirstWithClusters)
      return CUDA_ERROR_NOT_SUPPORTED;
    if (const CUresult result = settle_cluster(*function, shape); result != CUDA_SUCCESS) return result;
    *clusters = clusters_at_once(*function, shape);
    return CUDA_SUCCESS;
  });
}

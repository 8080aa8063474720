#include "tests/runtime/cuda/stub_driver.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

#include "tests/runtime/cuda/stub_cubin.h"
#include "tests/runtime/cuda/stub_errors.h"
#include "tests/runtime/cuda/stub_state.h"

using namespace stub;

namespace {

thread_local const char per_thread = 0;

CUresult init(unsigned) { return note("cuInit"); }

CUresult driver_get_version(int* version) {
  *version = state().version;
  return CUDA_SUCCESS;
}

CUresult device_get_count(int* count) {
  *count = kDeviceCount;
  return note("cuDeviceGetCount");
}

CUresult device_get(CUdevice* device, int ordinal) {
  if (ordinal < 0 || ordinal >= kDeviceCount) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult device_get_name(char* name, int bytes, CUdevice device) {
  std::strncpy(name, kDevices[device].name, static_cast<std::size_t>(bytes));
  return CUDA_SUCCESS;
}

CUresult device_get_pci_bus_id(char* id, int bytes, CUdevice device) {
  if (const CUresult result = note("cuDeviceGetPCIBusId"); result != CUDA_SUCCESS) return result;
  std::strncpy(id, kDevices[device].pci_bus_id, static_cast<std::size_t>(bytes));
  return CUDA_SUCCESS;
}

CUresult device_total_mem(std::size_t* bytes, CUdevice) {
  *bytes = std::size_t{80} << 30;
  return CUDA_SUCCESS;
}

CUresult device_get_attribute(int* value, CUdevice_attribute which, CUdevice device) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = kDevices[device].major;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = kDevices[device].minor;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = kDevices[device].multiprocessors;
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = 50 << 20;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = 232448;
      break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      *value = 1980000;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult primary_ctx_get_state(CUdevice device, unsigned* flags, int* active) {
  const std::lock_guard lock(state().mutex);
  *flags = 0;
  *active = state().references[device] > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult primary_ctx_retain(CUcontext* context, CUdevice device) {
  if (const CUresult result = note("cuDevicePrimaryCtxRetain"); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state().mutex);
  ++state().references[device];
  state().primary[device].alive = true;
  *context = &state().primary[device];
  return CUDA_SUCCESS;
}

CUresult primary_ctx_release(CUdevice device) {
  if (const CUresult result = note("cuDevicePrimaryCtxRelease"); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state().mutex);
  if (state().references[device] == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--state().references[device] == 0) end(&state().primary[device]);
  return CUDA_SUCCESS;
}

CUresult ctx_get_current(CUcontext* context) {
  *context = current_context();
  return CUDA_SUCCESS;
}

CUresult ctx_set_current(CUcontext context) {
  if (const CUresult result = note("cuCtxSetCurrent"); result != CUDA_SUCCESS) return result;
  if (context != nullptr && !context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!context_stack().empty()) context_stack().pop_back();
  if (context != nullptr) context_stack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult ctx_push_current(CUcontext context) {
  if (const CUresult result = note("cuCtxPushCurrent"); result != CUDA_SUCCESS) return result;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  context_stack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult ctx_pop_current(CUcontext* context) {
  if (context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = current_context();
  context_stack().pop_back();
  return note("cuCtxPopCurrent");
}

CUresult ctx_get_device(CUdevice* device) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!current_context()->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *device = current_context()->device;
  return CUDA_SUCCESS;
}

CUresult ctx_synchronize() { return note_in_context("cuCtxSynchronize"); }

/// Reads `kernel NAME SIZE…` lines.
std::map<std::string, CUfunc_st> parse_kernels(const std::string& text) {
  std::map<std::string, CUfunc_st> functions;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find("kernel ");
    if (at == std::string::npos) continue;
    std::istringstream words(line.substr(at + 7));
    CUfunc_st function;
    words >> function.name;
    for (std::size_t size = 0; words >> size;) function.sizes.push_back(size);
    functions[function.name] = function;
  }
  return functions;
}

/// Reads `variable NAME BYTES` lines.
std::map<std::string, std::vector<std::byte>> parse_variables(const std::string& text) {
  std::map<std::string, std::vector<std::byte>> variables;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find("variable ");
    if (at == std::string::npos) continue;
    std::istringstream words(line.substr(at + 9));
    std::string name;
    std::size_t bytes = 0;
    words >> name >> bytes;
    variables[name].resize(bytes);
  }
  return variables;
}

/// The number after the first `key`, 0 where there is none.
int number_after(const std::string& text, std::string_view key) {
  const std::size_t at = text.find(key);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + key.size());
}

CUresult module_load_data(CUmodule* module, const void* image, unsigned options, CUjit_option* names,
                          void** values) {
  if (const CUresult result = note_in_context("cuModuleLoadDataEx"); result != CUDA_SUCCESS) return result;
  auto loaded = std::make_unique<CUmod_st>();
  loaded->context = current_context();
  const StubDevice& device = kDevices[current_context()->device];
  const int capability = device.major * 10 + device.minor;
  const std::string_view start(static_cast<const char*>(image), 4);
  if (start ==
      "\x7f"
      "ELF") {
    if (static_cast<const char*>(image)[stub::kBrokenMark] != 0) return CUDA_ERROR_INVALID_IMAGE;
    loaded->any = true;
    for (const auto& [name, bytes] : variables_of_cubin(static_cast<const std::byte*>(image)))
      loaded->variables[name].resize(bytes);
  } else {
    const std::string text(static_cast<const char*>(image));
    const bool cubin = text.starts_with("cubin sm_");
    if (cubin && number_after(text, "cubin sm_") != capability) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (!cubin && number_after(text, ".target sm_") == 0) return CUDA_ERROR_INVALID_IMAGE;
    if (text.find("broken") != std::string::npos ||
        (!cubin && number_after(text, ".target sm_") > capability)) {
      for (unsigned i = 0; i < options; ++i) {
        if (names[i] == CU_JIT_ERROR_LOG_BUFFER)
          std::strcpy(static_cast<char*>(values[i]), "ptxas: line 7: no such thing");
      }
      return cubin ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_INVALID_PTX;
    }
    loaded->functions = parse_kernels(text);
    loaded->variables = parse_variables(text);
    for (auto& [name, function] : loaded->functions) function.context = current_context();
  }
  const std::lock_guard lock(state().mutex);
  state().modules.insert(loaded.get());
  state().last_module = loaded.get();
  *module = loaded.release();
  return CUDA_SUCCESS;
}

CUresult module_unload(CUmodule module) {
  if (const CUresult result = note_in_context("cuModuleUnload"); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state().mutex);
  if (!state().modules.contains(module) || module->context != current_context())
    return CUDA_ERROR_INVALID_HANDLE;
  state().modules.erase(module);
  delete module;
  return CUDA_SUCCESS;
}

CUresult module_get_function(CUfunction* function, CUmodule module, const char* name) {
  if (const CUresult result = note_about("cuModuleGetFunction", module); result != CUDA_SUCCESS)
    return result;
  const std::lock_guard lock(state().mutex);
  auto found = module->functions.find(name);
  if (found == module->functions.end()) {
    if (!module->any) return CUDA_ERROR_NOT_FOUND;
    found = module->functions.emplace(name, CUfunc_st{current_context(), name, {}}).first;
  }
  *function = &found->second;
  return CUDA_SUCCESS;
}

CUresult module_get_global(CUdeviceptr* address, std::size_t* bytes, CUmodule module, const char* name) {
  if (const CUresult result = note_about("cuModuleGetGlobal", module); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state().mutex);
  const auto found = module->variables.find(name);
  if (found == module->variables.end()) return CUDA_ERROR_NOT_FOUND;
  *address = reinterpret_cast<CUdeviceptr>(found->second.data());
  *bytes = found->second.size();
  return CUDA_SUCCESS;
}

CUresult func_load(CUfunction function) {
  if (const CUresult result = note_about("cuFuncLoad", function); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state().mutex);
  state().resident.push_back(function->name);
  return CUDA_SUCCESS;
}

CUresult func_get_attribute(int* value, CUfunction_attribute which, CUfunction function) {
  *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 32;
  return note_about("cuFuncGetAttribute", function);
}

CUresult func_set_attribute(CUfunction function, CUfunction_attribute, int value) {
  if (const CUresult result = note_about("cuFuncSetAttribute", function); result != CUDA_SUCCESS)
    return result;
  const std::lock_guard lock(state().mutex);
  function->dynamic_shared = value;
  state().dynamic_shared[function->name] = value;
  return value <= 232448 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/// What cuLaunchKernelEx has besides a grid.
void add_attributes(stub::Launch& launch, const CUlaunchConfig& config) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      launch.cluster = {attribute.value.clusterDim.x, attribute.value.clusterDim.y,
                        attribute.value.clusterDim.z};
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      launch.overlaps_previous = attribute.value.programmaticStreamSerializationAllowed != 0;
  }
}

CUresult record_launch(const CUlaunchConfig& config, CUfunction function, void** parameters) {
  const CUstream stream = config.hStream;
  const unsigned shared_bytes = config.sharedMemBytes;
  if (function->context != current_context()) return CUDA_ERROR_INVALID_HANDLE;
  if (shared_bytes > 48 * 1024 && static_cast<int>(shared_bytes) > function->dynamic_shared) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  State& s = state();
  const bool capturing = !is_special(stream) && stream->capturing.load(std::memory_order_relaxed);
  if (!capturing && !s.recording.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  stub::Launch launch{function->name,
                      {config.gridDimX, config.gridDimY, config.gridDimZ},
                      {config.blockDimX, config.blockDimY, config.blockDimZ},
                      shared_bytes,
                      stream,
                      {},
                      capturing};
  add_attributes(launch, config);
  for (std::size_t i = 0; i < function->sizes.size(); ++i) {
    const auto* bytes = static_cast<const std::byte*>(parameters[i]);
    launch.arguments.emplace_back(bytes, bytes + function->sizes[i]);
  }
  const std::lock_guard lock(s.mutex);
  (capturing ? stream->captured : s.launches).push_back(std::move(launch));
  return CUDA_SUCCESS;
}

CUresult launch_kernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       CUstream stream, void** parameters, void**) {
  if (const CUresult result = note_on_stream("cuLaunchKernel", stream); result != CUDA_SUCCESS) return result;
  return record_launch({grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, nullptr, 0},
                       function, parameters);
}

CUresult launch_kernel_ex(const CUlaunchConfig* config, CUfunction function, void** parameters, void**) {
  if (const CUresult result = note_on_stream("cuLaunchKernelEx", config->hStream); result != CUDA_SUCCESS)
    return result;
  return record_launch(*config, function, parameters);
}

/// Refuses what cuda.h says that cuTensorMapEncodeTiled does not take, as far as this library could ask it.
CUresult tensor_map_encode_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                 const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                                 const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2_promotion,
                                 CUtensorMapFloatOOBfill fill) {
  if (const CUresult result = note_in_context("cuTensorMapEncodeTiled"); result != CUDA_SUCCESS)
    return result;
  const auto unaligned = [](const void* at, std::uintptr_t to) {
    return reinterpret_cast<std::uintptr_t>(at) % to != 0;
  };
  if (unaligned(map, 64) || unaligned(address, 16) || rank < 2 || rank > 5) return CUDA_ERROR_INVALID_VALUE;
  for (cuuint32_t axis = 0; axis + 1 < rank; ++axis)
    if (strides[axis] % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  for (cuuint32_t axis = 0; axis < rank; ++axis)
    if (extents[axis] == 0 || box[axis] == 0 || box[axis] > 256 || element_strides[axis] == 0 ||
        element_strides[axis] > 8)
      return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const std::vector<std::byte> bytes = stub::tensor_map_bytes(s.tensor_maps.size());
  std::memcpy(map, bytes.data(), sizeof *map);
  if (s.recording)
    s.tensor_maps.push_back({type,
                             address,
                             {extents, extents + rank},
                             {strides, strides + rank - 1},
                             {box, box + rank},
                             {element_strides, element_strides + rank},
                             interleave,
                             swizzle,
                             l2_promotion,
                             fill});
  return CUDA_SUCCESS;
}

CUresult mem_alloc(CUdeviceptr* memory, std::size_t bytes) {
  if (const CUresult result = note_in_context("cuMemAlloc"); result != CUDA_SUCCESS) return result;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* const made = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(made, 0xcd, bytes);  // as a device's: anything but zeros
  const std::lock_guard lock(state().mutex);
  state().allocations.emplace(made, current_context());
  *memory = reinterpret_cast<CUdeviceptr>(made);
  return CUDA_SUCCESS;
}

CUresult mem_free(CUdeviceptr memory) {
  if (const CUresult result = note_in_context("cuMemFree"); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state().mutex);
  const auto held = state().allocations.find(reinterpret_cast<void*>(memory));
  if (held == state().allocations.end() || held->second != current_context()) return CUDA_ERROR_INVALID_VALUE;
  std::free(held->first);
  state().allocations.erase(held);
  return CUDA_SUCCESS;
}

CUresult memcpy_htod(CUdeviceptr to, const void* from, std::size_t bytes) {
  if (const CUresult result = note_in_context("cuMemcpyHtoD"); result != CUDA_SUCCESS) return result;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return CUDA_SUCCESS;
}

CUresult memcpy_htod_async(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  if (const CUresult result = note_on_stream("cuMemcpyHtoDAsync", stream); result != CUDA_SUCCESS)
    return result;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return CUDA_SUCCESS;
}

CUresult memcpy_dtoh(void* to, CUdeviceptr from, std::size_t bytes) {
  if (const CUresult result = note_in_context("cuMemcpyDtoH"); result != CUDA_SUCCESS) return result;
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return CUDA_SUCCESS;
}

CUresult memset_d8_async(CUdeviceptr memory, unsigned char value, std::size_t bytes, CUstream stream) {
  if (const CUresult result = note_on_stream("cuMemsetD8Async", stream); result != CUDA_SUCCESS)
    return result;
  std::memset(reinterpret_cast<void*>(memory), value, bytes);
  return CUDA_SUCCESS;
}

CUresult stream_create(CUstream* stream, unsigned) {
  if (const CUresult result = note_in_context("cuStreamCreate"); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state().mutex);
  *stream = new CUstream_st;
  (*stream)->context = current_context();
  (*stream)->id = state().next_id++;
  state().streams.insert(*stream);
  return CUDA_SUCCESS;
}

CUresult stream_destroy(CUstream stream) {
  if (const CUresult result = note_on_stream("cuStreamDestroy", stream); result != CUDA_SUCCESS)
    return result;
  const std::lock_guard lock(state().mutex);
  if (state().streams.erase(stream) == 0) return CUDA_ERROR_INVALID_HANDLE;
  delete stream;
  return CUDA_SUCCESS;
}

CUresult stream_synchronize(CUstream stream) { return note_on_stream("cuStreamSynchronize", stream); }

CUresult stream_is_capturing(CUstream stream, CUstreamCaptureStatus* status) {
  *status = !is_special(stream) && stream->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                     : CU_STREAM_CAPTURE_STATUS_NONE;
  return note_on_stream("cuStreamIsCapturing", stream);
}

CUresult thread_exchange_stream_capture_mode(CUstreamCaptureMode* mode) {
  thread_local CUstreamCaptureMode held = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::swap(held, *mode);
  return note("cuThreadExchangeStreamCaptureMode");
}

CUresult stream_get_id(CUstream stream, unsigned long long* id) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (stream == CU_STREAM_PER_THREAD) {
    *id = reinterpret_cast<unsigned long long>(&per_thread);
  } else {
    *id = is_special(stream) ? 1 : stream->id;
  }
  return CUDA_SUCCESS;
}

CUresult stream_begin_capture(CUstream stream, CUstreamCaptureMode) {
  if (is_special(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (const CUresult result = note_on_stream("cuStreamBeginCapture", stream); result != CUDA_SUCCESS)
    return result;
  stream->capturing = true;
  return CUDA_SUCCESS;
}

CUresult stream_end_capture(CUstream stream, CUgraph* graph) {
  if (const CUresult result = note_on_stream("cuStreamEndCapture", stream); result != CUDA_SUCCESS)
    return result;
  if (!stream->capturing.exchange(false)) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  *graph = new CUgraph_st{std::exchange(stream->captured, {})};
  return CUDA_SUCCESS;
}

CUresult graph_instantiate(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  if (const CUresult result = note_in_context("cuGraphInstantiateWithFlags"); result != CUDA_SUCCESS)
    return result;
  *executable = new CUgraphExec_st{current_context(), graph->launches};
  return CUDA_SUCCESS;
}

CUresult graph_launch(CUgraphExec executable, CUstream stream) {
  if (const CUresult result = note_on_stream("cuGraphLaunch", stream); result != CUDA_SUCCESS) return result;
  if (executable->context != current_context()) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(state().mutex);
  for (const stub::Launch& launch : executable->launches) state().launches.push_back(launch);
  return CUDA_SUCCESS;
}

CUresult graph_exec_destroy(CUgraphExec executable) {
  delete executable;
  return CUDA_SUCCESS;
}

CUresult graph_destroy(CUgraph graph) {
  delete graph;
  return CUDA_SUCCESS;
}

CUresult event_create(CUevent* event, unsigned) {
  if (const CUresult result = note_in_context("cuEventCreate"); result != CUDA_SUCCESS) return result;
  *event = new CUevent_st{current_context()};
  return CUDA_SUCCESS;
}

CUresult event_destroy(CUevent event) {
  if (const CUresult result = note_about("cuEventDestroy", event); result != CUDA_SUCCESS) return result;
  delete event;
  return CUDA_SUCCESS;
}

CUresult event_record(CUevent event, CUstream stream) {
  if (const CUresult result = note_on_stream("cuEventRecord", stream); result != CUDA_SUCCESS) return result;
  if (event->context != current_context()) return CUDA_ERROR_INVALID_HANDLE;
  event->at = ++state().clock;
  return CUDA_SUCCESS;
}

CUresult event_synchronize(CUevent event) { return note_about("cuEventSynchronize", event); }

/// A millisecond passes with every event.
CUresult event_elapsed_time(float* milliseconds, CUevent from, CUevent to) {
  *milliseconds = static_cast<float>(to->at - from->at);
  return note_about("cuEventElapsedTime", from);
}

struct Symbol {
  const char* name;
  int version;  // of this interface; asked for at a lower one, the driver would hand out another
  void* address;
};

template <typename Function>
Symbol symbol(const char* name, int version, Function* function) {
  return {name, version, reinterpret_cast<void*>(function)};
}

const Symbol kSymbols[] = {
    symbol("cuInit", 2000, init),
    symbol("cuDriverGetVersion", 2020, driver_get_version),
    symbol("cuGetErrorName", 6000, stub::get_error_name),
    symbol("cuGetErrorString", 6000, stub::get_error_string),
    symbol("cuDeviceGetCount", 2000, device_get_count),
    symbol("cuDeviceGet", 2000, device_get),
    symbol("cuDeviceGetName", 2000, device_get_name),
    symbol("cuDeviceGetPCIBusId", 4010, device_get_pci_bus_id),
    symbol("cuDeviceTotalMem", 3020, device_total_mem),
    symbol("cuDeviceGetAttribute", 2000, device_get_attribute),
    symbol("cuDevicePrimaryCtxGetState", 7000, primary_ctx_get_state),
    symbol("cuDevicePrimaryCtxRetain", 7000, primary_ctx_retain),
    symbol("cuDevicePrimaryCtxRelease", 11000, primary_ctx_release),
    symbol("cuCtxGetCurrent", 4000, ctx_get_current),
    symbol("cuCtxSetCurrent", 4000, ctx_set_current),
    symbol("cuCtxPushCurrent", 4000, ctx_push_current),
    symbol("cuCtxPopCurrent", 4000, ctx_pop_current),
    symbol("cuCtxGetDevice", 2000, ctx_get_device),
    symbol("cuCtxSynchronize", 2000, ctx_synchronize),
    symbol("cuModuleLoadDataEx", 2010, module_load_data),
    symbol("cuModuleUnload", 2000, module_unload),
    symbol("cuModuleGetFunction", 2000, module_get_function),
    symbol("cuModuleGetGlobal", 3020, module_get_global),
    symbol("cuFuncGetAttribute", 2020, func_get_attribute),
    symbol("cuFuncSetAttribute", 9000, func_set_attribute),
    symbol("cuFuncLoad", 12040, func_load),
    symbol("cuLaunchKernel", 4000, launch_kernel),
    symbol("cuLaunchKernelEx", 11060, launch_kernel_ex),
    symbol("cuTensorMapEncodeTiled", 12000, tensor_map_encode_tiled),
    symbol("cuMemAlloc", 3020, mem_alloc),
    symbol("cuMemFree", 3020, mem_free),
    symbol("cuMemcpyHtoD", 3020, memcpy_htod),
    symbol("cuMemcpyHtoDAsync", 3020, memcpy_htod_async),
    symbol("cuMemcpyDtoH", 3020, memcpy_dtoh),
    symbol("cuMemsetD8Async", 3020, memset_d8_async),
    symbol("cuStreamCreate", 2000, stream_create),
    symbol("cuStreamDestroy", 4000, stream_destroy),
    symbol("cuStreamSynchronize", 2000, stream_synchronize),
    symbol("cuStreamIsCapturing", 10000, stream_is_capturing),
    symbol("cuThreadExchangeStreamCaptureMode", 10010, thread_exchange_stream_capture_mode),
    symbol("cuStreamGetId", 12000, stream_get_id),
    symbol("cuStreamBeginCapture", 10010, stream_begin_capture),
    symbol("cuStreamEndCapture", 10000, stream_end_capture),
    symbol("cuGraphInstantiateWithFlags", 11040, graph_instantiate),
    symbol("cuGraphLaunch", 10000, graph_launch),
    symbol("cuGraphExecDestroy", 10000, graph_exec_destroy),
    symbol("cuGraphDestroy", 10000, graph_destroy),
    symbol("cuEventCreate", 2000, event_create),
    symbol("cuEventDestroy", 4000, event_destroy),
    symbol("cuEventRecord", 2000, event_record),
    symbol("cuEventSynchronize", 2000, event_synchronize),
    symbol("cuEventElapsedTime", 2000, event_elapsed_time),
};

}  // namespace

// cuda.h declares the first under the second's name.
#undef cuGetProcAddress
extern "C" {

__attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(const char* name, void** address,
                                                                    int version, cuuint64_t,
                                                                    CUdriverProcAddressQueryResult* status) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.asked.emplace_back(name, version);
  *address = nullptr;
  if (version > s.version) return CUDA_ERROR_INVALID_VALUE;
  if (status != nullptr) *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (s.hidden.contains(name)) return CUDA_SUCCESS;
  for (const Symbol& symbol : kSymbols) {
    if (std::strcmp(symbol.name, name) != 0 || symbol.version != version) continue;
    *address = symbol.address;
    if (status != nullptr) *status = CU_GET_PROC_ADDRESS_SUCCESS;
  }
  return CUDA_SUCCESS;
}
}

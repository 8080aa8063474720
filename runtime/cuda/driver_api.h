#pragma once

#include <span>

#include <cuda.h>
#include <cudaTypedefs.h>

namespace sparsekiln::cuda {

/// The functions of the CUDA Driver API that this library calls: the member of DriverApi, the name without a
/// suffix, and the version of the interface that is asked for, which its type names. One function may have
/// several interfaces (cuMemAlloc of 2.0 takes a 32-bit size, that of 3.2 a size_t): name and version
/// together say which. All are there but those that are optional.
// clang-format off
#define SPARSEKILN_DRIVER_FUNCTIONS(required, optional) \
  required(init, cuInit, 2000) \
  required(driver_get_version, cuDriverGetVersion, 2020) \
  required(get_error_name, cuGetErrorName, 6000) \
  required(get_error_string, cuGetErrorString, 6000) \
  required(device_get_count, cuDeviceGetCount, 2000) \
  required(device_get, cuDeviceGet, 2000) \
  required(device_get_name, cuDeviceGetName, 2000) \
  required(device_get_pci_bus_id, cuDeviceGetPCIBusId, 4010) \
  required(device_total_mem, cuDeviceTotalMem, 3020) \
  required(device_get_attribute, cuDeviceGetAttribute, 2000) \
  required(primary_ctx_get_state, cuDevicePrimaryCtxGetState, 7000) \
  required(primary_ctx_retain, cuDevicePrimaryCtxRetain, 7000) \
  required(primary_ctx_release, cuDevicePrimaryCtxRelease, 11000) \
  required(ctx_get_current, cuCtxGetCurrent, 4000) \
  required(ctx_set_current, cuCtxSetCurrent, 4000) \
  required(ctx_push_current, cuCtxPushCurrent, 4000) \
  required(ctx_pop_current, cuCtxPopCurrent, 4000) \
  required(ctx_get_device, cuCtxGetDevice, 2000) \
  required(ctx_synchronize, cuCtxSynchronize, 2000) \
  required(module_load_data, cuModuleLoadDataEx, 2010) \
  required(module_unload, cuModuleUnload, 2000) \
  required(module_get_function, cuModuleGetFunction, 2000) \
  required(module_get_global, cuModuleGetGlobal, 3020) \
  required(func_get_attribute, cuFuncGetAttribute, 2020) \
  required(func_set_attribute, cuFuncSetAttribute, 9000) \
  required(launch_kernel, cuLaunchKernel, 4000) \
  optional(launch_kernel_ex, cuLaunchKernelEx, 11060) \
  optional(max_active_clusters, cuOccupancyMaxActiveClusters, 11070) \
  optional(tensor_map_encode_tiled, cuTensorMapEncodeTiled, 12000) \
  required(mem_alloc, cuMemAlloc, 3020) \
  required(mem_free, cuMemFree, 3020) \
  required(memcpy_htod, cuMemcpyHtoD, 3020) \
  required(memcpy_htod_async, cuMemcpyHtoDAsync, 3020) \
  required(memcpy_dtoh, cuMemcpyDtoH, 3020) \
  required(memset_d8_async, cuMemsetD8Async, 3020) \
  required(stream_create, cuStreamCreate, 2000) \
  required(stream_destroy, cuStreamDestroy, 4000) \
  required(stream_synchronize, cuStreamSynchronize, 2000) \
  required(stream_is_capturing, cuStreamIsCapturing, 10000) \
  required(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode, 10010) \
  optional(stream_get_id, cuStreamGetId, 12000) \
  required(stream_begin_capture, cuStreamBeginCapture, 10010) \
  required(stream_end_capture, cuStreamEndCapture, 10000) \
  required(graph_instantiate, cuGraphInstantiateWithFlags, 11040) \
  required(graph_launch, cuGraphLaunch, 10000) \
  required(graph_exec_destroy, cuGraphExecDestroy, 10000) \
  required(graph_destroy, cuGraphDestroy, 10000) \
  required(event_create, cuEventCreate, 2000) \
  required(event_destroy, cuEventDestroy, 4000) \
  required(event_record, cuEventRecord, 2000) \
  required(event_synchronize, cuEventSynchronize, 2000) \
  required(event_elapsed_time, cuEventElapsedTime, 2000)
// clang-format on

struct DriverApi {
#define SPARSEKILN_MEMBER(member, name, version) PFN_##name##_v##version member = nullptr;
  SPARSEKILN_DRIVER_FUNCTIONS(SPARSEKILN_MEMBER, SPARSEKILN_MEMBER)
#undef SPARSEKILN_MEMBER
  CUresult(CUDAAPI* func_load)(CUfunction function) = nullptr;  ///< optional; cuFuncLoad of CUDA 12.4
};

/// A row of the table: what to ask cuGetProcAddress for, and where the answer goes.
struct DriverSymbol {
  const char* name;  ///< the base name, without a version suffix
  int version;       ///< of the interface, 1000 × major + 10 × minor
  bool required;
  void (*store)(DriverApi& api, void* address);
};

[[nodiscard]] std::span<const DriverSymbol> driver_symbols();

}  // namespace sparsekiln::cuda

#pragma once

#include <span>

#include <cuda.h>
#include <cudaTypedefs.h>

namespace sparsekiln::cuda {

/// The functions of the CUDA Driver API that this library calls. Each type names the version of the interface
/// that is asked for; the table in driver_api.cpp asks for the same one. All are there but those marked
/// optional.
struct DriverApi {
  PFN_cuInit_v2000 init = nullptr;
  PFN_cuDriverGetVersion_v2020 driver_get_version = nullptr;
  PFN_cuGetErrorName_v6000 get_error_name = nullptr;
  PFN_cuGetErrorString_v6000 get_error_string = nullptr;

  PFN_cuDeviceGetCount_v2000 device_get_count = nullptr;
  PFN_cuDeviceGet_v2000 device_get = nullptr;
  PFN_cuDeviceGetName_v2000 device_get_name = nullptr;
  PFN_cuDeviceGetPCIBusId_v4010 device_get_pci_bus_id = nullptr;
  PFN_cuDeviceTotalMem_v3020 device_total_mem = nullptr;
  PFN_cuDeviceGetAttribute_v2000 device_get_attribute = nullptr;

  PFN_cuDevicePrimaryCtxGetState_v7000 primary_ctx_get_state = nullptr;
  PFN_cuDevicePrimaryCtxRetain_v7000 primary_ctx_retain = nullptr;
  PFN_cuDevicePrimaryCtxRelease_v11000 primary_ctx_release = nullptr;
  PFN_cuCtxGetCurrent_v4000 ctx_get_current = nullptr;
  PFN_cuCtxSetCurrent_v4000 ctx_set_current = nullptr;
  PFN_cuCtxPushCurrent_v4000 ctx_push_current = nullptr;
  PFN_cuCtxPopCurrent_v4000 ctx_pop_current = nullptr;
  PFN_cuCtxGetDevice_v2000 ctx_get_device = nullptr;
  PFN_cuCtxSynchronize_v2000 ctx_synchronize = nullptr;

  PFN_cuModuleLoadDataEx_v2010 module_load_data = nullptr;
  PFN_cuModuleUnload_v2000 module_unload = nullptr;
  PFN_cuModuleGetFunction_v2000 module_get_function = nullptr;
  PFN_cuModuleGetGlobal_v3020 module_get_global = nullptr;
  PFN_cuFuncGetAttribute_v2020 func_get_attribute = nullptr;
  PFN_cuFuncSetAttribute_v9000 func_set_attribute = nullptr;
  CUresult(CUDAAPI* func_load)(CUfunction function) = nullptr;  ///< optional; cuFuncLoad of CUDA 12.4
  PFN_cuLaunchKernel_v4000 launch_kernel = nullptr;
  PFN_cuLaunchKernelEx_v11060 launch_kernel_ex = nullptr;                 ///< optional
  PFN_cuOccupancyMaxActiveClusters_v11070 max_active_clusters = nullptr;  ///< optional
  PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encode_tiled = nullptr;    ///< optional

  PFN_cuMemAlloc_v3020 mem_alloc = nullptr;
  PFN_cuMemFree_v3020 mem_free = nullptr;
  PFN_cuMemcpyHtoD_v3020 memcpy_htod = nullptr;
  PFN_cuMemcpyHtoDAsync_v3020 memcpy_htod_async = nullptr;
  PFN_cuMemcpyDtoH_v3020 memcpy_dtoh = nullptr;
  PFN_cuMemsetD8Async_v3020 memset_d8_async = nullptr;

  PFN_cuStreamCreate_v2000 stream_create = nullptr;
  PFN_cuStreamDestroy_v4000 stream_destroy = nullptr;
  PFN_cuStreamSynchronize_v2000 stream_synchronize = nullptr;
  PFN_cuStreamIsCapturing_v10000 stream_is_capturing = nullptr;
  PFN_cuThreadExchangeStreamCaptureMode_v10010 thread_exchange_stream_capture_mode = nullptr;
  PFN_cuStreamGetId_v12000 stream_get_id = nullptr;  ///< optional
  PFN_cuStreamBeginCapture_v10010 stream_begin_capture = nullptr;
  PFN_cuStreamEndCapture_v10000 stream_end_capture = nullptr;
  PFN_cuGraphInstantiateWithFlags_v11040 graph_instantiate = nullptr;
  PFN_cuGraphLaunch_v10000 graph_launch = nullptr;
  PFN_cuGraphExecDestroy_v10000 graph_exec_destroy = nullptr;
  PFN_cuGraphDestroy_v10000 graph_destroy = nullptr;

  PFN_cuEventCreate_v2000 event_create = nullptr;
  PFN_cuEventDestroy_v4000 event_destroy = nullptr;
  PFN_cuEventRecord_v2000 event_record = nullptr;
  PFN_cuEventSynchronize_v2000 event_synchronize = nullptr;
  PFN_cuEventElapsedTime_v2000 event_elapsed_time = nullptr;
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

#include "runtime/cuda/driver_api.h"

namespace sparsekiln::cuda {
namespace {

template <auto member>
void store(DriverApi& api, void* address) {
  using Function = std::remove_reference_t<decltype(api.*member)>;
  api.*member = reinterpret_cast<Function>(address);
}

template <auto member>
constexpr DriverSymbol required(const char* name, int version) {
  return {name, version, true, store<member>};
}

template <auto member>
constexpr DriverSymbol optional(const char* name, int version) {
  return {name, version, false, store<member>};
}

// The version is the one in the member's type. One function may have several interfaces (cuMemAlloc of 2.0
// takes a 32-bit size, that of 3.2 a size_t): name and version together say which.
constexpr DriverSymbol kSymbols[] = {
    required<&DriverApi::init>("cuInit", 2000),
    required<&DriverApi::driver_get_version>("cuDriverGetVersion", 2020),
    required<&DriverApi::get_error_name>("cuGetErrorName", 6000),
    required<&DriverApi::get_error_string>("cuGetErrorString", 6000),

    required<&DriverApi::device_get_count>("cuDeviceGetCount", 2000),
    required<&DriverApi::device_get>("cuDeviceGet", 2000),
    required<&DriverApi::device_get_name>("cuDeviceGetName", 2000),
    required<&DriverApi::device_get_pci_bus_id>("cuDeviceGetPCIBusId", 4010),
    required<&DriverApi::device_total_mem>("cuDeviceTotalMem", 3020),
    required<&DriverApi::device_get_attribute>("cuDeviceGetAttribute", 2000),

    required<&DriverApi::primary_ctx_get_state>("cuDevicePrimaryCtxGetState", 7000),
    required<&DriverApi::primary_ctx_retain>("cuDevicePrimaryCtxRetain", 7000),
    required<&DriverApi::primary_ctx_release>("cuDevicePrimaryCtxRelease", 11000),
    required<&DriverApi::ctx_get_current>("cuCtxGetCurrent", 4000),
    required<&DriverApi::ctx_set_current>("cuCtxSetCurrent", 4000),
    required<&DriverApi::ctx_push_current>("cuCtxPushCurrent", 4000),
    required<&DriverApi::ctx_pop_current>("cuCtxPopCurrent", 4000),
    required<&DriverApi::ctx_get_device>("cuCtxGetDevice", 2000),
    required<&DriverApi::ctx_synchronize>("cuCtxSynchronize", 2000),

    required<&DriverApi::module_load_data>("cuModuleLoadDataEx", 2010),
    required<&DriverApi::module_unload>("cuModuleUnload", 2000),
    required<&DriverApi::module_get_function>("cuModuleGetFunction", 2000),
    required<&DriverApi::module_get_global>("cuModuleGetGlobal", 3020),
    required<&DriverApi::func_get_attribute>("cuFuncGetAttribute", 2020),
    required<&DriverApi::func_set_attribute>("cuFuncSetAttribute", 9000),
    optional<&DriverApi::func_load>("cuFuncLoad", 12040),
    required<&DriverApi::launch_kernel>("cuLaunchKernel", 4000),
    optional<&DriverApi::launch_kernel_ex>("cuLaunchKernelEx", 11060),
    optional<&DriverApi::max_active_clusters>("cuOccupancyMaxActiveClusters", 11070),
    optional<&DriverApi::tensor_map_encode_tiled>("cuTensorMapEncodeTiled", 12000),

    required<&DriverApi::mem_alloc>("cuMemAlloc", 3020),
    required<&DriverApi::mem_free>("cuMemFree", 3020),
    required<&DriverApi::memcpy_htod>("cuMemcpyHtoD", 3020),
    required<&DriverApi::memcpy_htod_async>("cuMemcpyHtoDAsync", 3020),
    required<&DriverApi::memcpy_dtoh>("cuMemcpyDtoH", 3020),
    required<&DriverApi::memset_d8_async>("cuMemsetD8Async", 3020),

    required<&DriverApi::stream_create>("cuStreamCreate", 2000),
    required<&DriverApi::stream_destroy>("cuStreamDestroy", 4000),
    required<&DriverApi::stream_synchronize>("cuStreamSynchronize", 2000),
    required<&DriverApi::stream_is_capturing>("cuStreamIsCapturing", 10000),
    required<&DriverApi::thread_exchange_stream_capture_mode>("cuThreadExchangeStreamCaptureMode", 10010),
    optional<&DriverApi::stream_get_id>("cuStreamGetId", 12000),
    required<&DriverApi::stream_begin_capture>("cuStreamBeginCapture", 10010),
    required<&DriverApi::stream_end_capture>("cuStreamEndCapture", 10000),
    required<&DriverApi::graph_instantiate>("cuGraphInstantiateWithFlags", 11040),
    required<&DriverApi::graph_launch>("cuGraphLaunch", 10000),
    required<&DriverApi::graph_exec_destroy>("cuGraphExecDestroy", 10000),
    required<&DriverApi::graph_destroy>("cuGraphDestroy", 10000),

    required<&DriverApi::event_create>("cuEventCreate", 2000),
    required<&DriverApi::event_destroy>("cuEventDestroy", 4000),
    required<&DriverApi::event_record>("cuEventRecord", 2000),
    required<&DriverApi::event_synchronize>("cuEventSynchronize", 2000),
    required<&DriverApi::event_elapsed_time>("cuEventElapsedTime", 2000),
};

}  // namespace

std::span<const DriverSymbol> driver_symbols() { return kSymbols; }

}  // namespace sparsekiln::cuda

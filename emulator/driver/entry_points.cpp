#include "emulator/driver/entry_points.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include "emulator/driver/interface.h"
// After cuda.h as a driver sees it.
#include <cudaTypedefs.h>

namespace sparsekiln::driver {
namespace {

/// A row whose function has the very type that cudaTypedefs.h gives that version of the interface.
template <class Type>
EntryPoint entry(const char* name, int version, Type function) {
  return {name, version, reinterpret_cast<void*>(function)};
}

}  // namespace

std::span<const EntryPoint> entry_points() {
  static const EntryPoint kEntryPoints[] = {
      entry<PFN_cuCtxCreate_v3020>("cuCtxCreate", 3020, cuCtxCreate_v2),
#if CUDA_VERSION >= 12050
      entry<PFN_cuCtxCreate_v12050>("cuCtxCreate", 12050, cuCtxCreate_v4),
#endif
      entry<PFN_cuCtxDestroy_v4000>("cuCtxDestroy", 4000, cuCtxDestroy_v2),
      entry<PFN_cuCtxGetApiVersion_v3020>("cuCtxGetApiVersion", 3020, cuCtxGetApiVersion),
      entry<PFN_cuCtxGetCurrent_v4000>("cuCtxGetCurrent", 4000, cuCtxGetCurrent),
      entry<PFN_cuCtxGetDevice_v2000>("cuCtxGetDevice", 2000, cuCtxGetDevice),
      entry<PFN_cuCtxGetFlags_v7000>("cuCtxGetFlags", 7000, cuCtxGetFlags),
      entry<PFN_cuCtxGetId_v12000>("cuCtxGetId", 12000, cuCtxGetId),
      entry<PFN_cuCtxGetLimit_v3010>("cuCtxGetLimit", 3010, cuCtxGetLimit),
      entry<PFN_cuCtxGetStreamPriorityRange_v5050>("cuCtxGetStreamPriorityRange", 5050,
                                                   cuCtxGetStreamPriorityRange),
      entry<PFN_cuCtxPopCurrent_v4000>("cuCtxPopCurrent", 4000, cuCtxPopCurrent_v2),
      entry<PFN_cuCtxPushCurrent_v4000>("cuCtxPushCurrent", 4000, cuCtxPushCurrent_v2),
      entry<PFN_cuCtxSetCurrent_v4000>("cuCtxSetCurrent", 4000, cuCtxSetCurrent),
      entry<PFN_cuCtxSetLimit_v3010>("cuCtxSetLimit", 3010, cuCtxSetLimit),
      entry<PFN_cuCtxSynchronize_v2000>("cuCtxSynchronize", 2000, cuCtxSynchronize),
      entry<PFN_cuDeviceCanAccessPeer_v4000>("cuDeviceCanAccessPeer", 4000, cuDeviceCanAccessPeer),
      entry<PFN_cuDeviceGet_v2000>("cuDeviceGet", 2000, cuDeviceGet),
      entry<PFN_cuDeviceGetAttribute_v2000>("cuDeviceGetAttribute", 2000, cuDeviceGetAttribute),
      entry<PFN_cuDeviceGetByPCIBusId_v4010>("cuDeviceGetByPCIBusId", 4010, cuDeviceGetByPCIBusId),
      entry<PFN_cuDeviceGetCount_v2000>("cuDeviceGetCount", 2000, cuDeviceGetCount),
      entry<PFN_cuDeviceGetName_v2000>("cuDeviceGetName", 2000, cuDeviceGetName),
      entry<PFN_cuDeviceGetPCIBusId_v4010>("cuDeviceGetPCIBusId", 4010, cuDeviceGetPCIBusId),
      entry<PFN_cuDeviceGetUuid_v9020>("cuDeviceGetUuid", 9020, cuDeviceGetUuid),
      entry<PFN_cuDeviceGetUuid_v11040>("cuDeviceGetUuid", 11040, cuDeviceGetUuid_v2),
      entry<PFN_cuDevicePrimaryCtxGetState_v7000>("cuDevicePrimaryCtxGetState", 7000,
                                                  cuDevicePrimaryCtxGetState),
      entry<PFN_cuDevicePrimaryCtxRelease_v11000>("cuDevicePrimaryCtxRelease", 11000,
                                                  cuDevicePrimaryCtxRelease_v2),
      entry<PFN_cuDevicePrimaryCtxReset_v11000>("cuDevicePrimaryCtxReset", 11000, cuDevicePrimaryCtxReset_v2),
      entry<PFN_cuDevicePrimaryCtxRetain_v7000>("cuDevicePrimaryCtxRetain", 7000, cuDevicePrimaryCtxRetain),
      entry<PFN_cuDevicePrimaryCtxSetFlags_v11000>("cuDevicePrimaryCtxSetFlags", 11000,
                                                   cuDevicePrimaryCtxSetFlags_v2),
      entry<PFN_cuDeviceTotalMem_v3020>("cuDeviceTotalMem", 3020, cuDeviceTotalMem_v2),
      entry<PFN_cuDriverGetVersion_v2020>("cuDriverGetVersion", 2020, cuDriverGetVersion),
      entry<PFN_cuEventCreate_v2000>("cuEventCreate", 2000, cuEventCreate),
      entry<PFN_cuEventDestroy_v4000>("cuEventDestroy", 4000, cuEventDestroy_v2),
      entry<PFN_cuEventElapsedTime_v2000>("cuEventElapsedTime", 2000, cuEventElapsedTime),
#if CUDA_VERSION >= 12080
      entry<PFN_cuEventElapsedTime_v12080>("cuEventElapsedTime", 12080, cuEventElapsedTime_v2),
#endif
      entry<PFN_cuEventQuery_v2000>("cuEventQuery", 2000, cuEventQuery),
      entry<PFN_cuEventRecord_v2000>("cuEventRecord", 2000, cuEventRecord),
      entry<PFN_cuEventSynchronize_v2000>("cuEventSynchronize", 2000, cuEventSynchronize),
      entry<PFN_cuFuncGetAttribute_v2020>("cuFuncGetAttribute", 2020, cuFuncGetAttribute),
      entry<PFN_cuFuncGetModule_v11000>("cuFuncGetModule", 11000, cuFuncGetModule),
#if CUDA_VERSION >= 12040
      entry<PFN_cuFuncGetName_v12030>("cuFuncGetName", 12030, cuFuncGetName),
      entry<PFN_cuFuncGetParamInfo_v12040>("cuFuncGetParamInfo", 12040, cuFuncGetParamInfo),
      entry<PFN_cuFuncIsLoaded_v12040>("cuFuncIsLoaded", 12040, cuFuncIsLoaded),
      entry<PFN_cuFuncLoad_v12040>("cuFuncLoad", 12040, cuFuncLoad),
#endif
      entry<PFN_cuFuncSetAttribute_v9000>("cuFuncSetAttribute", 9000, cuFuncSetAttribute),
      entry<PFN_cuFuncSetCacheConfig_v3000>("cuFuncSetCacheConfig", 3000, cuFuncSetCacheConfig),
      entry<PFN_cuGetErrorName_v6000>("cuGetErrorName", 6000, cuGetErrorName),
      entry<PFN_cuGetErrorString_v6000>("cuGetErrorString", 6000, cuGetErrorString),
      entry<PFN_cuGetProcAddress_v11030>("cuGetProcAddress", 11030, cuGetProcAddress),
      entry<PFN_cuGetProcAddress_v12000>("cuGetProcAddress", 12000, cuGetProcAddress_v2),
      entry<PFN_cuGraphDestroy_v10000>("cuGraphDestroy", 10000, cuGraphDestroy),
      entry<PFN_cuGraphExecDestroy_v10000>("cuGraphExecDestroy", 10000, cuGraphExecDestroy),
      entry<PFN_cuGraphInstantiateWithFlags_v11040>("cuGraphInstantiateWithFlags", 11040,
                                                    cuGraphInstantiateWithFlags),
      entry<PFN_cuGraphLaunch_v10000>("cuGraphLaunch", 10000, cuGraphLaunch),
      entry<PFN_cuGraphUpload_v11010>("cuGraphUpload", 11010, cuGraphUpload),
      entry<PFN_cuInit_v2000>("cuInit", 2000, cuInit),
      entry<PFN_cuKernelGetFunction_v12000>("cuKernelGetFunction", 12000, cuKernelGetFunction),
      entry<PFN_cuLaunchHostFunc_v10000>("cuLaunchHostFunc", 10000, cuLaunchHostFunc),
      entry<PFN_cuLaunchKernel_v4000>("cuLaunchKernel", 4000, cuLaunchKernel),
      entry<PFN_cuLaunchKernelEx_v11060>("cuLaunchKernelEx", 11060, cuLaunchKernelEx),
      entry<PFN_cuLibraryGetKernel_v12000>("cuLibraryGetKernel", 12000, cuLibraryGetKernel),
      entry<PFN_cuLibraryGetModule_v12000>("cuLibraryGetModule", 12000, cuLibraryGetModule),
      entry<PFN_cuLibraryLoadData_v12000>("cuLibraryLoadData", 12000, cuLibraryLoadData),
      entry<PFN_cuLibraryUnload_v12000>("cuLibraryUnload", 12000, cuLibraryUnload),
      entry<PFN_cuMemAlloc_v3020>("cuMemAlloc", 3020, cuMemAlloc_v2),
      entry<PFN_cuMemAllocHost_v3020>("cuMemAllocHost", 3020, cuMemAllocHost_v2),
      entry<PFN_cuMemFree_v3020>("cuMemFree", 3020, cuMemFree_v2),
      entry<PFN_cuMemFreeHost_v2000>("cuMemFreeHost", 2000, cuMemFreeHost),
      entry<PFN_cuMemGetAddressRange_v3020>("cuMemGetAddressRange", 3020, cuMemGetAddressRange_v2),
      entry<PFN_cuMemGetInfo_v3020>("cuMemGetInfo", 3020, cuMemGetInfo_v2),
      entry<PFN_cuMemHostAlloc_v2020>("cuMemHostAlloc", 2020, cuMemHostAlloc),
      entry<PFN_cuMemHostGetFlags_v2030>("cuMemHostGetFlags", 2030, cuMemHostGetFlags),
      entry<PFN_cuMemHostRegister_v6050>("cuMemHostRegister", 6050, cuMemHostRegister_v2),
      entry<PFN_cuMemHostUnregister_v4000>("cuMemHostUnregister", 4000, cuMemHostUnregister),
      entry<PFN_cuMemcpy_v4000>("cuMemcpy", 4000, cuMemcpy),
      entry<PFN_cuMemcpyAsync_v4000>("cuMemcpyAsync", 4000, cuMemcpyAsync),
      entry<PFN_cuMemcpyDtoD_v3020>("cuMemcpyDtoD", 3020, cuMemcpyDtoD_v2),
      entry<PFN_cuMemcpyDtoDAsync_v3020>("cuMemcpyDtoDAsync", 3020, cuMemcpyDtoDAsync_v2),
      entry<PFN_cuMemcpyDtoH_v3020>("cuMemcpyDtoH", 3020, cuMemcpyDtoH_v2),
      entry<PFN_cuMemcpyDtoHAsync_v3020>("cuMemcpyDtoHAsync", 3020, cuMemcpyDtoHAsync_v2),
      entry<PFN_cuMemcpyHtoD_v3020>("cuMemcpyHtoD", 3020, cuMemcpyHtoD_v2),
      entry<PFN_cuMemcpyHtoDAsync_v3020>("cuMemcpyHtoDAsync", 3020, cuMemcpyHtoDAsync_v2),
      entry<PFN_cuMemsetD16_v3020>("cuMemsetD16", 3020, cuMemsetD16_v2),
      entry<PFN_cuMemsetD16Async_v3020>("cuMemsetD16Async", 3020, cuMemsetD16Async),
      entry<PFN_cuMemsetD32_v3020>("cuMemsetD32", 3020, cuMemsetD32_v2),
      entry<PFN_cuMemsetD32Async_v3020>("cuMemsetD32Async", 3020, cuMemsetD32Async),
      entry<PFN_cuMemsetD8_v3020>("cuMemsetD8", 3020, cuMemsetD8_v2),
      entry<PFN_cuMemsetD8Async_v3020>("cuMemsetD8Async", 3020, cuMemsetD8Async),
      entry<PFN_cuModuleGetFunction_v2000>("cuModuleGetFunction", 2000, cuModuleGetFunction),
      entry<PFN_cuModuleGetGlobal_v3020>("cuModuleGetGlobal", 3020, cuModuleGetGlobal_v2),
      entry<PFN_cuModuleGetLoadingMode_v11070>("cuModuleGetLoadingMode", 11070, cuModuleGetLoadingMode),
      entry<PFN_cuModuleLoad_v2000>("cuModuleLoad", 2000, cuModuleLoad),
      entry<PFN_cuModuleLoadData_v2000>("cuModuleLoadData", 2000, cuModuleLoadData),
      entry<PFN_cuModuleLoadDataEx_v2010>("cuModuleLoadDataEx", 2010, cuModuleLoadDataEx),
      entry<PFN_cuModuleUnload_v2000>("cuModuleUnload", 2000, cuModuleUnload),
      entry<PFN_cuOccupancyMaxActiveBlocksPerMultiprocessor_v6050>(
          "cuOccupancyMaxActiveBlocksPerMultiprocessor", 6050, cuOccupancyMaxActiveBlocksPerMultiprocessor),
      entry<PFN_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_v7000>(
          "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", 7000,
          cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags),
      entry<PFN_cuOccupancyMaxActiveClusters_v11070>("cuOccupancyMaxActiveClusters", 11070,
                                                     cuOccupancyMaxActiveClusters),
      entry<PFN_cuPointerGetAttribute_v4000>("cuPointerGetAttribute", 4000, cuPointerGetAttribute),
      entry<PFN_cuPointerGetAttributes_v7000>("cuPointerGetAttributes", 7000, cuPointerGetAttributes),
      entry<PFN_cuStreamBeginCapture_v10010>("cuStreamBeginCapture", 10010, cuStreamBeginCapture_v2),
      entry<PFN_cuStreamCreate_v2000>("cuStreamCreate", 2000, cuStreamCreate),
      entry<PFN_cuStreamCreateWithPriority_v5050>("cuStreamCreateWithPriority", 5050,
                                                  cuStreamCreateWithPriority),
      entry<PFN_cuStreamDestroy_v4000>("cuStreamDestroy", 4000, cuStreamDestroy_v2),
      entry<PFN_cuStreamEndCapture_v10000>("cuStreamEndCapture", 10000, cuStreamEndCapture),
      entry<PFN_cuStreamGetCtx_v9020>("cuStreamGetCtx", 9020, cuStreamGetCtx),
      entry<PFN_cuStreamGetFlags_v5050>("cuStreamGetFlags", 5050, cuStreamGetFlags),
      entry<PFN_cuStreamGetId_v12000>("cuStreamGetId", 12000, cuStreamGetId),
      entry<PFN_cuStreamGetPriority_v5050>("cuStreamGetPriority", 5050, cuStreamGetPriority),
      entry<PFN_cuStreamIsCapturing_v10000>("cuStreamIsCapturing", 10000, cuStreamIsCapturing),
      entry<PFN_cuStreamQuery_v2000>("cuStreamQuery", 2000, cuStreamQuery),
      entry<PFN_cuStreamSynchronize_v2000>("cuStreamSynchronize", 2000, cuStreamSynchronize),
      entry<PFN_cuStreamWaitEvent_v3020>("cuStreamWaitEvent", 3020, cuStreamWaitEvent),
      entry<PFN_cuTensorMapEncodeIm2col_v12000>("cuTensorMapEncodeIm2col", 12000, cuTensorMapEncodeIm2col),
      entry<PFN_cuTensorMapEncodeTiled_v12000>("cuTensorMapEncodeTiled", 12000, cuTensorMapEncodeTiled),
      entry<PFN_cuTensorMapReplaceAddress_v12000>("cuTensorMapReplaceAddress", 12000,
                                                  cuTensorMapReplaceAddress),
      entry<PFN_cuThreadExchangeStreamCaptureMode_v10010>("cuThreadExchangeStreamCaptureMode", 10010,
                                                          cuThreadExchangeStreamCaptureMode),
      entry<decltype(&emulatorChecks)>("emulatorChecks", 1000, emulatorChecks),
      entry<decltype(&emulatorCounters)>("emulatorCounters", 1000, emulatorCounters),
      entry<decltype(&emulatorFailCall)>("emulatorFailCall", 1000, emulatorFailCall),
      entry<decltype(&emulatorHeld)>("emulatorHeld", 1000, emulatorHeld),
      entry<decltype(&emulatorLastReport)>("emulatorLastReport", 1000, emulatorLastReport),
      entry<decltype(&emulatorResetCounters)>("emulatorResetCounters", 1000, emulatorResetCounters),
      entry<decltype(&emulatorSeed)>("emulatorSeed", 1000, emulatorSeed),
      entry<decltype(&emulatorSetChecks)>("emulatorSetChecks", 1000, emulatorSetChecks),
      entry<decltype(&emulatorSetSeed)>("emulatorSetSeed", 1000, emulatorSetSeed),
      entry<decltype(&emulatorSetThreads)>("emulatorSetThreads", 1000, emulatorSetThreads),
  };
  return kEntryPoints;
}

}  // namespace sparsekiln::driver

using sparsekiln::driver::entry_points;
using sparsekiln::driver::EntryPoint;

namespace {

constexpr cuuint64_t kFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

/// The newest interface that is not newer than `version`. Default streams are passed on as the caller names
/// them, so both sorts of callers get the same functions.
CUresult find(const char* symbol, void** function, int version, cuuint64_t flags,
              CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || function == nullptr || (flags & ~kFlags) != 0 || flags == kFlags)
    return CUDA_ERROR_INVALID_VALUE;
  *function = nullptr;
  bool known = false;
  for (const EntryPoint& entry : entry_points()) {
    if (std::string_view(entry.name) != symbol) continue;
    known = true;
    if (entry.version <= version) *function = entry.address;
  }
  if (status != nullptr)
    *status = *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : known              ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                   : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  return find(symbol, function, version, flags, nullptr);
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  return find(symbol, function, version, flags, status);
}

#include "emulator/driver/entry_points.h"

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
/// Their names are made of the function's and its version.
#define ENTRY(name, version, function) entry<PFN_##name##_v##version>(#name, version, function)

}  // namespace

std::span<const EntryPoint> entry_points() {
  static const EntryPoint kEntryPoints[] = {
      ENTRY(cuCtxCreate, 3020, cuCtxCreate_v2),
#if CUDA_VERSION >= 12050
      ENTRY(cuCtxCreate, 12050, cuCtxCreate_v4),
#endif
      ENTRY(cuCtxDestroy, 4000, cuCtxDestroy_v2),
      ENTRY(cuCtxGetApiVersion, 3020, cuCtxGetApiVersion),
      ENTRY(cuCtxGetCurrent, 4000, cuCtxGetCurrent),
      ENTRY(cuCtxGetDevice, 2000, cuCtxGetDevice),
      ENTRY(cuCtxGetFlags, 7000, cuCtxGetFlags),
      ENTRY(cuCtxGetId, 12000, cuCtxGetId),
      ENTRY(cuCtxGetLimit, 3010, cuCtxGetLimit),
      ENTRY(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange),
      ENTRY(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2),
      ENTRY(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2),
      ENTRY(cuCtxSetCurrent, 4000, cuCtxSetCurrent),
      ENTRY(cuCtxSetLimit, 3010, cuCtxSetLimit),
      ENTRY(cuCtxSynchronize, 2000, cuCtxSynchronize),
      ENTRY(cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer),
      ENTRY(cuDeviceGet, 2000, cuDeviceGet),
      ENTRY(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute),
      ENTRY(cuDeviceGetByPCIBusId, 4010, cuDeviceGetByPCIBusId),
      ENTRY(cuDeviceGetCount, 2000, cuDeviceGetCount),
      ENTRY(cuDeviceGetName, 2000, cuDeviceGetName),
      ENTRY(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId),
      ENTRY(cuDeviceGetUuid, 9020, cuDeviceGetUuid),
      ENTRY(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2),
      ENTRY(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState),
      ENTRY(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2),
      ENTRY(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2),
      ENTRY(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain),
      ENTRY(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2),
      ENTRY(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2),
      ENTRY(cuDriverGetVersion, 2020, cuDriverGetVersion),
      ENTRY(cuEventCreate, 2000, cuEventCreate),
      ENTRY(cuEventDestroy, 4000, cuEventDestroy_v2),
      ENTRY(cuEventElapsedTime, 2000, cuEventElapsedTime),
#if CUDA_VERSION >= 12080
      ENTRY(cuEventElapsedTime, 12080, cuEventElapsedTime_v2),
#endif
      ENTRY(cuEventQuery, 2000, cuEventQuery),
      ENTRY(cuEventRecord, 2000, cuEventRecord),
      ENTRY(cuEventSynchronize, 2000, cuEventSynchronize),
      ENTRY(cuFuncGetAttribute, 2020, cuFuncGetAttribute),
      ENTRY(cuFuncGetModule, 11000, cuFuncGetModule),
#if CUDA_VERSION >= 12040
      ENTRY(cuFuncGetName, 12030, cuFuncGetName),
      ENTRY(cuFuncGetParamInfo, 12040, cuFuncGetParamInfo),
      ENTRY(cuFuncIsLoaded, 12040, cuFuncIsLoaded),
      ENTRY(cuFuncLoad, 12040, cuFuncLoad),
#endif
      ENTRY(cuFuncSetAttribute, 9000, cuFuncSetAttribute),
      ENTRY(cuFuncSetCacheConfig, 3000, cuFuncSetCacheConfig),
      ENTRY(cuGetErrorName, 6000, cuGetErrorName),
      ENTRY(cuGetErrorString, 6000, cuGetErrorString),
      ENTRY(cuGetProcAddress, 11030, cuGetProcAddress),
      ENTRY(cuGetProcAddress, 12000, cuGetProcAddress_v2),
      ENTRY(cuGraphDestroy, 10000, cuGraphDestroy),
      ENTRY(cuGraphExecDestroy, 10000, cuGraphExecDestroy),
      ENTRY(cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags),
      ENTRY(cuGraphLaunch, 10000, cuGraphLaunch),
      ENTRY(cuGraphUpload, 11010, cuGraphUpload),
      ENTRY(cuInit, 2000, cuInit),
      ENTRY(cuKernelGetFunction, 12000, cuKernelGetFunction),
      ENTRY(cuLaunchHostFunc, 10000, cuLaunchHostFunc),
      ENTRY(cuLaunchKernel, 4000, cuLaunchKernel),
      ENTRY(cuLaunchKernelEx, 11060, cuLaunchKernelEx),
      ENTRY(cuLibraryGetKernel, 12000, cuLibraryGetKernel),
      ENTRY(cuLibraryGetModule, 12000, cuLibraryGetModule),
      ENTRY(cuLibraryLoadData, 12000, cuLibraryLoadData),
      ENTRY(cuLibraryUnload, 12000, cuLibraryUnload),
      ENTRY(cuMemAlloc, 3020, cuMemAlloc_v2),
      ENTRY(cuMemAllocHost, 3020, cuMemAllocHost_v2),
      ENTRY(cuMemFree, 3020, cuMemFree_v2),
      ENTRY(cuMemFreeHost, 2000, cuMemFreeHost),
      ENTRY(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2),
      ENTRY(cuMemGetInfo, 3020, cuMemGetInfo_v2),
      ENTRY(cuMemHostAlloc, 2020, cuMemHostAlloc),
      ENTRY(cuMemHostGetFlags, 2030, cuMemHostGetFlags),
      ENTRY(cuMemHostRegister, 6050, cuMemHostRegister_v2),
      ENTRY(cuMemHostUnregister, 4000, cuMemHostUnregister),
      ENTRY(cuMemcpy, 4000, cuMemcpy),
      ENTRY(cuMemcpyAsync, 4000, cuMemcpyAsync),
      ENTRY(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2),
      ENTRY(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2),
      ENTRY(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2),
      ENTRY(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2),
      ENTRY(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2),
      ENTRY(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2),
      ENTRY(cuMemsetD16, 3020, cuMemsetD16_v2),
      ENTRY(cuMemsetD16Async, 3020, cuMemsetD16Async),
      ENTRY(cuMemsetD32, 3020, cuMemsetD32_v2),
      ENTRY(cuMemsetD32Async, 3020, cuMemsetD32Async),
      ENTRY(cuMemsetD8, 3020, cuMemsetD8_v2),
      ENTRY(cuMemsetD8Async, 3020, cuMemsetD8Async),
      ENTRY(cuModuleGetFunction, 2000, cuModuleGetFunction),
      ENTRY(cuModuleGetGlobal, 3020, cuModuleGetGlobal_v2),
      ENTRY(cuModuleGetLoadingMode, 11070, cuModuleGetLoadingMode),
      ENTRY(cuModuleLoad, 2000, cuModuleLoad),
      ENTRY(cuModuleLoadData, 2000, cuModuleLoadData),
      ENTRY(cuModuleLoadDataEx, 2010, cuModuleLoadDataEx),
      ENTRY(cuModuleUnload, 2000, cuModuleUnload),
      ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, cuOccupancyMaxActiveBlocksPerMultiprocessor),
      ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000,
            cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags),
      ENTRY(cuOccupancyMaxActiveClusters, 11070, cuOccupancyMaxActiveClusters),
      ENTRY(cuPointerGetAttribute, 4000, cuPointerGetAttribute),
      ENTRY(cuPointerGetAttributes, 7000, cuPointerGetAttributes),
      ENTRY(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2),
      ENTRY(cuStreamCreate, 2000, cuStreamCreate),
      ENTRY(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority),
      ENTRY(cuStreamDestroy, 4000, cuStreamDestroy_v2),
      ENTRY(cuStreamEndCapture, 10000, cuStreamEndCapture),
      ENTRY(cuStreamGetCtx, 9020, cuStreamGetCtx),
      ENTRY(cuStreamGetFlags, 5050, cuStreamGetFlags),
      ENTRY(cuStreamGetId, 12000, cuStreamGetId),
      ENTRY(cuStreamGetPriority, 5050, cuStreamGetPriority),
      ENTRY(cuStreamIsCapturing, 10000, cuStreamIsCapturing),
      ENTRY(cuStreamQuery, 2000, cuStreamQuery),
      ENTRY(cuStreamSynchronize, 2000, cuStreamSynchronize),
      ENTRY(cuStreamWaitEvent, 3020, cuStreamWaitEvent),
      ENTRY(cuTensorMapEncodeIm2col, 12000, cuTensorMapEncodeIm2col),
      ENTRY(cuTensorMapEncodeTiled, 12000, cuTensorMapEncodeTiled),
      ENTRY(cuTensorMapReplaceAddress, 12000, cuTensorMapReplaceAddress),
      ENTRY(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode),
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

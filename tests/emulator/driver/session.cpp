#include "tests/emulator/driver/session.h"

#include <doctest/doctest.h>

Session::Session(int ordinal) : device_(ordinal) {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  REQUIRE(cuDevicePrimaryCtxRetain(&context_, device_) == CUDA_SUCCESS);
  REQUIRE(cuCtxSetCurrent(context_) == CUDA_SUCCESS);
}

Session::~Session() {
  for (int kind = 0; kind < EMULATOR_FAULT_KINDS; ++kind) emulatorFailCall(kind, 0, CUDA_SUCCESS);
  cuDevicePrimaryCtxReset(device_);
  cuDevicePrimaryCtxRelease(device_);
  CUcontext popped = nullptr;
  while (cuCtxPopCurrent(&popped) == CUDA_SUCCESS) {
  }
}

const std::string& test_ptx() {
  static const std::string text = R"(
// A comment, as NVRTC begins its PTX with.
.version 7.8
.target sm_75
.address_size 64

.const .align 4 .u32 table[4] = {1, 2, 3, 4};
.global .align 8 .b8 zeros[32];

.visible .entry add_one(.param .u64 p, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r2, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r2, %r1;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd1, %rd1;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r5, [%rd3];
  add.s32 %r5, %r5, 1;
  st.global.u32 [%rd3], %r5;
DONE:
  mov.u32 %r1, 0;
  ret;
}

.visible .entry nothing() { ret; }
.visible .entry bounded() .maxntid 64, 1, 1 { ret; }
.visible .entry exactly() .reqntid 32, 2, 1 { ret; }
.visible .entry hungry()
{
  .shared .align 4 .b8 much[40960];
  ret;
}
)";
  return text;
}

CUmodule load_test_ptx() {
  CUmodule module = nullptr;
  char log[1024] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  const CUresult result = cuModuleLoadDataEx(&module, test_ptx().c_str(), 2, options, values);
  REQUIRE_MESSAGE(result == CUDA_SUCCESS, std::string(log));
  return module;
}

CUfunction kernel(CUmodule module, const char* name) {
  CUfunction function = nullptr;
  REQUIRE(cuModuleGetFunction(&function, module, name) == CUDA_SUCCESS);
  return function;
}

CUdeviceptr upload(const std::vector<std::uint32_t>& values) {
  CUdeviceptr memory = 0;
  REQUIRE(cuMemAlloc(&memory, values.size() * 4) == CUDA_SUCCESS);
  REQUIRE(cuMemcpyHtoD(memory, values.data(), values.size() * 4) == CUDA_SUCCESS);
  return memory;
}

std::vector<std::uint32_t> download(CUdeviceptr memory, std::size_t count) {
  std::vector<std::uint32_t> values(count);
  REQUIRE(cuMemcpyDtoH(values.data(), memory, count * 4) == CUDA_SUCCESS);
  return values;
}

CUresult launch_add_one(CUfunction add_one, CUdeviceptr memory, std::uint32_t n, CUstream stream) {
  void* parameters[] = {&memory, &n};
  return cuLaunchKernel(add_one, (n + 31) / 32, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
}

CUgraphExec end_capture(CUstream stream) {
  CUgraph graph = nullptr;
  REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  CUgraphExec executable = nullptr;
  REQUIRE(cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS);
  REQUIRE(cuGraphDestroy(graph) == CUDA_SUCCESS);
  return executable;
}

CUresult launch_plain(CUfunction function, unsigned threads, unsigned dynamic_shared) {
  return cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, dynamic_shared, nullptr, nullptr, nullptr);
}

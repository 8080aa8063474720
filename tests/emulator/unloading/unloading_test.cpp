#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>

#include "tests/emulator/driver/session.h"

// AddressSanitizer watches this program: what is freed too early is its to say.

namespace {

using Words = std::vector<std::uint32_t>;

constexpr int kRounds = 100;

/// A kernel `counts`, which adds one to its module's variable.
const std::string& counting_ptx() {
  static const std::string text = R"(.version 7.8
.target sm_75
.address_size 64
.global .align 4 .u32 counter;
.visible .entry counts()
{
  .reg .b32 %r<2>;
  ld.global.u32 %r1, [counter];
  add.u32 %r1, %r1, 1;
  st.global.u32 [counter], %r1;
  ret;
}
)";
  return text;
}

CUmodule load_counting() {
  CUmodule module = nullptr;
  REQUIRE(cuModuleLoadData(&module, counting_ptx().c_str()) == CUDA_SUCCESS);
  return module;
}

/// A kernel `spreads` of two arrays, which adds one to every second element of each. Lanes of a warp that
/// meet two allocations make it look for them among all again and again.
CUfunction load_spreading() {
  const std::string text = R"(.version 7.8
.target sm_75
.address_size 64
.visible .entry spreads(.param .u64 p, .param .u64 q)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [p];
  ld.param.u64 %rd2, [q];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r1, %r1, 32, %r2;
  and.b32 %r3, %r1, 1;
  setp.eq.u32 %p1, %r3, 0;
  selp.b64 %rd3, %rd1, %rd2, %p1;
  mul.wide.u32 %rd4, %r1, 4;
  add.s64 %rd3, %rd3, %rd4;
  ld.global.u32 %r4, [%rd3];
  add.u32 %r4, %r4, 1;
  st.global.u32 [%rd3], %r4;
  ret;
}
)";
  CUmodule module = nullptr;
  REQUIRE(cuModuleLoadData(&module, text.c_str()) == CUDA_SUCCESS);
  return kernel(module, "spreads");
}

/// A graph of what `record` queues in its stream.
template <class Record>
CUgraphExec graph_of(CUstream stream, Record record) {
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  record();
  REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  REQUIRE(cuGraphInstantiate(&executable, graph, 0) == CUDA_SUCCESS);
  REQUIRE(cuGraphDestroy(graph) == CUDA_SUCCESS);
  return executable;
}

CUstream make_stream() {
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  return stream;
}

}  // namespace

TEST_CASE("modules come and go while another thread launches from its own") {
  const Session session;
  const CUfunction spreads = load_spreading();
  constexpr unsigned kBlocks = 32;
  CUdeviceptr even = upload(Words(32 * kBlocks, 0));
  CUdeviceptr odd = upload(Words(32 * kBlocks, 0));
  std::atomic<bool> over = false;
  std::atomic<std::uint32_t> launched = 0;
  int failed = 0;
  std::thread other([&] {
    failed += cuCtxSetCurrent(session.context()) != CUDA_SUCCESS ? 1 : 0;
    void* parameters[] = {&even, &odd};
    while (!over || launched == 0) {
      failed +=
          cuLaunchKernel(spreads, kBlocks, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr) != CUDA_SUCCESS;
      ++launched;
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    const CUmodule module = load_counting();
    CHECK(launch_plain(kernel(module, "counts")) == CUDA_SUCCESS);
    // The other thread is in a launch that began when the module was there.
    for (const std::uint32_t before = launched; launched < before + 2;) std::this_thread::yield();
    CHECK(cuModuleUnload(module) == CUDA_SUCCESS);
  }
  over = true;
  other.join();
  CHECK(failed == 0);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(download(even, 1) == Words{launched});
  CHECK(download(odd, 2) == Words{0, launched});
}

TEST_CASE(
    "a module is unloaded while another thread launches from it: each launch runs or finds no function") {
  const Session session;
  const CUdeviceptr memory = upload(Words(64, 0));
  std::uint32_t launched = 0;
  int unexpected = 0;
  for (int round = 0; round < kRounds; ++round) {
    const CUmodule module = load_test_ptx();
    const CUfunction add_one = kernel(module, "add_one");
    std::atomic<bool> begun = false;
    std::thread other([&] {
      unexpected += cuCtxSetCurrent(session.context()) != CUDA_SUCCESS ? 1 : 0;
      CUresult result = CUDA_SUCCESS;
      while (result == CUDA_SUCCESS) {
        begun = true;
        result = launch_add_one(add_one, memory, 64);
        launched += result == CUDA_SUCCESS ? 1 : 0;
      }
      unexpected += result != CUDA_ERROR_INVALID_HANDLE ? 1 : 0;
    });
    while (!begun) std::this_thread::yield();
    CHECK(cuModuleUnload(module) == CUDA_SUCCESS);
    other.join();
  }
  CHECK(unexpected == 0);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(download(memory, 64) == Words(64, launched));
}

TEST_CASE("a kernel that is queued in a graph outlives its module") {
  const Session session;
  const CUdeviceptr memory = upload({1, 2});
  const CUstream stream = make_stream();
  const CUmodule module = load_test_ptx();
  const CUfunction add_one = kernel(module, "add_one");
  const CUgraphExec graph =
      graph_of(stream, [&] { CHECK(launch_add_one(add_one, memory, 2, stream) == CUDA_SUCCESS); });
  REQUIRE(cuModuleUnload(module) == CUDA_SUCCESS);
  CHECK(cuGraphLaunch(graph, stream) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(download(memory, 2) == Words{2, 3});
}

TEST_CASE("a kernel that outlives its module finds the module's variables gone") {
  const Session session;
  const CUstream stream = make_stream();
  const CUmodule module = load_counting();
  const CUfunction counts = kernel(module, "counts");
  const CUgraphExec graph = graph_of(stream, [&] {
    CHECK(cuLaunchKernel(counts, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr) == CUDA_SUCCESS);
  });
  REQUIRE(cuGraphLaunch(graph, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  REQUIRE(cuModuleUnload(module) == CUDA_SUCCESS);
  CHECK(cuGraphLaunch(graph, stream) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(std::string(emulatorLastReport()).find("kernel counts") != std::string::npos);
}

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulator/driver/session.h"

namespace {

using Words = std::vector<std::uint32_t>;

CUresult launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                unsigned bz) {
  return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, 0, nullptr, nullptr, nullptr);
}

/// Bytes that add_one reads beyond its memory.
constexpr std::uint32_t kTooMany = 64;

}  // namespace

TEST_CASE("a kernel does its work, and has done it when the launch returns") {
  const Session session;
  const CUfunction add_one = kernel(load_test_ptx(), "add_one");
  Words values(100);
  for (std::uint32_t i = 0; i < 100; ++i) values[i] = 3 * i;
  const CUdeviceptr memory = upload(values);
  REQUIRE(launch_add_one(add_one, memory, 99) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  for (std::uint32_t i = 0; i < 99; ++i) ++values[i];
  CHECK(download(memory, 100) == values);
}

TEST_CASE("parameters may come in one buffer, which must be large enough") {
  const Session session;
  const CUfunction add_one = kernel(load_test_ptx(), "add_one");
  const CUdeviceptr memory = upload({1});
  struct {
    CUdeviceptr memory;
    std::uint32_t n;
  } buffer = {memory, 1};
  std::size_t bytes = 12;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  const auto start = [&](void** each, void** whole) {
    return cuLaunchKernel(add_one, 1, 1, 1, 32, 1, 1, 0, nullptr, each, whole);
  };
  CHECK(start(nullptr, extra) == CUDA_SUCCESS);
  CHECK(download(memory, 1) == Words{2});
  bytes = 11;
  CHECK(start(nullptr, extra) == CUDA_ERROR_INVALID_VALUE);
  bytes = 12;
  extra[0] = reinterpret_cast<void*>(0x77);
  CHECK(start(nullptr, extra) == CUDA_ERROR_INVALID_VALUE);
  extra[0] = CU_LAUNCH_PARAM_END;
  CHECK(start(nullptr, extra) == CUDA_ERROR_INVALID_VALUE);
  void* each[] = {&buffer.memory, nullptr};
  CHECK(start(each, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(start(nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  each[1] = &buffer.n;
  extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
  CHECK(start(each, extra) == CUDA_ERROR_INVALID_VALUE);
  CHECK(download(memory, 1) == Words{2});
}

TEST_CASE("a launch beyond the limits of a device or of the kernel is refused and leaves the context whole") {
  const Session session;
  const CUmodule module = load_test_ptx();
  const CUfunction nothing = kernel(module, "nothing");
  CHECK(launch(nothing, 1, 1, 1, 1024, 1, 1) == CUDA_SUCCESS);
  CHECK(launch(nothing, 0, 1, 1, 32, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(nothing, 1, 1, 1, 0, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(nothing, 0x80000000u, 1, 1, 32, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(nothing, 1, 65536, 1, 32, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(nothing, 1, 1, 65536, 32, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(nothing, 1, 1, 1, 1025, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(nothing, 1, 1, 1, 1, 1, 65) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(nothing, 1, 1, 1, 32, 33, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(kernel(module, "bounded"), 1, 1, 1, 64, 1, 1) == CUDA_SUCCESS);
  CHECK(launch(kernel(module, "bounded"), 1, 1, 1, 65, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(kernel(module, "exactly"), 1, 1, 1, 32, 2, 1) == CUDA_SUCCESS);
  CHECK(launch(kernel(module, "exactly"), 1, 1, 1, 64, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(nullptr, 1, 1, 1, 1, 1, 1) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, reinterpret_cast<CUstream>(0x40), nullptr, nullptr) ==
        CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("shared memory above 48 KB must be requested, up to the limit of the device") {
  const Session session;
  const CUmodule module = load_test_ptx();
  const CUfunction nothing = kernel(module, "nothing");
  const CUfunction hungry = kernel(module, "hungry");
  const auto ask = [](CUfunction function, int bytes) {
    return cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
  };
  CHECK(launch_plain(nothing, 1, 48 * 1024) == CUDA_SUCCESS);
  CHECK(launch_plain(nothing, 1, 48 * 1024 + 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch_plain(hungry, 1, 8192) == CUDA_SUCCESS);
  CHECK(launch_plain(hungry, 1, 8193) == CUDA_ERROR_INVALID_VALUE);
  CHECK(ask(nothing, 227 * 1024) == CUDA_SUCCESS);
  CHECK(launch_plain(nothing, 1, 227 * 1024) == CUDA_SUCCESS);
  CHECK(ask(nothing, 227 * 1024 + 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(ask(nothing, -1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(ask(hungry, 227 * 1024 - 40960) == CUDA_SUCCESS);
  CHECK(ask(hungry, 227 * 1024 - 40959) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a launch may ask for clusters of up to eight blocks that divide its grid") {
  const Session session;
  const CUfunction nothing = kernel(load_test_ptx(), "nothing");
  CUlaunchAttribute attributes[2] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[0].value.clusterDim = {1, 1, 1};
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 2;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.attrs = attributes;
  config.numAttrs = 2;
  CHECK(cuLaunchKernelEx(&config, nothing, nullptr, nullptr) == CUDA_SUCCESS);
  attributes[0].value.clusterDim.x = 2;
  CHECK(cuLaunchKernelEx(&config, nothing, nullptr, nullptr) == CUDA_SUCCESS);
  attributes[0].value.clusterDim.y = 3;
  CHECK(cuLaunchKernelEx(&config, nothing, nullptr, nullptr) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  config.gridDimX = 16;
  attributes[0].value.clusterDim = {16, 1, 1};
  CHECK(cuLaunchKernelEx(&config, nothing, nullptr, nullptr) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attributes[0].value.cooperative = 1;
  CHECK(cuLaunchKernelEx(&config, nothing, nullptr, nullptr) == CUDA_ERROR_NOT_SUPPORTED);
  config.attrs = nullptr;
  CHECK(cuLaunchKernelEx(&config, nothing, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuLaunchKernelEx(nullptr, nothing, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("occupancy follows from threads, blocks and shared memory of a multiprocessor") {
  const Session session;
  const CUmodule module = load_test_ptx();
  const auto blocks = [&](const char* name, int threads, std::size_t dynamic_shared) {
    int count = -1;
    REQUIRE(cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, kernel(module, name), threads,
                                                        dynamic_shared) == CUDA_SUCCESS);
    return count;
  };
  CHECK(blocks("nothing", 32, 0) == 32);
  CHECK(blocks("nothing", 1024, 0) == 2);
  CHECK(blocks("nothing", 33, 0) == 32);
  CHECK(blocks("nothing", 128, 32 * 1024) == 6);  // of 33 KB each in 228
  CHECK(blocks("hungry", 32, 0) == 5);            // of 41 KB each
  CHECK(blocks("nothing", 2000, 0) == 0);
  CHECK(blocks("nothing", 32, 100 * 1024) == 0);  // it was not requested
  int count = 0;
  CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, nullptr, 32, 0) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, kernel(module, "nothing"), 0, 0) ==
        CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("clusters at once are those that fit into the GPCs, whole") {
  const Session session;
  const CUfunction nothing = kernel(load_test_ptx(), "nothing");
  constexpr unsigned kAlone = 120 * 1024;  // bytes, of which a multiprocessor has no two
  REQUIRE(cuFuncSetAttribute(nothing, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kAlone) ==
          CUDA_SUCCESS);
  const auto asked = [&](unsigned size, unsigned dynamic_shared, int* clusters) {
    CUlaunchAttribute cluster{};
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim = {1, size, 1};
    CUlaunchConfig config{};
    config.gridDimY = 8;
    config.gridDimX = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = 32;
    config.sharedMemBytes = dynamic_shared;
    config.attrs = &cluster;
    config.numAttrs = 1;
    return cuOccupancyMaxActiveClusters(clusters, nothing, &config);
  };
  const auto clusters = [&](unsigned size, unsigned dynamic_shared) {
    int count = -1;
    REQUIRE(asked(size, dynamic_shared, &count) == CUDA_SUCCESS);
    return count;
  };
  CHECK(clusters(1, kAlone) == 132);
  CHECK(clusters(2, kAlone) == 66);
  CHECK(clusters(4, kAlone) == 30);  // of 33 that there are multiprocessors for
  CHECK(clusters(8, kAlone) == 14);
  CHECK(clusters(4, 0) == 132 * 32 / 4);
  int count = 0;
  CHECK(asked(3, 0, &count) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  CHECK(asked(4, kAlone + 1, &count) == CUDA_ERROR_INVALID_VALUE);
  CHECK(asked(4, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuOccupancyMaxActiveClusters(&count, nothing, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuOccupancyMaxActiveClusters(&count, nullptr, nullptr) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a kernel's fault is returned by all later calls until the context is reset") {
  const Session session;
  const CUfunction add_one = kernel(load_test_ptx(), "add_one");
  const CUdeviceptr memory = upload(Words(32, 1));
  CHECK(launch_add_one(add_one, memory, kTooMany) == CUDA_SUCCESS);  // as on a device, which is still at it
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr more = 0;
  Words words(1);
  CUstream stream = nullptr;
  CHECK(cuMemAlloc(&more, 4) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuMemcpyDtoH(words.data(), memory, 4) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuStreamCreate(&stream, 0) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(launch_add_one(add_one, memory, 1) == CUDA_ERROR_ILLEGAL_ADDRESS);
  const std::string report = emulatorLastReport();
  for (const char* const words_of_it : {"add_one", "ld.global.u32", "line 26", "(1,0,0)"}) {
    CAPTURE(report);
    CHECK(report.find(words_of_it) != std::string::npos);
  }
  REQUIRE(cuDevicePrimaryCtxReset(session.device()) == CUDA_SUCCESS);
  CHECK(std::string(emulatorLastReport()).empty());
  CUcontext again = nullptr;
  REQUIRE(cuDevicePrimaryCtxRetain(&again, session.device()) == CUDA_SUCCESS);
  const CUdeviceptr fresh = upload({1});
  CHECK(launch_add_one(kernel(load_test_ptx(), "add_one"), fresh, 1) == CUDA_SUCCESS);
  CHECK(download(fresh, 1) == Words{2});
  CHECK(cuDevicePrimaryCtxRelease(session.device()) == CUDA_SUCCESS);
}

TEST_CASE("a misaligned address and an unknown one give the errors of a real device") {
  for (const auto& [offset, result] :
       {std::pair{2u, CUDA_ERROR_MISALIGNED_ADDRESS}, std::pair{1u << 20, CUDA_ERROR_ILLEGAL_ADDRESS}}) {
    const Session session;
    const CUdeviceptr memory = upload(Words(4, 1));
    CHECK(launch_add_one(kernel(load_test_ptx(), "add_one"), memory + offset, 1) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == result);
  }
}

TEST_CASE("a fault in one context does not affect another") {
  const Session first(0);
  const CUdeviceptr memory = upload(Words(4, 1));
  CHECK(launch_add_one(kernel(load_test_ptx(), "add_one"), memory, kTooMany) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  const Session second(1);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(launch_add_one(kernel(load_test_ptx(), "add_one"), upload({1}), 1) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("threads launch, copy and allocate in one context at the same time") {
  const Session session;
  const CUfunction add_one = kernel(load_test_ptx(), "add_one");
  std::vector<std::thread> threads;
  std::vector<Words> results(4);
  for (std::size_t i = 0; i < results.size(); ++i)
    threads.emplace_back([&, i] {
      if (cuCtxSetCurrent(session.context()) != CUDA_SUCCESS) return;
      CUdeviceptr memory = 0;
      if (cuMemAlloc(&memory, 256) != CUDA_SUCCESS || cuMemsetD32(memory, 0, 64) != CUDA_SUCCESS) return;
      for (int time = 0; time < 20; ++time)
        if (launch_add_one(add_one, memory, 64) != CUDA_SUCCESS) return;
      results[i].resize(64);
      if (cuMemcpyDtoH(results[i].data(), memory, 256) != CUDA_SUCCESS) results[i].clear();
    });
  for (std::thread& thread : threads) thread.join();
  for (const Words& result : results) CHECK(result == Words(64, 20));
}

TEST_CASE("as many blocks wait for one another as the device holds of them") {
  const std::string meets = R"(.version 7.8
.target sm_75
.address_size 64
.visible .entry meets(.param .u64 p) {
  .reg .pred %p<3>;
  .reg .b32 %r<5>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [p];
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 ret;
  mov.u32 %r2, %nctaid.x;
  atom.release.gpu.global.add.u32 %r3, [%rd1], 1;
LOOP:
  ld.acquire.gpu.global.u32 %r4, [%rd1];
  setp.lt.u32 %p2, %r4, %r2;
  @%p2 bra LOOP;
  ret;
}
)";
  for (const unsigned blocks : {40u, 41u}) {
    CAPTURE(blocks);
    const Session session(1);  // 40 multiprocessors, with room for 1024 threads each
    CUmodule module = nullptr;
    REQUIRE(cuModuleLoadData(&module, meets.c_str()) == CUDA_SUCCESS);
    CUdeviceptr counter = upload({0});
    void* parameters[] = {&counter};
    REQUIRE(cuLaunchKernel(kernel(module, "meets"), blocks, 1, 1, 1024, 1, 1, 0, nullptr, parameters,
                           nullptr) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == (blocks == 40 ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_TIMEOUT));
  }
}

#include <doctest/doctest.h>

#include <array>
#include <numeric>

#include "tests/emulator/driver/session.h"

using Words = std::vector<std::uint32_t>;

TEST_CASE("what was copied to the device comes back, also in part, and from place to place") {
  const Session session;
  const CUdeviceptr first = upload({1, 2, 3, 4});
  const CUdeviceptr second = upload({9, 9, 9, 9});
  CHECK(download(first, 4) == Words{1, 2, 3, 4});
  CHECK(cuMemcpyDtoD(second + 4, first, 8) == CUDA_SUCCESS);
  CHECK(download(second, 4) == Words{9, 1, 2, 9});
  const std::uint32_t word = 7;
  CHECK(cuMemcpy(second, reinterpret_cast<CUdeviceptr>(&word), 4) == CUDA_SUCCESS);
  CHECK(cuMemcpy(first, second, 4) == CUDA_SUCCESS);
  CHECK(download(first, 1) == Words{7});
}

TEST_CASE("a copy within the device copies whether bytes are written") {
  const std::string reads_word = R"(.version 7.8
.target sm_75
.address_size 64
.visible .entry reads(.param .u64 p) {
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [p];
  ld.global.u32 %r1, [%rd1];
  ret;
}
)";
  using Copy = CUresult (*)(CUdeviceptr, CUdeviceptr, std::size_t);
  const Copy copies[] = {
      [](CUdeviceptr to, CUdeviceptr from, std::size_t bytes) { return cuMemcpyDtoD(to, from, bytes); },
      [](CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
        return cuMemcpyDtoDAsync(to, from, bytes, nullptr);
      },
      [](CUdeviceptr to, CUdeviceptr from, std::size_t bytes) { return cuMemcpy(to, from, bytes); },
      [](CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
        return cuMemcpyAsync(to, from, bytes, nullptr);
      },
  };
  for (const Copy copy : copies)
    for (std::size_t word = 0; word < 10; ++word) {
      CAPTURE(word);
      const Session session;
      CUmodule module = nullptr;
      REQUIRE(cuModuleLoadData(&module, reads_word.c_str()) == CUDA_SUCCESS);
      CUdeviceptr source = 0;
      REQUIRE(cuMemAlloc(&source, 40) == CUDA_SUCCESS);
      REQUIRE(cuMemsetD32(source + 8, 5, 3) == CUDA_SUCCESS);  // words 2, 3, 4
      const CUdeviceptr target = upload(Words(10, 7));
      REQUIRE(copy(target + 4, source, 32) == CUDA_SUCCESS);  // words 1 to 8 from 0 to 7
      CUdeviceptr address = target + 4 * word;
      void* parameters[] = {&address};
      REQUIRE(cuLaunchKernel(kernel(module, "reads"), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr) ==
              CUDA_SUCCESS);
      const bool written = word == 0 || (word >= 3 && word <= 5) || word == 9;
      CHECK(cuCtxSynchronize() == (written ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED));
    }
}

TEST_CASE("a copy may overlap itself") {
  const Session session;
  const CUdeviceptr memory = upload({1, 2, 3, 4});
  CHECK(cuMemcpyDtoD(memory + 4, memory, 12) == CUDA_SUCCESS);
  CHECK(download(memory, 4) == Words{1, 1, 2, 3});
}

TEST_CASE("memory is set in bytes, halves and words") {
  const Session session;
  const CUdeviceptr memory = upload(Words(4, 0));
  CHECK(cuMemsetD32(memory, 0x12345678, 4) == CUDA_SUCCESS);
  CHECK(cuMemsetD16(memory + 4, 0xabcd, 1) == CUDA_SUCCESS);
  CHECK(cuMemsetD8(memory + 8, 0xff, 2) == CUDA_SUCCESS);
  CHECK(download(memory, 4) == Words{0x12345678, 0x1234abcd, 0x1234ffff, 0x12345678});
  CHECK(cuMemsetD32(memory + 2, 0, 1) == CUDA_ERROR_INVALID_VALUE);  // misaligned
  CHECK(cuMemsetD32(memory, 0, 5) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD8(memory, 0, 17) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD8(0x10, 0, 1) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a copy beyond the end of an allocation copies nothing") {
  const Session session;
  const CUdeviceptr memory = upload({1, 2});
  Words host(3, 5);
  CHECK(cuMemcpyHtoD(memory, host.data(), 12) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyDtoH(host.data(), memory, 12) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyHtoD(memory + 8, host.data(), 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyDtoD(memory, memory + 4, 8) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyDtoD(memory, memory, ~std::size_t{0}) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyHtoD(memory, nullptr, 4) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyDtoH(nullptr, memory, 4) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyHtoD(0, host.data(), 4) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyHtoD(memory, nullptr, 0) == CUDA_SUCCESS);
  CHECK(download(memory, 2) == Words{1, 2});
  CHECK(host == Words{5, 5, 5});
}

TEST_CASE("a device address is never dereferenced as a host address") {
  const Session session;
  const CUdeviceptr live = upload({1, 2});
  const CUdeviceptr freed = upload({3, 4});
  REQUIRE(cuMemFree(freed) == CUDA_SUCCESS);
  CHECK(cuMemcpy(freed, live, 8) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpy(live, freed, 8) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyHtoD(live, reinterpret_cast<const void*>(live), 8) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyDtoH(reinterpret_cast<void*>(live), live, 8) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an allocation has at least one byte, fits on the device, and is freed once by its start") {
  const Session session;
  CUdeviceptr memory = 0;
  CHECK(cuMemAlloc(&memory, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAlloc(nullptr, 4) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAlloc(&memory, std::size_t{81} << 30) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAlloc(&memory, ~std::size_t{0}) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(cuMemAlloc(&memory, 1000) == CUDA_SUCCESS);
  CHECK(memory % 256 == 0);
  CHECK(cuMemFree(memory + 256) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree(memory) == CUDA_SUCCESS);
  CHECK(cuMemFree(memory) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree(0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("free and total memory and the range of an address can be queried") {
  const Session session;
  std::size_t free = 0;
  std::size_t total = 0;
  REQUIRE(cuMemGetInfo(&free, &total) == CUDA_SUCCESS);
  CHECK(free == total);
  const CUdeviceptr memory = upload(Words(256, 0));
  REQUIRE(cuMemGetInfo(&free, &total) == CUDA_SUCCESS);
  CHECK(total - free == 1024);
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  CHECK(cuMemGetAddressRange(&begin, &bytes, memory + 100) == CUDA_SUCCESS);
  CHECK(begin == memory);
  CHECK(bytes == 1024);
  CHECK(cuMemGetAddressRange(&begin, &bytes, memory + 1024) == CUDA_ERROR_NOT_FOUND);
}

TEST_CASE("pinned memory is host memory, is counted, and is freed once") {
  const Session session;
  const std::size_t held = emulatorHeld().allocations;
  void* pinned = nullptr;
  REQUIRE(cuMemAllocHost(&pinned, 64) == CUDA_SUCCESS);
  static_cast<std::uint32_t*>(pinned)[0] = 42;
  CHECK(emulatorHeld().allocations == held + 1);
  unsigned type = 0;
  CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                              reinterpret_cast<CUdeviceptr>(pinned) + 8) == CUDA_SUCCESS);
  CHECK(type == CU_MEMORYTYPE_HOST);
  const CUdeviceptr memory = upload({0});
  CHECK(cuMemcpyHtoDAsync(memory, pinned, 4, nullptr) == CUDA_SUCCESS);
  CHECK(download(memory, 1) == Words{42});
  CHECK(cuMemFreeHost(pinned) == CUDA_SUCCESS);
  CHECK(cuMemFreeHost(pinned) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemHostAlloc(&pinned, 64, CU_MEMHOSTALLOC_DEVICEMAP) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(cuMemHostAlloc(&pinned, 0, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a pointer's attributes are those of its memory, and a host pointer is unknown") {
  const Session session;
  const CUdeviceptr memory = upload({0, 0});
  unsigned type = 0;
  CUcontext context = nullptr;
  CUdeviceptr pointer = 0;
  int ordinal = -1;
  CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 4) == CUDA_SUCCESS);
  CHECK(type == CU_MEMORYTYPE_DEVICE);
  CHECK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, memory) == CUDA_SUCCESS);
  CHECK(context == session.context());
  CHECK(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, memory + 4) == CUDA_SUCCESS);
  CHECK(pointer == memory + 4);
  CHECK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory) == CUDA_SUCCESS);
  CHECK(ordinal == 0);
  int local = 0;
  const auto host = reinterpret_cast<CUdeviceptr>(&local);
  CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host) == CUDA_ERROR_INVALID_VALUE);
  std::array which = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT};
  std::array<void*, 2> data = {&type, &context};
  CHECK(cuPointerGetAttributes(2, which.data(), data.data(), host) == CUDA_SUCCESS);
  CHECK(type == 0);
  CHECK(context == nullptr);
}

TEST_CASE("an address of one device is invalid on another") {
  const Session first(0);
  const CUdeviceptr memory = upload({1});
  const Session second(1);
  std::uint32_t word = 0;
  CHECK(cuMemcpyDtoH(&word, memory, 4) == CUDA_ERROR_INVALID_VALUE);
}

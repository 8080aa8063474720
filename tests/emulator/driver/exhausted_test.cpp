#include <doctest/doctest.h>

#include <cstdlib>
#include <new>
#include <string>

#include "tests/emulator/driver/session.h"

namespace {

/// Whether this thread's allocations fail.
thread_local bool exhausted = false;

void* allocate(std::size_t bytes) {
  if (exhausted) throw std::bad_alloc();
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

/// Whether an exception came out of `body`, which found no memory.
template <class Body>
bool throws_without_memory(Body body) {
  bool thrown = false;
  exhausted = true;
  try {
    body();
  } catch (...) {
    thrown = true;
  }
  exhausted = false;
  return thrown;
}

}  // namespace

// The driver's, too: the loader takes the program's before the library's.
void* operator new(std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

TEST_CASE("without memory the last report is still available, and objects are still counted") {
  const Session session;
  const CUfunction add_one = kernel(load_test_ptx(), "add_one");
  const CUdeviceptr memory = upload({1});
  REQUIRE(launch_add_one(add_one, memory, 2) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  const char* report = "";
  CHECK_FALSE(throws_without_memory([&] { report = emulatorLastReport(); }));
  CHECK(std::string(report).find("kernel add_one") != std::string::npos);
  const EmulatorHeld before = emulatorHeld();
  EmulatorHeld held{};
  CHECK_FALSE(throws_without_memory([&] { held = emulatorHeld(); }));
  CHECK(held.allocations == before.allocations);
  CHECK(held.modules == 1);
}

TEST_CASE("without memory there are no counters, and no exception") {
  const Session session;
  const CUfunction add_one = kernel(load_test_ptx(), "add_one");
  REQUIRE(launch_add_one(add_one, upload({1}), 1) == CUDA_SUCCESS);
  int lines = 0;
  const auto count = [](const EmulatorLine*, void* with) { ++*static_cast<int*>(with); };
  CHECK_FALSE(throws_without_memory([&] { emulatorCounters(count, &lines); }));
  CHECK(lines == 0);
  emulatorCounters(count, &lines);
  CHECK(lines > 0);
}

TEST_CASE("without memory a call of the driver returns that error") {
  const Session session;
  CUstream stream = nullptr;
  CUresult result = CUDA_SUCCESS;
  CHECK_FALSE(throws_without_memory([&] { result = cuStreamCreate(&stream, 0); }));
  CHECK(result == CUDA_ERROR_OUT_OF_MEMORY);
}

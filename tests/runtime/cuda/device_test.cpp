#include "runtime/cuda/device.h"

#include <cstdint>
#include <thread>

#include <cuda.h>
#include <doctest/doctest.h>

#include <sparsekiln/error.h>

#include "runtime/cuda/context.h"
#include "tests/runtime/cuda/stub_session.h"

using namespace sparsekiln;

TEST_CASE("a device's target is its plain architecture and its number of multiprocessors") {
  const StubSession session;
  CHECK(cuda::open_device(0)->target() == Target{Target::Kind::cuda, "sm_90", 132});
  CHECK(cuda::open_device(1)->target() == Target{Target::Kind::cuda, "sm_75", 40});
  CHECK(cuda::open_device(0)->description() == "Stub H100, CUDA driver 13.0");
}

TEST_CASE("a device that is not there is refused, with the numbers of those that are") {
  const StubSession session;
  const auto error = error_of([] { static_cast<void>(cuda::open_device(7)); });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::driver);
  CHECK(says(error, "no CUDA device 7: the driver finds 2, numbered from 0 to 1"));
}

TEST_CASE("opening retains the primary context, and the last user releases it") {
  const StubSession session;
  const int before = stub::primary_references(1);
  {
    const auto device = cuda::open_device(1);
    CHECK(stub::primary_references(1) == before + 1);
    const DeviceMemory memory(device, 64);
    const auto again = cuda::open_device(1);
    CHECK(stub::primary_references(1) == before + 2);
  }
  CHECK(stub::primary_references(1) == before);
}

TEST_CASE("opening gives a thread without a context this one, and does not change a thread's own") {
  const StubSession session;
  const auto second = cuda::open_device(1);
  void* const current = stub::current();
  CHECK(current != nullptr);
  const auto first = cuda::open_device(0);
  CHECK(stub::current() == current);
}

TEST_CASE("the current context decides the device, and is used itself") {
  const StubSession session;
  void* const foreign = stub::create_context(1);
  stub::set_current(foreign);
  const int references = stub::primary_references(1);
  const auto context = cuda::Context::open(-1);
  CHECK(context->device().ordinal == 1);
  CHECK(static_cast<void*>(context->handle()) == foreign);
  CHECK(stub::primary_references(1) == references);
}

TEST_CASE("a current primary context is retained") {
  const StubSession session;
  const auto owner = cuda::open_device(1);  // makes it current
  const int references = stub::primary_references(1);
  {
    const auto context = cuda::Context::open(-1);
    CHECK(context->device().ordinal == 1);
    CHECK(stub::primary_references(1) == references + 1);
  }
  CHECK(stub::primary_references(1) == references);
}

TEST_CASE("without a current context, the default is device 0") {
  const StubSession session;
  CHECK(cuda::Context::open(-1)->device().ordinal == 0);
}

TEST_CASE("memory is aligned, and carries bytes there and back") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const std::vector<int> sent = {3, 1, 4, 1, 5, 9};
  std::vector<int> received(sent.size());
  DeviceMemory memory(device, sent.size() * sizeof(int));
  CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % 256 == 0);
  memory.copy_in(sent.data());
  memory.copy_out(received.data());
  device->synchronize();
  CHECK(received == sent);
}

TEST_CASE("memory of no bytes is legal") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  void* const memory = device->allocate(0);
  CHECK(memory != nullptr);
  device->copy_in(memory, nullptr, 0);
  device->copy_out(nullptr, memory, 0);
  device->release(memory);
  device->release(nullptr);
}

TEST_CASE("memory works on a thread whose current context is another, which it keeps") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  void* const foreign = stub::create_context(1);
  std::thread([&] {
    stub::set_current(foreign);
    const std::size_t before = stub::live_allocations();
    {
      DeviceMemory memory(device, 16);
      CHECK(stub::live_allocations() == before + 1);
      CHECK(stub::current() == foreign);
    }
    CHECK(stub::live_allocations() == before);
    CHECK(stub::current() == foreign);
  }).join();
}

TEST_CASE("a failed allocation is an Error with its size and the device") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  stub::fail_next("cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY);
  const auto error = error_of([&] { static_cast<void>(device->allocate(4096)); });
  CHECK(says(error, "allocating 4096 bytes on Stub H100: CUDA_ERROR_OUT_OF_MEMORY: out of memory"));
}

TEST_CASE("a kernel's fault comes out of synchronize") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  stub::fail_next("cuCtxSynchronize", CUDA_ERROR_ILLEGAL_ADDRESS);
  const auto error = error_of([&] { device->synchronize(); });
  CHECK(says(error, "waiting for the device: CUDA_ERROR_ILLEGAL_ADDRESS"));
  CHECK(says(error, "start the process again"));
}

TEST_CASE("a device whose context its owner destroyed fails with a sentence, and is released without one") {
  const StubSession session;
  void* const foreign = stub::create_context(0);
  stub::set_current(foreign);
  auto device = cuda::open_device(-1);
  void* const memory = device->allocate(16);
  stub::set_current(nullptr);
  stub::destroy_context(foreign);
  const auto error = error_of([&] { device->synchronize(); });
  CHECK(says(error, "making the context of CUDA device 0 (Stub H100) current: CUDA"));
  device->release(memory);
  device.reset();
}

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <cuda.h>
#include <doctest/doctest.h>

#include "runtime/cuda/device.h"
#include "runtime/cuda/stream.h"
#include "tests/runtime/cuda/stub_session.h"

using namespace sparsekiln;

namespace {

/// The stub's kernel with attached tables of `bytes` bytes, each of them `filling`.
Binary attached_binary(std::size_t bytes = 64, int filling = 7) {
  Binary binary = stub_binary();
  binary.code = code_of("cubin sm_90\nkernel forward 8 8 8 8 4 8 8 80\n");
  Entry& entry = binary.entries.front();
  entry.arguments.push_back(Argument::tables);
  entry.workspace = {128, 4096};
  entry.tables = {
      std::vector<std::byte>(bytes, static_cast<std::byte>(filling)), {0, 16, 16, 32, 48, 48, 48}, 3};
  return binary;
}

/// AttachedTables of templates/schedule.cuh, spelled out here once more.
struct Passed {
  std::array<const unsigned char*, 7> arrays;
  long long counter_bytes;
  long long tile_bytes;
  int counters;
};

Launch launch_of(std::int64_t n, void* stream = CU_STREAM_LEGACY) {
  Launch launch;
  launch.n = n;
  launch.stream = stream;
  return launch;
}

Passed passed_by(const Module& module, void* stream = CU_STREAM_LEGACY) {
  stub::record();
  module.launch(0, launch_of(1, stream));
  const stub::Launch made = stub::launches().back();
  REQUIRE(made.arguments.size() == 8);
  Passed passed{};
  REQUIRE(made.arguments[7].size() == sizeof passed);
  std::memcpy(&passed, made.arguments[7].data(), sizeof passed);
  return passed;
}

std::size_t count(const std::vector<std::string>& calls, const std::string& name) {
  return static_cast<std::size_t>(std::count(calls.begin(), calls.end(), name));
}

}  // namespace

TEST_CASE("a launch of an attached kernel passes the tables' addresses on the device, and their figures") {
  const StubSession session;
  const auto module = cuda::open_device(0)->load(shared(attached_binary()));
  const Passed passed = passed_by(*module);
  for (std::size_t array = 1; array < 7; ++array)
    CHECK(passed.arrays[array] - passed.arrays[0] == std::array{0, 16, 16, 32, 48, 48, 48}[array]);
  for (int byte = 0; byte < 64; ++byte) CHECK(passed.arrays[0][byte] == 7);
  CHECK(passed.counter_bytes == 128);
  CHECK(passed.tile_bytes == 4096);
  CHECK(passed.counters == 3);
}

TEST_CASE("the tables of all entries are uploaded in one allocation, and a launch uploads nothing") {
  const StubSession session;
  Binary binary = attached_binary();
  binary.entries.push_back(binary.entries.front());
  binary.entries.back().up_to = 200;
  const auto device = cuda::open_device(0);
  stub::record();
  const auto module = device->load(shared(binary));
  CHECK(count(stub::calls(), "cuMemAlloc") == 1);
  CHECK(count(stub::calls(), "cuMemcpyHtoDAsync") == 2);
  const std::size_t before = stub::calls().size();
  module->launch(1, launch_of(150));
  CHECK(stub::calls().size() == before + 1);
  CHECK(stub::calls().back() == "cuLaunchKernel");
}

TEST_CASE("another layout is uploaded beside the first, and no code is loaded for it") {
  const StubSession session;
  const auto module = cuda::open_device(0)->load(shared(attached_binary()));
  Binary other = attached_binary(128, 9);
  other.entries.front().workers = 5;
  stub::record();
  const auto second = module->relayout(shared(other));
  CHECK(count(stub::calls(), "cuModuleLoadDataEx") == 0);
  CHECK(count(stub::calls(), "cuModuleGetFunction") == 0);
  CHECK(passed_by(*second).arrays[0][100] == 9);
  CHECK(stub::launches().back().grid[0] == 5);
  CHECK(passed_by(*module).arrays[0][0] == 7);
  CHECK(stub::launches().back().grid[0] == 132);
}

TEST_CASE("tables go with their layout, and the code with the last one") {
  const StubSession session;
  const std::size_t modules = stub::live_modules();
  const std::size_t allocations = stub::live_allocations();
  auto first = cuda::open_device(0)->load(shared(attached_binary()));
  auto second = first->relayout(shared(attached_binary(96)));
  CHECK(stub::live_allocations() == allocations + 2);
  first.reset();
  CHECK(stub::live_allocations() == allocations + 1);
  CHECK(stub::live_modules() == modules + 1);
  CHECK_NOTHROW(second->launch(0, launch_of(1)));
  second.reset();
  CHECK(stub::live_allocations() == allocations);
  CHECK(stub::live_modules() == modules);
}

TEST_CASE("tables that cannot be uploaded are an Error that says so, and leave no memory allocated") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const std::size_t modules = stub::live_modules();
  const std::size_t allocations = stub::live_allocations();
  for (const char* function : {"cuMemAlloc", "cuStreamCreate", "cuMemcpyHtoDAsync"}) {
    CAPTURE(function);
    stub::fail_next(function, CUDA_ERROR_OUT_OF_MEMORY);
    const auto error = error_of([&] { static_cast<void>(device->load(shared(attached_binary()))); });
    CHECK(says(error, "a layout's tables"));
    CHECK(stub::live_allocations() == allocations);
    CHECK(stub::live_modules() == modules);
  }
}

TEST_CASE(
    "a layout is replaced while a stream is captured, and the graph keeps the tables it was captured with") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const cuda::Stream stream;
  stub::record();
  stream.begin_capture();
  const auto module = device->load(shared(attached_binary()));
  module->launch(0, launch_of(1, stream.handle()));
  const auto second = module->relayout(shared(attached_binary(96, 9)));
  const cuda::Graph graph = stream.end_capture();
  graph.launch(stream.handle());
  CHECK(passed_by(*second).arrays[0][0] == 9);
  const stub::Launch replayed = stub::launches().front();
  CHECK(replayed.captured);
  Passed passed{};
  std::memcpy(&passed, replayed.arguments.at(7).data(), sizeof passed);
  CHECK(passed.arrays[0][0] == 7);
  // Nothing on the stream that waits for those that are captured.
  CHECK(count(stub::calls(), "cuMemcpyHtoD") == 0);
}

TEST_CASE("a Binary that lacks its layout is not loaded") {
  const StubSession session;
  Binary binary = attached_binary();
  binary.entries.front().tables = {};
  const auto device = cuda::open_device(0);
  const auto error = error_of([&] { static_cast<void>(device->load(shared(binary))); });
  CHECK(says(error, "it lacks the layout"));
  const auto module = device->load(shared(attached_binary()));
  CHECK(says(error_of([&] { static_cast<void>(module->relayout(shared(binary))); }), "it lacks the layout"));
}

TEST_CASE("a kernel with its layout baked in refuses another layout") {
  const StubSession session;
  const auto module = cuda::open_device(0)->load(shared(stub_binary()));
  Binary other = stub_binary();
  other.source = Digest::of("other code");
  CHECK_THROWS_AS(static_cast<void>(module->relayout(shared(other))), Error);
}

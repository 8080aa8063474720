#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>

#include <cuda.h>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <sparsekiln/error.h>

#include "runtime/cuda/device.h"
#include "tests/runtime/cuda/stub_session.h"

using namespace sparsekiln;

namespace {

template <typename Value>
Value value_of(const std::vector<std::byte>& bytes) {
  Value value{};
  REQUIRE(bytes.size() == sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

Launch launch_of(std::int64_t n) {
  return {reinterpret_cast<const void*>(0x1100),
          reinterpret_cast<const void*>(0x2200),
          reinterpret_cast<void*>(0x3300),
          reinterpret_cast<void*>(0x4400),
          n,
          384,
          768};
}

std::size_t count(const std::vector<std::string>& calls, const std::string& name) {
  return static_cast<std::size_t>(std::count(calls.begin(), calls.end(), name));
}

}  // namespace

TEST_CASE("a launch hands the driver the entry's grid, block, stream and arguments") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(stub_binary()));
  stub::record();
  Launch launch = launch_of(33);
  launch.stream = CU_STREAM_LEGACY;
  module->launch(0, launch);
  REQUIRE(stub::launches().size() == 1);
  const stub::Launch made = stub::launches().front();
  CHECK(made.function == "forward");
  CHECK(made.grid == std::array<unsigned, 3>{132, 2, 1});
  CHECK(made.block == std::array<unsigned, 3>{128, 1, 1});
  CHECK(made.shared_bytes == 0);
  CHECK(made.stream == CU_STREAM_LEGACY);
  REQUIRE(made.arguments.size() == 7);
  CHECK(value_of<const void*>(made.arguments[0]) == launch.x);
  CHECK(value_of<const void*>(made.arguments[1]) == launch.w);
  CHECK(value_of<const void*>(made.arguments[2]) == launch.y);
  CHECK(value_of<const void*>(made.arguments[3]) == launch.workspace);
  CHECK(value_of<std::int32_t>(made.arguments[4]) == 33);
  CHECK(value_of<std::int64_t>(made.arguments[5]) == 384);
  CHECK(value_of<std::int64_t>(made.arguments[6]) == 768);
}

TEST_CASE("a launch calls the driver once, besides reading the current context") {
  const StubSession session;
  const auto module = cuda::open_device(0)->load(shared(stub_binary()));
  stub::record();
  module->launch(0, launch_of(1));
  CHECK(stub::calls() == std::vector<std::string>{"cuLaunchKernel"});
}

TEST_CASE("the batch tiles of a launch are rounded up") {
  const StubSession session;
  const auto module = cuda::open_device(0)->load(shared(stub_binary()));
  stub::record();
  for (const std::int64_t n : {1, 31, 32, 33, 64, 65, 100}) module->launch(0, launch_of(n));
  std::vector<unsigned> tiles;
  for (const stub::Launch& launch : stub::launches()) tiles.push_back(launch.grid[1]);
  CHECK(tiles == std::vector<unsigned>{1, 1, 1, 2, 2, 3, 4});
}

TEST_CASE("every entry is launched by its own recipe") {
  const StubSession session;
  Binary binary = stub_binary();
  binary.code = code_of("cubin sm_90\nkernel forward 8 8 8 8 4 8 8\nkernel forward_64 4 8\n");
  Entry second = binary.entries.front();
  second.up_to = 640;
  second.passes = {"forward_64"};
  second.workers = 7;
  second.tile_n = 64;
  second.threads = 256;
  second.arguments = {Argument::n, Argument::y};
  binary.entries.push_back(second);
  const auto module = cuda::open_device(0)->load(shared(binary));
  stub::record();
  module->launch(1, launch_of(640));
  const stub::Launch made = stub::launches().at(0);
  CHECK(made.function == "forward_64");
  CHECK(made.grid == std::array<unsigned, 3>{7, 10, 1});
  CHECK(made.block[0] == 256);
  REQUIRE(made.arguments.size() == 2);
  CHECK(value_of<std::int32_t>(made.arguments[0]) == 640);
}

TEST_CASE("the passes of an entry are launched in order, with the same grid and arguments") {
  const StubSession session;
  Binary binary = stub_binary();
  binary.code = code_of("cubin sm_90\nkernel prepare 8 8 8 8 4 8 8\nkernel forward 8 8 8 8 4 8 8\n");
  binary.entries.front().passes = {"prepare", "forward"};
  const auto module = cuda::open_device(0)->load(shared(binary));
  stub::record();
  module->launch(0, launch_of(40));
  const std::vector<stub::Launch> made = stub::launches();
  REQUIRE(made.size() == 2);
  CHECK(made[0].function == "prepare");
  CHECK(made[1].function == "forward");
  CHECK(made[0].grid == made[1].grid);
  CHECK(made[0].arguments == made[1].arguments);
}

TEST_CASE("clusters and overlap go to the driver as attributes of the launch") {
  const StubSession session;
  Binary binary = stub_binary();
  binary.entries.front().attributes = {.cluster = {4, 1}, .overlaps_previous = true};
  const auto module = cuda::open_device(0)->load(shared(binary));
  stub::record();
  const Launch launch = launch_of(33);
  module->launch(0, launch);
  CHECK(stub::calls() == std::vector<std::string>{"cuLaunchKernelEx"});
  const stub::Launch made = stub::launches().at(0);
  CHECK(made.cluster == std::array<unsigned, 3>{4, 1, 1});
  CHECK(made.overlaps_previous);
  CHECK(made.grid == std::array<unsigned, 3>{132, 2, 1});
  CHECK(made.block == std::array<unsigned, 3>{128, 1, 1});
  CHECK(value_of<const void*>(made.arguments.at(0)) == launch.x);
}

TEST_CASE("of passes that overlap, the first is a plain launch, unless it overlaps the launch before") {
  const StubSession session;
  Binary binary = stub_binary();
  binary.code = code_of("cubin sm_90\nkernel prepare 8 8 8 8 4 8 8\nkernel forward 8 8 8 8 4 8 8\n");
  binary.entries.front().passes = {"prepare", "forward"};
  for (const bool overlaps : {false, true}) {
    binary.entries.front().attributes = {.overlaps_previous = overlaps, .passes_overlap = true};
    const auto module = cuda::open_device(0)->load(shared(binary));
    stub::record();
    module->launch(0, launch_of(33));
    const std::vector<stub::Launch> made = stub::launches();
    REQUIRE(made.size() >= 2);
    CHECK(made[made.size() - 2].overlaps_previous == overlaps);
    CHECK(made.back().overlaps_previous);
  }
}

TEST_CASE("a grid of clusters has as many rows as make whole clusters") {
  const StubSession session;
  Binary binary = stub_binary();
  binary.entries.front().up_to = std::int64_t{1} << 30;
  binary.entries.front().attributes.cluster = {1, 2};
  const auto module = cuda::open_device(0)->load(shared(binary));
  stub::record();
  for (const std::int64_t n : {1, 33, 65, 1 << 30}) module->launch(0, launch_of(n));
  std::vector<unsigned> rows;
  for (const stub::Launch& launch : stub::launches()) rows.push_back(launch.grid[1]);
  CHECK(rows == std::vector<unsigned>{2, 2, 4, 65534});
}

TEST_CASE("clusters that the device or the driver does not have are refused with what would work") {
  const StubSession session(true);
  stub::hide("cuLaunchKernelEx");
  Binary binary = stub_binary();
  binary.entries.front().attributes.cluster = {2, 1};
  const auto driver = error_of([&] { static_cast<void>(cuda::open_device(0)->load(shared(binary))); });
  CHECK(says(driver, "by cuLaunchKernelEx, which this driver does not have; one for CUDA 11.6 or later"));
  const auto device = error_of([&] { static_cast<void>(cuda::open_device(1)->load(shared(binary))); });
  CHECK(says(device, "takes sm_90 or later, and Stub T4 is sm_75"));
}

TEST_CASE("a launch that may overlap is a plain one where the driver does not overlap launches") {
  const StubSession session(true);
  stub::hide("cuLaunchKernelEx");
  Binary binary = stub_binary();
  binary.entries.front().attributes.overlaps_previous = true;
  const auto module = cuda::open_device(0)->load(shared(binary));
  stub::record();
  module->launch(0, launch_of(33));
  CHECK(stub::calls() == std::vector<std::string>{"cuLaunchKernel"});
}

TEST_CASE("workers that do not make whole clusters are refused when the kernel is loaded") {
  const StubSession session;
  Binary binary = stub_binary();
  binary.entries.front().attributes.cluster = {5, 1};
  const auto error = error_of([&] { static_cast<void>(cuda::open_device(0)->load(shared(binary))); });
  CHECK(says(error, "the 132 workers of the kernel forward are not clusters of 5"));
}

TEST_CASE("all functions are resident when loading returns, and a launch makes none so") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(stub_binary()));
  CHECK(stub::resident() == std::vector<std::string>{"forward"});
}

TEST_CASE("where the driver has no cuFuncLoad, an attribute is asked for instead") {
  const StubSession session(true);
  stub::set_version(12000);
  const auto device = cuda::open_device(0);
  stub::record();
  const auto module = device->load(shared(stub_binary()));
  CHECK(count(stub::calls(), "cuFuncLoad") == 0);
  CHECK(count(stub::calls(), "cuFuncGetAttribute") == 2);  // residence, and the threads a CTA may have
}

TEST_CASE("a cubin for another architecture falls back to PTX") {
  const StubSession session;
  const auto device = cuda::open_device(1);  // sm_75
  stub::record();
  const auto module = device->load(shared(stub_binary()));
  CHECK(count(stub::calls(), "cuModuleLoadDataEx") == 2);
  module->launch(0, launch_of(5));
  CHECK(stub::launches().size() == 1);
}

TEST_CASE("a damaged cubin falls back to PTX, and PTX alone is enough") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  Binary binary = stub_binary();
  binary.code = code_of("cubin sm_90\nbroken\n");
  CHECK_NOTHROW(static_cast<void>(device->load(shared(binary))));
  binary.code.clear();
  CHECK_NOTHROW(static_cast<void>(device->load(shared(binary))));
}

TEST_CASE(
    "where neither cubin nor PTX is taken, the Error has both answers, the compiler's log and what would "
    "work") {
  const StubSession session;
  const auto device = cuda::open_device(1);
  Binary binary = stub_binary();
  binary.ptx += "broken\n";
  const auto error = error_of([&] { static_cast<void>(device->load(shared(binary))); });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::driver);
  CHECK(says(error, "loading a kernel for sm_90 on Stub T4 (sm_75): the cubin of "));
  CHECK(says(error, "CUDA_ERROR_NO_BINARY_FOR_GPU"));
  CHECK(says(error, "CUDA_ERROR_INVALID_PTX"));
  CHECK(says(error, "compile for this device (sm_75:40)"));
  CHECK(error->log() == "ptxas: line 7: no such thing");
}

TEST_CASE("a cubin for another architecture without PTX is refused with what would work") {
  const StubSession session;
  const auto device = cuda::open_device(1);
  Binary binary = stub_binary();
  binary.ptx.clear();
  const auto error = error_of([&] { static_cast<void>(device->load(shared(binary))); });
  CHECK(says(error, "and there is no PTX; compile for this device (sm_75:40)"));
}

TEST_CASE("a lack of memory while loading is not treated as a bad cubin") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  stub::fail_next("cuModuleLoadDataEx", CUDA_ERROR_OUT_OF_MEMORY);
  stub::record();
  const auto error = error_of([&] { static_cast<void>(device->load(shared(stub_binary()))); });
  CHECK(says(error, "loading a kernel for sm_90 on Stub H100 (sm_90): CUDA_ERROR_OUT_OF_MEMORY"));
  CHECK(count(stub::calls(), "cuModuleLoadDataEx") == 1);
}

TEST_CASE("a kernel that is not in its module is named, and the module does not stay") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  Binary binary = stub_binary();
  binary.entries.front().passes = {"backward"};
  const std::size_t before = stub::live_modules();
  const auto error = error_of([&] { static_cast<void>(device->load(shared(binary))); });
  CHECK(says(error, "looking for the kernel backward in its module: CUDA_ERROR_NOT_FOUND"));
  CHECK(stub::live_modules() == before);
}

TEST_CASE("a Binary for the cpu is refused") {
  const StubSession session;
  Binary binary = stub_binary();
  binary.target = {Target::Kind::cpu, "x86-64-v3", 2};
  const auto error = error_of([&] { static_cast<void>(cuda::open_device(0)->load(shared(binary))); });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::driver);
  CHECK(says(error, "loading a kernel for x86-64-v3 on Stub H100: it is machine code for the cpu"));
}

TEST_CASE("dynamic shared memory beyond 48 KB is asked for, static counted, and less is not") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  Binary binary = stub_binary();
  binary.entries.front().dynamic_shared_bytes = 48 * 1024;
  CHECK_NOTHROW(static_cast<void>(device->load(shared(binary))));
  CHECK(stub::dynamic_shared("forward") == 0);
  binary.entries.front().resources.shared_bytes = 16;
  CHECK_NOTHROW(static_cast<void>(device->load(shared(binary))));
  CHECK(stub::dynamic_shared("forward") == 48 * 1024);
  binary.entries.front().dynamic_shared_bytes = 100 * 1024;
  const auto module = device->load(shared(binary));
  CHECK(stub::dynamic_shared("forward") == 100 * 1024);
  stub::record();
  module->launch(0, launch_of(1));
  CHECK(stub::launches().at(0).shared_bytes == 100 * 1024);
}

TEST_CASE("more shared memory or threads than the device has is refused when it is loaded") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  Binary binary = stub_binary();
  binary.entries.front().dynamic_shared_bytes = 1 << 20;
  const auto shared_memory = error_of([&] { static_cast<void>(device->load(shared(binary))); });
  CHECK(says(shared_memory,
             "giving the kernel forward 1048576 bytes of shared memory a CTA, where Stub H100 has 232448"));
  binary = stub_binary();
  binary.entries.front().threads = 2048;
  const auto threads = error_of([&] { static_cast<void>(device->load(shared(binary))); });
  CHECK(says(threads, "the kernel forward needs 2048 threads a CTA, and on Stub H100 it can have 1024"));
}

TEST_CASE("a batch of more tiles than a grid has rows is launched with as many rows as there may be") {
  const StubSession session;
  Binary binary = stub_binary();
  binary.entries.front().up_to = std::int64_t{1} << 30;
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(binary));
  stub::record();
  for (const std::int64_t n : {65535 * 32, 65535 * 32 + 1, 1 << 30}) module->launch(0, launch_of(n));
  CHECK(stub::launches().size() == 3);
  for (const stub::Launch& launch : stub::launches()) CHECK(launch.grid[1] == 65535);
  CHECK(value_of<std::int32_t>(stub::launches().back().arguments[4]) == 1 << 30);
}

TEST_CASE("a batch that kernels cannot count is refused when it is loaded") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  Binary binary = stub_binary();
  for (const std::int64_t batch : {(std::int64_t{1} << 30) + 1, (std::int64_t{1} << 31) - 31,
                                   std::int64_t{1} << 31, std::int64_t{1} << 40}) {
    binary.entries.front().up_to = batch;
    const auto error = error_of([&] { static_cast<void>(device->load(shared(binary))); });
    REQUIRE(error);
    CHECK(error->kind() == ErrorKind::invalid_argument);
    CHECK(says(error, fmt::format("a batch of up to {}: kernels count whole tiles of it in 32 bits; ask for "
                                  "at most 1073741824",
                                  batch)));
  }
}

TEST_CASE("a launch that the driver refuses is an Error with the kernel, the batch and the device") {
  const StubSession session;
  const auto module = cuda::open_device(0)->load(shared(stub_binary()));
  stub::fail_next("cuLaunchKernel", CUDA_ERROR_INVALID_IMAGE);
  const auto error = error_of([&] { module->launch(0, launch_of(64)); });
  CHECK(says(error, "launching forward for a batch of 64 on Stub H100 (128 threads a CTA"));
  CHECK(says(error, "CUDA_ERROR_INVALID_IMAGE"));
}

TEST_CASE("the code goes with the module, on whatever thread that is, and the context after it") {
  const StubSession session;
  const int references = stub::primary_references(0);
  const std::size_t modules = stub::live_modules();
  auto device = cuda::open_device(0);
  auto module = device->load(shared(stub_binary()));
  CHECK(stub::live_modules() == modules + 1);
  device.reset();
  CHECK(stub::primary_references(0) == references + 1);
  std::thread([&] { module.reset(); }).join();
  CHECK(stub::live_modules() == modules);
  CHECK(stub::primary_references(0) == references);
}

TEST_CASE("a module that outlives its context, or the driver, is destroyed without an error") {
  const StubSession session;
  void* const foreign = stub::create_context(0);
  stub::set_current(foreign);
  auto module = cuda::open_device(-1)->load(shared(stub_binary()));
  stub::destroy_context(foreign);
  stub::set_current(nullptr);
  CHECK_NOTHROW(module.reset());
  module = cuda::open_device(0)->load(shared(stub_binary()));
  stub::fail_next("cuModuleUnload", CUDA_ERROR_DEINITIALIZED);
  CHECK_NOTHROW(module.reset());
}

#include "runtime/cuda/context.h"

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <cuda.h>
#include <doctest/doctest.h>

#include <sparsekiln/error.h>

#include "runtime/cuda/device.h"
#include "runtime/cuda/stream.h"
#include "tests/runtime/cuda/stub_session.h"

using namespace sparsekiln;

namespace {

constexpr std::int64_t kBytes = 64 + 4000;  // of split_binary's largest batch

Binary split_binary() {
  Binary binary = stub_binary();
  binary.entries.front().workspace = {.counter_bytes = 64, .bytes_per_tile = 1000};
  return binary;
}

/// The stub's kernel with attached tables.
Binary attached_binary() {
  Binary binary = split_binary();
  binary.code = code_of("cubin sm_90\nkernel forward 8 8 8 8 4 8 8 80\n");
  Entry& entry = binary.entries.front();
  entry.arguments.push_back(Argument::tables);
  entry.tables = {std::vector<std::byte>(64), {0, 16, 16, 32, 48, 48, 48}, 3};
  return binary;
}

Launch launch_of(std::int64_t n, void* stream = nullptr) {
  Launch launch;
  launch.n = n;
  launch.stream = stream;
  return launch;
}

void on_new_thread(const std::function<void()>& work) { std::async(std::launch::async, work).get(); }

/// How a thread comes to be without a context; the driver is initialised.
struct Without {
  const char* how;
  std::function<void()> enter;
};

std::vector<Without> ways_without_context() {
  const auto api = []() -> const cuda::DriverApi& { return cuda::Driver::find()->api(); };
  return {{"it is new", [] {}},
          {"after cuCtxPopCurrent",
           [api] {
             CUcontext popped = nullptr;
             stub::set_current(stub::create_context(0));
             REQUIRE(api().ctx_pop_current(&popped) == CUDA_SUCCESS);
           }},
          {"after cuCtxSetCurrent(NULL)",
           [api] {
             stub::set_current(stub::create_context(1));
             REQUIRE(api().ctx_set_current(nullptr) == CUDA_SUCCESS);
           }},
          {"its context was destroyed on another thread", [] {
             void* const gone = stub::create_context(1);
             stub::set_current(gone);
             on_new_thread([&] { stub::destroy_context(gone); });
           }}};
}

}  // namespace

TEST_CASE("a launch on a thread without a context makes the kernel's primary one current there, once") {
  const StubSession session;
  const auto module = cuda::open_device(0)->load(shared(split_binary()));
  void* const primary = stub::current();
  for (const Without& without : ways_without_context()) {
    CAPTURE(without.how);
    on_new_thread([&] {
      without.enter();
      stub::reset();
      stub::record();
      module->launch(0, launch_of(1));
      CHECK(stub::current() == primary);
      module->launch(0, launch_of(1));
      CHECK(stub::launches().size() == 2);
      CHECK(stub::calls() == std::vector<std::string>{"cuCtxSetCurrent", "cuLaunchKernel", "cuLaunchKernel"});
    });
  }
}

TEST_CASE("a workspace is made, grown and found again on threads without a context") {
  const StubSession session;
  Binary binary = split_binary();
  binary.entries.front().up_to = 32 << 20;
  const auto module = cuda::open_device(0)->load(shared(binary));
  void* const primary = stub::current();
  constexpr std::int64_t kMiB = 1 << 20;
  for (const Without& without : ways_without_context()) {
    CAPTURE(without.how);
    const cuda::Stream stream;
    void* made[3] = {};
    const std::int64_t wanted[3] = {1, 3 * kMiB, kMiB};
    for (int i = 0; i < 3; ++i) {
      on_new_thread([&] {
        without.enter();
        made[i] = module->workspace(stream.handle(), wanted[i]);
        CHECK(stub::current() == primary);
      });
    }
    CHECK(made[0] != made[1]);
    CHECK(made[2] == made[1]);
  }
}

TEST_CASE(
    "a kernel is loaded, given another layout and unloaded on threads without a context, which stay so") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const std::size_t modules = stub::live_modules();
  const std::size_t allocations = stub::live_allocations();
  for (const Without& without : ways_without_context()) {
    CAPTURE(without.how);
    on_new_thread([&] {
      without.enter();
      void* const before = stub::current();
      auto first = device->load(shared(attached_binary()));
      auto second = first->relayout(shared(attached_binary()));
      CHECK(stub::current() == before);
      on_new_thread([&] { static_cast<void>(second->workspace(nullptr, kBytes)); });
      CHECK(stub::live_allocations() == allocations + 3);
      first.reset();
      second.reset();
      CHECK(stub::current() == before);
      CHECK(stub::live_modules() == modules);
      CHECK(stub::live_allocations() == allocations);
    });
  }
}

TEST_CASE(
    "the last handle may be destroyed where a context of another device is current, which stays current") {
  const StubSession session;
  const std::size_t modules = stub::live_modules();
  const std::size_t allocations = stub::live_allocations();
  auto module = cuda::open_device(0)->load(shared(attached_binary()));
  static_cast<void>(module->workspace(nullptr, kBytes));
  void* const other = stub::create_context(1);
  stub::set_current(other);
  module.reset();
  CHECK(stub::current() == other);
  CHECK(stub::live_modules() == modules);
  CHECK(stub::live_allocations() == allocations);
}

TEST_CASE("a launch where another context of the device is current enters the kernel's for the call") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(split_binary()));
  const cuda::Stream stream;
  void* const other = stub::create_context(0);
  stub::set_current(other);
  stub::record();
  static_cast<void>(module->workspace(stream.handle(), kBytes));
  module->launch(0, launch_of(1, stream.handle()));
  CHECK(stub::launches().size() == 1);
  CHECK(stub::current() == other);
}

TEST_CASE("a launch on a stream of another context of the device is the driver's refusal, explained") {
  const StubSession session;
  const auto module = cuda::open_device(0)->load(shared(split_binary()));
  stub::set_current(stub::create_context(0));
  const cuda::Stream stream;
  stub::record();
  const auto launch = error_of([&] { module->launch(0, launch_of(1, stream.handle())); });
  CHECK(says(launch, "launching forward for a batch of 1 on Stub H100"));
  CHECK(says(launch, "CUDA_ERROR_INVALID_HANDLE"));
  CHECK(says(launch, "good in the context that they were made in"));
  const auto workspace = error_of([&] { static_cast<void>(module->workspace(stream.handle(), kBytes)); });
  CHECK(says(workspace, "good in the context that they were made in"));
  CHECK(stub::launches().empty());
}

TEST_CASE("a launch where a context of another device is current is refused, and nothing is queued") {
  const StubSession session;
  const auto module = cuda::open_device(0)->load(shared(split_binary()));
  void* const other = stub::create_context(1);
  stub::set_current(other);
  const std::size_t allocations = stub::live_allocations();
  stub::record();
  const std::string sentence =
      "this kernel is on CUDA device 0 (Stub H100), and a context of CUDA device 1 is current on this "
      "thread: "
      "make one of device 0 current before the launch";
  const auto launch = error_of([&] { module->launch(0, launch_of(1)); });
  CHECK(says(launch, sentence));
  CHECK(launch->kind() == ErrorKind::driver);
  CHECK(says(error_of([&] { static_cast<void>(module->workspace(nullptr, kBytes)); }), sentence));
  CHECK(stub::launches().empty());
  CHECK(stub::live_allocations() == allocations);
  CHECK(stub::current() == other);
}

TEST_CASE("a context that the caller made is entered for a launch, and left again") {
  const StubSession session;
  void* const foreign = stub::create_context(0);
  stub::set_current(foreign);
  const auto module = cuda::open_device(-1)->load(shared(split_binary()));
  stub::record();
  on_new_thread([&] {
    static_cast<void>(module->workspace(nullptr, kBytes));
    module->launch(0, launch_of(1));
    CHECK(stub::current() == nullptr);
  });
  CHECK(stub::launches().size() == 1);
}

TEST_CASE(
    "a kernel whose context its owner destroyed is refused with what would work, and is destroyed without an "
    "error") {
  const StubSession session;
  void* const foreign = stub::create_context(0);
  stub::set_current(foreign);
  auto module = cuda::open_device(-1)->load(shared(split_binary()));
  static_cast<void>(module->workspace(nullptr, kBytes));
  on_new_thread([&] { stub::destroy_context(foreign); });
  stub::record();
  const auto refused = [&] {
    const auto error = error_of([&] { module->launch(0, launch_of(1)); });
    return says(error, "CUDA_ERROR_CONTEXT_IS_DESTROYED") &&
           says(error, "load the kernel again in one that lives");
  };
  CHECK(stub::current() == foreign);
  CHECK(refused());
  on_new_thread([&] { CHECK(refused()); });
  CHECK(stub::launches().empty());
  CHECK_NOTHROW(module.reset());
}

TEST_CASE("a thread whose context was destroyed gets one as a thread without a context does") {
  const StubSession session;
  void* const gone = stub::create_context(1);
  stub::set_current(gone);
  on_new_thread([&] { stub::destroy_context(gone); });
  CHECK(cuda::current_context() == nullptr);
  const auto context = cuda::Context::open(-1);
  CHECK(context->device().ordinal == 0);
  CHECK(stub::current() == context->handle());
}

TEST_CASE("memory of a device works on a thread without a context, which stays without one") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  on_new_thread([&] {
    int sent = 5;
    int received = 0;
    {
      DeviceMemory memory(device, sizeof sent);
      memory.copy_in(&sent);
      memory.copy_out(&received);
      device->synchronize();
    }
    CHECK(received == sent);
    CHECK(stub::current() == nullptr);
  });
}

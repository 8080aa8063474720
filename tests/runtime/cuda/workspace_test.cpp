#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include <cuda.h>
#include <doctest/doctest.h>

#include <sparsekiln/error.h>

#include "runtime/cuda/device.h"
#include "runtime/cuda/stream.h"
#include "tests/runtime/cuda/stub_session.h"

using namespace sparsekiln;

namespace {

// n up to 100 in tiles of 32 is 4 tiles: 64 bytes of counters, and 4 × 1000 of parts.
constexpr std::int64_t kBytes = 64 + 4000;

Binary split_binary() {
  Binary binary = stub_binary();
  binary.entries.front().workspace = {.counter_bytes = 64, .bytes_per_tile = 1000};
  return binary;
}

bool is_zero(const void* memory, std::int64_t bytes) {
  const auto* begin = static_cast<const unsigned char*>(memory);
  return std::all_of(begin, begin + bytes, [](unsigned char byte) { return byte == 0; });
}

}  // namespace

TEST_CASE("a stream's workspace is made once, zeroed") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(split_binary()));
  const cuda::Stream stream;
  const std::size_t before = stub::live_allocations();
  void* const made = module->workspace(stream.handle(), kBytes);
  CHECK(is_zero(made, kBytes));
  std::memset(made, 1, kBytes);
  CHECK(module->workspace(stream.handle(), kBytes) == made);
  CHECK(module->workspace(stream.handle(), 8) == made);
  CHECK_FALSE(is_zero(made, kBytes));
  CHECK(stub::live_allocations() == before + 1);
}

TEST_CASE("a workspace that is there costs no call that allocates, waits or copies") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(split_binary()));
  static_cast<void>(module->workspace(nullptr, kBytes));
  stub::record();
  static_cast<void>(module->workspace(nullptr, kBytes));
  CHECK(stub::calls().empty());
}

TEST_CASE("two streams have two workspaces, and so have two modules") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(split_binary()));
  const auto other = device->load(shared(split_binary()));
  const cuda::Stream first;
  const cuda::Stream second;
  const std::set<void*> made = {module->workspace(first.handle(), kBytes),
                                module->workspace(second.handle(), kBytes),
                                module->workspace(nullptr, kBytes), other->workspace(first.handle(), kBytes)};
  CHECK(made.size() == 4);
}

TEST_CASE("threads that ask at once get one workspace a stream") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(split_binary()));
  void* const context = stub::current();
  constexpr int kThreads = 8;
  constexpr int kStreams = 4;
  const cuda::Stream streams[kStreams];
  void* got[kThreads][kStreams] = {};
  const std::size_t before = stub::live_allocations();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      stub::set_current(context);
      for (int turn = 0; turn < 200; ++turn) {
        const int stream = (turn + thread) % kStreams;
        got[thread][stream] = module->workspace(streams[stream].handle(), kBytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(stub::live_allocations() == before + kStreams);
  for (int thread = 1; thread < kThreads; ++thread) {
    for (int stream = 0; stream < kStreams; ++stream) CHECK(got[thread][stream] == got[0][stream]);
  }
}

TEST_CASE("the per-thread default stream is another stream on each thread") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(split_binary()));
  void* const context = stub::current();
  void* const here = module->workspace(CU_STREAM_PER_THREAD, kBytes);
  void* there = nullptr;
  std::thread([&] {
    stub::set_current(context);
    there = module->workspace(CU_STREAM_PER_THREAD, kBytes);
  }).join();
  CHECK(here != there);
  CHECK(module->workspace(CU_STREAM_PER_THREAD, kBytes) == here);
}

TEST_CASE("a driver that cannot tell per-thread default streams apart is not trusted with them") {
  const StubSession session(true);
  stub::set_version(11080);
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(split_binary()));
  CHECK(module->workspace(nullptr, kBytes) != nullptr);
  const auto error = error_of([&] { static_cast<void>(module->workspace(CU_STREAM_PER_THREAD, kBytes)); });
  CHECK(says(error, "pass `workspace`, use another stream, or update the driver to CUDA 12"));
}

TEST_CASE("a new stream with a destroyed one's handle waits for it and starts from zeros") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(split_binary()));
  const cuda::Stream stream;
  void* const made = module->workspace(stream.handle(), kBytes);
  std::memset(made, 1, kBytes);
  stub::reuse_handle(stream.handle());
  stub::record();
  CHECK(module->workspace(stream.handle(), kBytes) == made);
  CHECK(is_zero(made, kBytes));
  const auto calls = stub::calls();
  const auto waited = std::find(calls.begin(), calls.end(), "cuCtxSynchronize");
  CHECK(waited < std::find(calls.begin(), calls.end(), "cuMemsetD8Async"));
}

TEST_CASE("a new stream whose predecessor cannot be waited for gets memory of its own") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(split_binary()));
  const cuda::Stream stream;
  void* const made = module->workspace(stream.handle(), kBytes);
  stub::reuse_handle(stream.handle());
  stub::fail_next("cuCtxSynchronize", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  void* const other = module->workspace(stream.handle(), kBytes);
  CHECK(other != made);
  CHECK(is_zero(other, kBytes));
  CHECK(module->workspace(stream.handle(), kBytes) == other);
}

TEST_CASE("a captured stream gets no workspace, not even one that was made before") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(split_binary()));
  const cuda::Stream warm;
  const cuda::Stream cold;
  void* const made = module->workspace(warm.handle(), kBytes);
  const std::size_t before = stub::live_allocations();
  for (const cuda::Stream* stream : {&warm, &cold}) {
    stream->begin_capture();
    const auto error = error_of([&] { static_cast<void>(module->workspace(stream->handle(), kBytes)); });
    static_cast<void>(stream->end_capture());
    REQUIRE(error);
    CHECK(error->kind() == ErrorKind::driver);
    CHECK(says(error, "pass one as `workspace`"));
  }
  CHECK(stub::live_allocations() == before);
  CHECK(module->workspace(warm.handle(), kBytes) == made);
}

TEST_CASE(
    "an allocation does not disturb the capture of another stream, and leaves the thread's mode as it was") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(split_binary()));
  stub::record();
  static_cast<void>(module->workspace(nullptr, kBytes));
  const auto calls = stub::calls();
  CHECK(calls == std::vector<std::string>{"cuThreadExchangeStreamCaptureMode", "cuMemAlloc",
                                          "cuMemsetD8Async", "cuThreadExchangeStreamCaptureMode"});
}

TEST_CASE(
    "loading and unloading code does not disturb a capture either: a tiered kernel does it at any time") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  stub::record();
  {
    const auto module = device->load(shared(split_binary()));
    static_cast<void>(module->workspace(nullptr, kBytes));
  }
  int relaxed = 0;  // calls of cuThreadExchangeStreamCaptureMode: into the mode and back
  int watched = 0;
  for (const std::string& call : stub::calls()) {
    relaxed += call == "cuThreadExchangeStreamCaptureMode";
    if (call != "cuModuleLoadDataEx" && call != "cuModuleUnload" && call != "cuMemFree") continue;
    ++watched;
    CHECK(relaxed % 2 == 1);
  }
  CHECK(watched == 3);
}

TEST_CASE("a workspace that cannot be allocated is an Error, and a later attempt may succeed") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(split_binary()));
  stub::fail_next("cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY);
  const auto error = error_of([&] { static_cast<void>(module->workspace(nullptr, kBytes)); });
  CHECK(says(error, "allocating a workspace of 4064 bytes on Stub H100: CUDA_ERROR_OUT_OF_MEMORY"));
  CHECK(module->workspace(nullptr, kBytes) != nullptr);
}

TEST_CASE("a workspace that could not be zeroed is given back") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(split_binary()));
  const std::size_t before = stub::live_allocations();
  stub::fail_next("cuMemsetD8Async", CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(error_of([&] { static_cast<void>(module->workspace(nullptr, kBytes)); }));
  CHECK(stub::live_allocations() == before);
}

TEST_CASE("the largest entry decides the size, and more than it is refused") {
  const StubSession session;
  Binary binary = split_binary();
  Entry larger = binary.entries.front();
  larger.up_to = 640;
  larger.workspace = {.counter_bytes = 64, .bytes_per_tile = 512};
  binary.entries.push_back(larger);  // 20 tiles: 64 bytes of counters, and 10240
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(binary));
  CHECK_NOTHROW(static_cast<void>(module->workspace(nullptr, 64 + 10240)));
  const auto error = error_of([&] { static_cast<void>(module->workspace(nullptr, 64 + 10240 + 1)); });
  CHECK(says(error, "a workspace of 10305 bytes, where the kernel's largest has 10304"));
}

TEST_CASE("a kernel for any batch takes what its batches need, not what the largest would") {
  const StubSession session;
  Binary binary = split_binary();
  binary.entries.front().up_to = 32 << 20;
  binary.entries.front().workspace = {.counter_bytes = 64, .bytes_per_tile = 1 << 20};  // a bound of 2^40
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(binary));
  constexpr std::int64_t kMiB = 1 << 20;
  const cuda::Stream stream;
  const cuda::Stream other;
  const std::size_t before = stub::live_allocations();
  void* const small = module->workspace(stream.handle(), 1);
  CHECK(module->workspace(stream.handle(), kMiB) == small);
  void* const large = module->workspace(stream.handle(), 17 * kMiB);
  CHECK(large != small);
  CHECK(is_zero(large, 32 * kMiB));
  CHECK(module->workspace(stream.handle(), 32 * kMiB) == large);
  CHECK(module->workspace(stream.handle(), 1) == large);
  CHECK(stub::live_allocations() == before + 2);
  CHECK(module->workspace(other.handle(), 17 * kMiB) != large);
  stub::reuse_handle(stream.handle());
  std::memset(small, 1, kMiB);
  void* const again = module->workspace(stream.handle(), kMiB);
  CHECK((again == small || again == large));
  CHECK(is_zero(again, kMiB));
  CHECK(module->workspace(stream.handle(), 32 * kMiB) == large);
  CHECK(stub::live_allocations() == before + 3);
}

TEST_CASE("workspaces go with their module") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const std::size_t before = stub::live_allocations();
  {
    const auto module = device->load(shared(split_binary()));
    const cuda::Stream stream;
    static_cast<void>(module->workspace(nullptr, kBytes));
    static_cast<void>(module->workspace(stream.handle(), kBytes));
    CHECK(stub::live_allocations() == before + 2);
  }
  CHECK(stub::live_allocations() == before);
}

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulator/driver/session.h"

namespace {

using Words = std::vector<std::uint32_t>;

CUstream make_stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, flags) == CUDA_SUCCESS);
  return stream;
}

CUevent make_event(unsigned flags = CU_EVENT_DEFAULT) {
  CUevent event = nullptr;
  REQUIRE(cuEventCreate(&event, flags) == CUDA_SUCCESS);
  return event;
}

/// Captures what `record` queues on a stream, ready to be launched.
template <class Record>
CUgraphExec capture(CUstream stream, Record record) {
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
  record();
  return end_capture(stream);
}

CUstreamCaptureStatus status_of(CUstream stream) {
  CUstreamCaptureStatus status{};
  REQUIRE(cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS);
  return status;
}

}  // namespace

TEST_CASE(
    "streams have numbers of their own, those of every context included, and are known while they live") {
  const Session session;
  const CUstream first = make_stream();
  const CUstream second = make_stream(CU_STREAM_DEFAULT);
  std::set<unsigned long long> ids;
  for (const CUstream stream : {first, second, CUstream{nullptr}, CU_STREAM_PER_THREAD}) {
    unsigned long long id = 0;
    CHECK(cuStreamGetId(stream, &id) == CUDA_SUCCESS);
    ids.insert(id);
    CHECK(cuStreamQuery(stream) == CUDA_SUCCESS);
    CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CUcontext context = nullptr;
    CHECK(cuStreamGetCtx(stream, &context) == CUDA_SUCCESS);
    CHECK(context == session.context());
  }
  CHECK(ids.size() == 4);
  CHECK(cuStreamDestroy(first) == CUDA_SUCCESS);
  CHECK(cuStreamDestroy(first) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuStreamSynchronize(first) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuStreamDestroy(nullptr) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuStreamCreate(nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
  CUstream stream = nullptr;
  CHECK(cuStreamCreate(&stream, 99) == CUDA_ERROR_INVALID_VALUE);
  int priority = 5;
  REQUIRE(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -100) == CUDA_SUCCESS);
  CHECK(cuStreamGetPriority(stream, &priority) == CUDA_SUCCESS);
  CHECK(priority == -5);
}

TEST_CASE("a stream of one context is invalid in another") {
  const Session first(0);
  const CUstream stream = make_stream();
  const Session second(1);
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuMemsetD8Async(upload({1}), 0, 1, stream) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("the time between two events is not negative, and an event that was not recorded has none") {
  const Session session;
  const CUevent start = make_event();
  const CUevent stop = make_event();
  const CUevent timeless = make_event(CU_EVENT_DISABLE_TIMING);
  float milliseconds = -1;
  CHECK(cuEventElapsedTime(&milliseconds, start, stop) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuEventQuery(start) == CUDA_SUCCESS);
  CHECK(cuEventRecord(start, nullptr) == CUDA_SUCCESS);
  CHECK(cuEventRecord(stop, CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
  CHECK(cuEventRecord(timeless, nullptr) == CUDA_SUCCESS);
  CHECK(cuEventSynchronize(stop) == CUDA_SUCCESS);
  CHECK(cuEventElapsedTime(&milliseconds, start, stop) == CUDA_SUCCESS);
  CHECK(milliseconds >= 0);
  CHECK(cuEventElapsedTime(&milliseconds, start, timeless) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuEventElapsedTime(nullptr, start, stop) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuEventRecord(nullptr, nullptr) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuEventDestroy(stop) == CUDA_SUCCESS);
  CHECK(cuEventDestroy(stop) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuEventCreate(nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
  CUevent event = nullptr;
  CHECK(cuEventCreate(&event, 64) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("captured work runs whenever the graph runs") {
  const Session session;
  const CUfunction add_one = kernel(load_test_ptx(), "add_one");
  const CUdeviceptr memory = upload({10, 20});
  const CUstream stream = make_stream();
  const CUgraphExec graph = capture(stream, [&] {
    CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK(launch_add_one(add_one, memory, 2, stream) == CUDA_SUCCESS);
    CHECK(cuMemcpyDtoDAsync(memory + 4, memory, 4, stream) == CUDA_SUCCESS);
  });
  CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK(download(memory, 2) == Words{10, 20});
  CHECK(cuGraphLaunch(graph, stream) == CUDA_SUCCESS);
  CHECK(cuGraphLaunch(graph, nullptr) == CUDA_SUCCESS);
  CHECK(download(memory, 2) == Words{12, 12});
  CHECK(cuGraphExecDestroy(graph) == CUDA_SUCCESS);
  CHECK(cuGraphExecDestroy(graph) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphLaunch(graph, stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(emulatorHeld().graphs == 0);
}

TEST_CASE("a captured launch keeps its parameters") {
  const Session session;
  const CUfunction add_one = kernel(load_test_ptx(), "add_one");
  const CUdeviceptr memory = upload({1, 1, 1});
  const CUstream stream = make_stream();
  CUgraphExec graph = nullptr;
  {
    std::uint32_t n = 2;
    CUdeviceptr pointer = memory;
    graph = capture(stream, [&] { CHECK(launch_add_one(add_one, pointer, n, stream) == CUDA_SUCCESS); });
    n = 3;
    pointer = 0;
  }
  CHECK(cuGraphLaunch(graph, stream) == CUDA_SUCCESS);
  CHECK(download(memory, 3) == Words{2, 2, 1});
}

TEST_CASE("streams join a capture through events, and must be joined again before it ends") {
  const Session session;
  const CUfunction add_one = kernel(load_test_ptx(), "add_one");
  const CUdeviceptr memory = upload({1});
  const CUstream main = make_stream();
  const CUstream side = make_stream();
  const CUevent fork = make_event();
  const CUevent join = make_event();
  const auto branch = [&] {
    CHECK(cuEventRecord(fork, main) == CUDA_SUCCESS);
    CHECK(cuStreamWaitEvent(side, fork, 0) == CUDA_SUCCESS);
    CHECK(status_of(side) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK(launch_add_one(add_one, memory, 1, side) == CUDA_SUCCESS);
  };
  const CUgraphExec graph = capture(main, [&] {
    branch();
    CHECK(cuEventRecord(join, side) == CUDA_SUCCESS);
    CHECK(cuStreamWaitEvent(main, join, 0) == CUDA_SUCCESS);
    CHECK(launch_add_one(add_one, memory, 1, main) == CUDA_SUCCESS);
  });
  CHECK(status_of(side) == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK(cuGraphLaunch(graph, main) == CUDA_SUCCESS);
  CHECK(download(memory, 1) == Words{3});

  REQUIRE(cuStreamBeginCapture(main, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  branch();
  CUgraph none = nullptr;
  CHECK(cuStreamEndCapture(main, &none) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  CHECK(none == nullptr);
  CHECK(cuEventQuery(fork) == CUDA_ERROR_CAPTURED_EVENT);
}

TEST_CASE("a call that a capture does not allow is refused, and invalidates the capture") {
  const Session session;
  const CUdeviceptr memory = upload({1});
  const CUstream stream = make_stream();
  CUgraph graph = nullptr;
  const auto spoilt_by = [&](auto action, CUresult answer) {
    REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHECK(action() == answer);
    CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CHECK(cuMemsetD8Async(memory, 0, 1, stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
  };
  CUdeviceptr more = 0;
  CUmodule module = nullptr;
  CUmodule loaded = load_test_ptx();
  constexpr CUresult kUnsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  spoilt_by([&] { return cuMemAlloc(&more, 4); }, kUnsupported);
  spoilt_by([&] { return cuMemFree(memory); }, kUnsupported);
  spoilt_by([&] { return cuModuleUnload(loaded); }, kUnsupported);
  spoilt_by([&] { return cuStreamSynchronize(stream); }, kUnsupported);
  spoilt_by([&] { return cuCtxSynchronize(); }, kUnsupported);
  spoilt_by([&] { return cuModuleLoadData(&module, test_ptx().c_str()); }, kUnsupported);
  spoilt_by([&] { return cuMemsetD8(memory, 0, 1); }, kUnsupported);
  CHECK(download(memory, 1) == Words{1});
}

TEST_CASE("the legacy stream cannot wait for a captured stream, and non-blocking streams can continue") {
  const Session session;
  const CUdeviceptr memory = upload({1});
  CUgraph graph = nullptr;
  const CUstream blocking = make_stream(CU_STREAM_DEFAULT);
  REQUIRE(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  CUstreamCaptureStatus status{};
  CHECK(cuStreamIsCapturing(nullptr, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CHECK(status_of(blocking) == CU_STREAM_CAPTURE_STATUS_ACTIVE);  // asking spoils nothing
  CHECK(cuMemsetD8Async(memory, 7, 1, nullptr) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CHECK(cuStreamEndCapture(blocking, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  const CUstream free = make_stream();
  REQUIRE(cuStreamBeginCapture(free, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  CHECK(cuMemsetD8Async(memory, 7, 1, nullptr) == CUDA_SUCCESS);
  CHECK(cuStreamEndCapture(free, &graph) == CUDA_SUCCESS);
  CHECK(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED) ==
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

TEST_CASE("a thread that relaxes its mode may allocate while others capture, and can restore its mode") {
  const Session session;
  const CUstream stream = make_stream();
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  std::thread([&] {
    CHECK(cuCtxSetCurrent(session.context()) == CUDA_SUCCESS);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 4) == CUDA_SUCCESS);
    CHECK(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK(cuThreadExchangeStreamCaptureMode(nullptr) == CUDA_ERROR_INVALID_VALUE);
    CUgraph graph = nullptr;
    CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  CUgraph graph = nullptr;
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_ILLEGAL_STATE);
}

TEST_CASE("a fault in a graph is returned by the next call, like that of a launch") {
  const Session session;
  const CUfunction add_one = kernel(load_test_ptx(), "add_one");
  const CUdeviceptr memory = upload({1});
  const CUstream stream = make_stream();
  const CUgraphExec graph =
      capture(stream, [&] { CHECK(launch_add_one(add_one, memory, 64, stream) == CUDA_SUCCESS); });
  CHECK(cuGraphLaunch(graph, stream) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a host function runs in the order of its stream") {
  const Session session;
  const CUdeviceptr memory = upload({1});
  int seen = 0;
  CHECK(cuLaunchHostFunc(nullptr, [](void* data) { *static_cast<int*>(data) = 5; }, &seen) == CUDA_SUCCESS);
  CHECK(seen == 5);
  CHECK(cuLaunchHostFunc(nullptr, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(download(memory, 1) == Words{1});
}

TEST_CASE(
    "a host function may not call the driver, queued or in a graph, and the driver continues after "
    "it") {
  const Session session;
  struct Answers {
    CUdeviceptr memory;
    CUfunction add_one;
    std::vector<CUresult> results;
  } answers{upload({1}), kernel(load_test_ptx(), "add_one"), {}};
  const CUhostFn calls = [](void* data) {
    auto& to = *static_cast<Answers*>(data);
    CUdeviceptr more = 0;
    CUcontext context = nullptr;
    std::uint32_t word = 0;
    to.results.push_back(cuCtxSynchronize());
    to.results.push_back(cuMemcpyDtoH(&word, to.memory, 4));
    to.results.push_back(launch_add_one(to.add_one, to.memory, 1));
    to.results.push_back(cuMemAlloc(&more, 4));
    to.results.push_back(cuMemFree(to.memory));
    to.results.push_back(cuCtxGetCurrent(&context));
    to.results.push_back(cuStreamSynchronize(nullptr));
  };
  REQUIRE(cuLaunchHostFunc(nullptr, calls, &answers) == CUDA_SUCCESS);
  const CUstream stream = make_stream();
  const CUgraphExec graph =
      capture(stream, [&] { CHECK(cuLaunchHostFunc(stream, calls, &answers) == CUDA_SUCCESS); });
  REQUIRE(cuGraphLaunch(graph, stream) == CUDA_SUCCESS);
  CHECK(answers.results == std::vector<CUresult>(14, CUDA_ERROR_NOT_PERMITTED));
  CHECK(launch_add_one(answers.add_one, answers.memory, 1) == CUDA_SUCCESS);
  CHECK(download(answers.memory, 1) == Words{2});
}

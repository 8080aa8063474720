#include "runtime/cuda/stream.h"

#include <cuda.h>
#include <doctest/doctest.h>

#include <sparsekiln/error.h>

#include "runtime/cuda/device.h"
#include "tests/runtime/cuda/stub_session.h"

using namespace sparsekiln;

TEST_CASE("a captured launch runs with its graph, as often as that is launched") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(stub_binary()));
  const cuda::Stream stream;
  stub::record();
  stream.begin_capture();
  Launch launch;
  launch.n = 64;
  launch.stream = stream.handle();
  module->launch(0, launch);
  const cuda::Graph graph = stream.end_capture();
  CHECK(stub::launches().empty());
  graph.launch(stream.handle());
  graph.launch(stream.handle());
  stream.synchronize();
  REQUIRE(stub::launches().size() == 2);
  CHECK(stub::launches().front().captured);
  CHECK(stub::calls() == std::vector<std::string>{"cuStreamBeginCapture", "cuLaunchKernel",
                                                  "cuStreamEndCapture", "cuGraphInstantiateWithFlags",
                                                  "cuGraphLaunch", "cuGraphLaunch", "cuStreamSynchronize"});
}

TEST_CASE("a timer measures from its start to its stop") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const cuda::Stream stream;
  const cuda::Timer timer;
  const cuda::Timer between;
  timer.start(stream.handle());
  between.start(stream.handle());
  between.stop(stream.handle());
  timer.stop(stream.handle());
  CHECK(between.milliseconds() == 1.0);  // the stub's clock goes by a millisecond an event
  CHECK(timer.milliseconds() == 3.0);
}

TEST_CASE("a stream without a context is an Error") {
  const StubSession session;
  const auto error = error_of([] { const cuda::Stream stream; });
  CHECK(says(error, "making a stream: CUDA_ERROR_INVALID_CONTEXT"));
}

TEST_CASE("a kernel's fault comes out of a stream's synchronize") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const cuda::Stream stream;
  stub::fail_next("cuStreamSynchronize", CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(says(error_of([&] { stream.synchronize(); }), "waiting for a stream: CUDA_ERROR_ILLEGAL_ADDRESS"));
}

#include "runtime/cuda/stream.h"

#include <memory>
#include <thread>

#include <cuda.h>
#include <doctest/doctest.h>

#include <sparsekiln/error.h>

#include "runtime/cuda/device.h"
#include "runtime/sampler.h"
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

TEST_CASE("a launch that may overlap is captured as such where graphs keep that, otherwise as a plain one") {
  for (const int version : {12020, 12030}) {
    CAPTURE(version);
    const StubSession session(true);
    stub::set_version(version);
    Binary binary = stub_binary();
    binary.entries.front().attributes.overlaps_previous = true;
    const auto device = cuda::open_device(0);
    const auto module = device->load(shared(binary));
    const cuda::Stream stream;
    stub::record();
    Launch launch;
    launch.n = 64;
    launch.stream = stream.handle();
    module->launch(0, launch);
    stream.begin_capture();
    module->launch(0, launch);
    const cuda::Graph graph = stream.end_capture();
    graph.launch(stream.handle());
    stream.synchronize();
    REQUIRE(stub::launches().size() == 2);
    CHECK(stub::launches()[0].overlaps_previous);
    CHECK(stub::launches()[1].captured);
    CHECK(stub::launches()[1].overlaps_previous == (version == 12030));
  }
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

TEST_CASE("streams, graphs and timers are made, used and destroyed on threads without a context") {
  const StubSession session;
  std::thread([] {
    auto stream = std::make_unique<cuda::Stream>();
    auto timer = std::make_unique<cuda::Timer>();
    stub::set_current(nullptr);
    timer->start(stream->handle());
    stream->begin_capture();
    auto graph = std::make_unique<cuda::Graph>(stream->end_capture());
    graph->launch(stream->handle());
    timer->stop(stream->handle());
    stream->synchronize();
    CHECK(timer->milliseconds() == 1.0);
    graph.reset();
    timer.reset();
    stream.reset();
    CHECK(stub::current() == nullptr);
  }).join();
}

TEST_CASE("a stream of a context is made in it, whichever is current") {
  const StubSession session;
  const auto first = cuda::Context::open(0);
  const auto second = cuda::Context::open(1);
  const cuda::Stream stream(second);
  const cuda::Timer timer(second);
  CHECK_NOTHROW(timer.start(stream.handle()));
  CHECK_NOTHROW(stream.synchronize());
  CHECK(stub::current() == first->handle());
}

TEST_CASE("a sampler times on its device, where another context is current") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const auto module = device->load(shared(stub_binary()));
  void* const other = stub::create_context(0);
  stub::set_current(other);
  Launch launch;
  launch.n = 64;
  const Sampler sampler(*device, [&](void* stream) {
    launch.stream = stream;
    module->launch(0, launch);
  });
  CHECK(sampler.sample_ms() > 0);
  CHECK(stub::current() == other);
}

TEST_CASE("a kernel's fault comes out of a stream's synchronize") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const cuda::Stream stream;
  stub::fail_next("cuStreamSynchronize", CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(says(error_of([&] { stream.synchronize(); }), "waiting for a stream: CUDA_ERROR_ILLEGAL_ADDRESS"));
}

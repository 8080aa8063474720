#include "runtime/cuda/stream.h"

#include <new>
#include <utility>

namespace sparsekiln::cuda {

Graph::Graph(Graph&& other) noexcept
    : context_(std::move(other.context_)), executable_(std::exchange(other.executable_, nullptr)) {}

Graph::~Graph() {
  if (executable_ == nullptr) return;
  const ContextScope scope(*context_, std::nothrow);
  if (scope.entered()) static_cast<void>(context_->api().graph_exec_destroy(executable_));
}

void Graph::launch(void* stream) const {
  const ContextScope scope(*context_);
  context_->driver().check(context_->api().graph_launch(executable_, static_cast<CUstream>(stream)),
                           "launching a graph");
}

Stream::Stream(std::shared_ptr<const Context> context) : context_(std::move(context)) {
  const ContextScope scope(*context_);
  context_->driver().check(context_->api().stream_create(&stream_, CU_STREAM_NON_BLOCKING),
                           "making a stream");
}

Stream::~Stream() {
  const ContextScope scope(*context_, std::nothrow);
  if (scope.entered()) static_cast<void>(context_->api().stream_destroy(stream_));
}

void Stream::synchronize() const {
  const ContextScope scope(*context_);
  context_->driver().check(context_->api().stream_synchronize(stream_), "waiting for a stream");
}

void Stream::begin_capture() const {
  const ContextScope scope(*context_);
  context_->driver().check(context_->api().stream_begin_capture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                           "beginning to capture a stream");
}

Graph Stream::end_capture() const {
  const ContextScope scope(*context_);
  const Driver& driver = context_->driver();
  const DriverApi& api = context_->api();
  CUgraph graph = nullptr;
  driver.check(api.stream_end_capture(stream_, &graph), "ending the capture of a stream");
  CUgraphExec executable = nullptr;
  const CUresult result = api.graph_instantiate(&executable, graph, 0);
  static_cast<void>(api.graph_destroy(graph));
  driver.check(result, "making a captured graph ready");
  return {context_, executable};
}

Timer::Timer(std::shared_ptr<const Context> context) : context_(std::move(context)) {
  const ContextScope scope(*context_);
  const Driver& driver = context_->driver();
  const DriverApi& api = context_->api();
  driver.check(api.event_create(&start_, CU_EVENT_DEFAULT), "making an event");
  if (const CUresult result = api.event_create(&stop_, CU_EVENT_DEFAULT); result != CUDA_SUCCESS) {
    static_cast<void>(api.event_destroy(start_));
    driver.fail(result, "making an event");
  }
}

Timer::~Timer() {
  const ContextScope scope(*context_, std::nothrow);
  if (!scope.entered()) return;
  static_cast<void>(context_->api().event_destroy(start_));
  static_cast<void>(context_->api().event_destroy(stop_));
}

void Timer::start(void* stream) const {
  const ContextScope scope(*context_);
  context_->driver().check(context_->api().event_record(start_, static_cast<CUstream>(stream)),
                           "recording an event");
}

void Timer::stop(void* stream) const {
  const ContextScope scope(*context_);
  context_->driver().check(context_->api().event_record(stop_, static_cast<CUstream>(stream)),
                           "recording an event");
}

double Timer::milliseconds() const {
  const ContextScope scope(*context_);
  const Driver& driver = context_->driver();
  driver.check(context_->api().event_synchronize(stop_), "waiting for an event");
  float elapsed = 0;
  driver.check(context_->api().event_elapsed_time(&elapsed, start_, stop_), "measuring between two events");
  return elapsed;
}

}  // namespace sparsekiln::cuda

#include "runtime/cuda/stream.h"

#include <utility>

namespace sparsekiln::cuda {

Graph::Graph(Graph&& other) noexcept
    : driver_(std::move(other.driver_)), executable_(std::exchange(other.executable_, nullptr)) {}

Graph::~Graph() {
  if (executable_ != nullptr) static_cast<void>(driver_->api().graph_exec_destroy(executable_));
}

void Graph::launch(void* stream) const {
  driver_->check(driver_->api().graph_launch(executable_, static_cast<CUstream>(stream)),
                 "launching a graph");
}

Stream::Stream() : driver_(Driver::find()) {
  driver_->check(driver_->api().stream_create(&stream_, CU_STREAM_NON_BLOCKING), "making a stream");
}

Stream::~Stream() { static_cast<void>(driver_->api().stream_destroy(stream_)); }

void Stream::synchronize() const {
  driver_->check(driver_->api().stream_synchronize(stream_), "waiting for a stream");
}

void Stream::begin_capture() const {
  driver_->check(driver_->api().stream_begin_capture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                 "beginning to capture a stream");
}

Graph Stream::end_capture() const {
  const DriverApi& api = driver_->api();
  CUgraph graph = nullptr;
  driver_->check(api.stream_end_capture(stream_, &graph), "ending the capture of a stream");
  CUgraphExec executable = nullptr;
  const CUresult result = api.graph_instantiate(&executable, graph, 0);
  static_cast<void>(api.graph_destroy(graph));
  driver_->check(result, "making a captured graph ready");
  return {driver_, executable};
}

Timer::Timer() : driver_(Driver::find()) {
  driver_->check(driver_->api().event_create(&start_, CU_EVENT_DEFAULT), "making an event");
  if (const CUresult result = driver_->api().event_create(&stop_, CU_EVENT_DEFAULT); result != CUDA_SUCCESS) {
    static_cast<void>(driver_->api().event_destroy(start_));
    driver_->fail(result, "making an event");
  }
}

Timer::~Timer() {
  static_cast<void>(driver_->api().event_destroy(start_));
  static_cast<void>(driver_->api().event_destroy(stop_));
}

void Timer::start(void* stream) const {
  driver_->check(driver_->api().event_record(start_, static_cast<CUstream>(stream)), "recording an event");
}

void Timer::stop(void* stream) const {
  driver_->check(driver_->api().event_record(stop_, static_cast<CUstream>(stream)), "recording an event");
}

double Timer::milliseconds() const {
  driver_->check(driver_->api().event_synchronize(stop_), "waiting for an event");
  float elapsed = 0;
  driver_->check(driver_->api().event_elapsed_time(&elapsed, start_, stop_), "measuring between two events");
  return elapsed;
}

}  // namespace sparsekiln::cuda

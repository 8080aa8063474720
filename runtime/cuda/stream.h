#pragma once

#include <memory>

#include "runtime/cuda/driver.h"

namespace sparsekiln::cuda {

/// A captured sequence of launches, ready to be launched again.
class Graph {
 public:
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&&) = delete;
  ~Graph();
  /// Queues the whole sequence on a stream.
  void launch(void* stream) const;

 private:
  friend class Stream;
  Graph(std::shared_ptr<const Driver> driver, CUgraphExec executable)
      : driver_(std::move(driver)), executable_(executable) {}

  std::shared_ptr<const Driver> driver_;
  CUgraphExec executable_;
};

/// A stream of the context that is current where it is made. It does not wait for the legacy default stream.
/// For tools and tests; kernels take any stream.
class Stream {
 public:
  Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  [[nodiscard]] void* handle() const noexcept { return stream_; }
  /// Throws `driver` where anything queued before failed.
  void synchronize() const;

  /// From here to `end_capture`, what this thread queues on the stream is not run but recorded.
  void begin_capture() const;
  [[nodiscard]] Graph end_capture() const;

 private:
  std::shared_ptr<const Driver> driver_;
  CUstream stream_ = nullptr;
};

/// Time on the device between two points of a stream of the current context.
class Timer {
 public:
  Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer();

  void start(void* stream) const;
  void stop(void* stream) const;
  /// Waits for `stop`'s point. Throws `driver` where anything queued before it failed.
  [[nodiscard]] double milliseconds() const;

 private:
  std::shared_ptr<const Driver> driver_;
  CUevent start_ = nullptr;
  CUevent stop_ = nullptr;
};

}  // namespace sparsekiln::cuda

#pragma once

#include <memory>

#include "runtime/cuda/context.h"

namespace sparsekiln::cuda {

// Calls of these classes enter their context, on any thread, and leave the thread's current context as it
// was.

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
  Graph(std::shared_ptr<const Context> context, CUgraphExec executable)
      : context_(std::move(context)), executable_(executable) {}

  std::shared_ptr<const Context> context_;
  CUgraphExec executable_;
};

/// A stream of a context, by default of what Context::open(-1) opens. It does not wait for the legacy default
/// stream. For tools and tests; kernels take any stream.
class Stream {
 public:
  explicit Stream(std::shared_ptr<const Context> context = Context::open(-1));
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
  std::shared_ptr<const Context> context_;
  CUstream stream_ = nullptr;
};

/// Time on the device between two points of a stream of a context, by default of what Context::open(-1)
/// opens.
class Timer {
 public:
  explicit Timer(std::shared_ptr<const Context> context = Context::open(-1));
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer();

  void start(void* stream) const;
  void stop(void* stream) const;
  /// Waits for `stop`'s point. Throws `driver` where anything queued before it failed.
  [[nodiscard]] double milliseconds() const;

 private:
  std::shared_ptr<const Context> context_;
  CUevent start_ = nullptr;
  CUevent stop_ = nullptr;
};

}  // namespace sparsekiln::cuda

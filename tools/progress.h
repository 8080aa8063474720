#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string_view>

namespace sparsekiln::tools {

/// How far long work has come, on standard error: a bar that is drawn over where that is a terminal, else a
/// line now and then. Thread-safe.
class Progress {
 public:
  explicit Progress(std::size_t total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Takes the bar away.
  ~Progress();

  /// One more is done; `what` says what, and `found` that it was there already.
  void done(std::string_view what, bool found, bool failed);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(std::string_view what);

  std::mutex mutex_;
  std::size_t total_;
  std::size_t done_ = 0;
  std::size_t found_ = 0;
  std::size_t failed_ = 0;
  bool terminal_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_ = start_;
};

}  // namespace sparsekiln::tools

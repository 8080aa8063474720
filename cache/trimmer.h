#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>

#include <sys/types.h>

#include "cache/caps.h"
#include "cache/folder.h"

namespace sparsekiln::cache {

/// Trims a folder in the background, on a thread that lives as long as one trim. Thread-safe.
///
/// A trim starts after a put if no process has trimmed for ten minutes, or if this process has published 5 %
/// of a cap since its last trim: so n processes exceed the caps by n times 5 % at most.
class Trimmer {
 public:
  Trimmer(const Folder& folder, const Caps& caps) : folder_(folder), caps_(caps) {}
  Trimmer(const Trimmer&) = delete;
  Trimmer& operator=(const Trimmer&) = delete;
  /// A running trim may continue for a second, so that short programs trim as well.
  ~Trimmer();

  /// Call when a file of so many bytes was published.
  void published(std::uint64_t bytes);
  /// Returns when no trim is running.
  void wait();

 private:
  void start();
  void run();
  void end_thread();

  const Folder& folder_;
  Caps caps_;
  std::mutex mutex_;  // protects the members below
  std::thread thread_;
  pid_t process_ = 0;  // the process that started the thread: a forked child has none
  std::uint64_t bytes_ = 0;
  std::uint64_t files_ = 0;
  std::atomic<bool> running_ = false;
  std::atomic<std::chrono::steady_clock::time_point> deadline_{std::chrono::steady_clock::time_point::max()};
};

}  // namespace sparsekiln::cache

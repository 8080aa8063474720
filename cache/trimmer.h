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

/// Trims a folder off the hot path: on a thread that lives as long as one trim. Thread-safe.
///
/// A trim begins after a put where nobody has trimmed for ten minutes, or where this process has published
/// 5 % of a cap since its last trim: so n processes exceed the caps by n times 5 % at most.
class Trimmer {
 public:
  Trimmer(const Folder& folder, const Caps& caps) : folder_(folder), caps_(caps) {}
  Trimmer(const Trimmer&) = delete;
  Trimmer& operator=(const Trimmer&) = delete;
  /// A trim under way may go on for a second, so that programs which end soon trim as well.
  ~Trimmer();

  /// A file of so many bytes was published.
  void published(std::uint64_t bytes);
  /// Returns when no trim is under way.
  void wait();

 private:
  void start();
  void run();
  void end_thread();

  const Folder& folder_;
  Caps caps_;
  std::mutex mutex_;  // of what follows
  std::thread thread_;
  pid_t process_ = 0;  // that started the thread: a forked child has none
  std::uint64_t bytes_ = 0;
  std::uint64_t files_ = 0;
  std::atomic<bool> running_ = false;
  std::atomic<std::chrono::steady_clock::time_point> deadline_{std::chrono::steady_clock::time_point::max()};
};

}  // namespace sparsekiln::cache

#include "cache/trimmer.h"

#include <exception>
#include <system_error>

#include <unistd.h>

#include <sparsekiln/error.h>

#include "cache/trim.h"

namespace sparsekiln::cache {

namespace {

using Monotonic = std::chrono::steady_clock;

constexpr std::chrono::seconds kGrace{1};
/// The number of files that a trim examines or removes at a time, so that readers on the same processor get
/// their turn.
constexpr std::uint64_t kWithoutRest = 64;
constexpr std::chrono::milliseconds kRest{1};
constexpr std::uint64_t kShare = 20;  // of a cap: 5 %

}  // namespace

Trimmer::~Trimmer() {
  deadline_ = Monotonic::now() + kGrace;
  end_thread();
}

void Trimmer::published(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_ += bytes;
  ++files_;
  if (process_ != ::getpid()) end_thread();
  if (running_) return;
  bool due = bytes_ >= caps_.bytes / kShare || files_ >= caps_.files / kShare;
  try {
    due = due || trim_is_due(folder_, WallClock::now());
  } catch (const Error&) {
    return;
  }
  if (due) start();
}

void Trimmer::wait() {
  const std::lock_guard lock(mutex_);
  end_thread();
}

void Trimmer::start() {
  end_thread();
  bytes_ = files_ = 0;
  running_ = true;
  process_ = ::getpid();
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {  // no thread is available: the next put tries again
    running_ = false;
  }
}

void Trimmer::run() {
  // It runs at normal priority: with a lower one it could be stopped for long while the kernel holds the lock
  // of a folder for it, and readers of that folder would wait for that lock.
  try {
    std::uint64_t files = 0;
    trim(folder_, caps_, [this, &files] {
      if (++files % kWithoutRest == 0) std::this_thread::sleep_for(kRest);
      return Monotonic::now() >= deadline_.load();
    });
  } catch (const std::exception&) {  // the disk, or memory: the next trim may succeed
  }
  running_ = false;
}

void Trimmer::end_thread() {
  if (!thread_.joinable()) return;
  if (process_ == ::getpid()) {
    thread_.join();
    return;
  }
  thread_.detach();  // it runs in the process that this one was forked from
  running_ = false;
}

}  // namespace sparsekiln::cache

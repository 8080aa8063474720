#pragma once

#include <cstdint>
#include <memory>

#include <sparsekiln/threads.h>

namespace sparsekiln::cpu {

/// Threads that stay, shared by all kernels of the process. The caller of `run` takes part, and does
/// everything itself where the others are late or busy: a launch never waits for a thread to wake up.
class ThreadPool {
 public:
  /// Work: `passes` passes of `jobs` jobs each; a pass starts when all jobs of the one before
  /// ended.
  struct Work {
    void (*job)(const void* context, std::int32_t pass, std::int64_t job);
    const void* context;
    std::int32_t passes;
    std::int64_t jobs;
    std::int32_t threads;  ///< at most, the caller included
  };

  ThreadPool();
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Returns when all is done. With a team of the process (set_team) it is the team that works. Thread-safe:
  /// where another launch has the pool's threads, the caller works alone.
  /// Makes the threads that are still missing; where the system gives none, those that are there do the work.
  void run(const Work& work);
  /// Waits for the open work, and ends the threads: later work is done by its callers alone.
  void retire();

  /// The pool of this process. A forked child begins with one of its own.
  [[nodiscard]] static ThreadPool& shared();

 private:
  class Open;
  struct State;
  static void run_on(Team team, const Work& work);
  std::unique_ptr<State> state_;
};

}  // namespace sparsekiln::cpu

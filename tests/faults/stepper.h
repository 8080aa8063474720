#pragma once

#include <sys/types.h>

/// A child process that stops at each of its system calls: when it enters one, and when it leaves it.
class Stepper {
 public:
  /// Forks a child that runs `work` and ends with status 0. `allowed` is false where the system does not let
  /// one process trace another.
  template <typename Work>
  explicit Stepper(Work work) : child_(fork_stopped()) {
    if (child_ != 0) return;
    work();
    leave();
  }
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;
  ~Stepper();

  [[nodiscard]] bool allowed() const { return child_ > 0; }
  /// Lets it run to its next stop; false when it has ended instead.
  bool step();
  /// Ends it where it stands, as SIGKILL does, and returns when it has ended.
  void kill();

 private:
  /// 0 in the child; -1 where there can be none.
  static pid_t fork_stopped();
  [[noreturn]] static void leave();

  pid_t child_;
};

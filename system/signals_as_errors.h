#pragma once

#include <csignal>

namespace sparsekiln {

/// While this exists, what this thread writes ends no program: at a limit of file sizes (`ulimit -f`) and at
/// a pipe or socket that no process reads, the call fails with EFBIG or EPIPE, and the signal that comes with
/// it, SIGXFSZ or SIGPIPE, is blocked here and taken back before the end. The kernel sends both to the thread
/// that writes, so neither other threads nor the program's own handlers see a difference. A signal that
/// another process had sent before stays pending.
class SignalsAsErrors {
 public:
  SignalsAsErrors();
  SignalsAsErrors(const SignalsAsErrors&) = delete;
  SignalsAsErrors& operator=(const SignalsAsErrors&) = delete;
  /// Leaves errno as it is.
  ~SignalsAsErrors();

 private:
  sigset_t ours_{};    ///< those that were not pending before
  sigset_t before_{};  ///< the thread's mask
};

}  // namespace sparsekiln

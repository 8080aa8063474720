#include "system/signals_as_errors.h"

#include <cerrno>
#include <ctime>
#include <initializer_list>

namespace sparsekiln {

SignalsAsErrors::SignalsAsErrors() {
  sigset_t pending;
  sigpending(&pending);
  sigemptyset(&ours_);
  for (const int signal : {SIGPIPE, SIGXFSZ})
    if (sigismember(&pending, signal) == 0) sigaddset(&ours_, signal);
  pthread_sigmask(SIG_BLOCK, &ours_, &before_);
}

SignalsAsErrors::~SignalsAsErrors() {
  const int error = errno;
  constexpr timespec kNow{};
  while (sigtimedwait(&ours_, nullptr, &kNow) > 0 || errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

}  // namespace sparsekiln

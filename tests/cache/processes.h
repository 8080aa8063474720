#pragma once

#include <sys/wait.h>
#include <unistd.h>

/// Runs `work` in a forked child, whose exit status it is.
template <typename Work>
pid_t in_child(Work work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  return child;
}

/// The child's status as waitpid gives it; -1 where it could not be waited for.
inline int wait_for(pid_t child) {
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return -1;
  return status;
}

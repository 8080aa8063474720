#include "tests/faults/stepper.h"

#include <csignal>

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t Stepper::fork_stopped() {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(1);
    ::raise(SIGSTOP);
    return 0;
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return -1;
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_EXITKILL);
  return child;
}

void Stepper::leave() { ::_exit(0); }

Stepper::~Stepper() { kill(); }

bool Stepper::step() {
  int status = 0;
  if (child_ <= 0 || ::ptrace(PTRACE_SYSCALL, child_, nullptr, nullptr) != 0) return false;
  if (::waitpid(child_, &status, 0) == child_ && WIFSTOPPED(status)) return true;
  child_ = 0;
  return false;
}

void Stepper::kill() {
  if (child_ <= 0) return;
  int status = 0;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, &status, 0);
  child_ = 0;
}

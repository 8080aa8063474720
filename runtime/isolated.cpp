#include "runtime/isolated.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "system/file.h"

namespace sparsekiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollMs = 5;
constexpr int kEndingMs = 1;
/// The first byte of what a child writes; the rest is the result, or the message.
constexpr std::byte kDone{1};
constexpr std::byte kThrew{2};

/// A child process, which does not outlive this.
class Process {
 public:
  explicit Process(pid_t id) : id_(id) {}
  Process(Process&& other) noexcept : id_(std::exchange(other.id_, 0)) {}
  Process& operator=(Process&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Process() {
    if (id_ == 0) return;
    ::kill(id_, SIGKILL);
    wait(0);
  }

  /// Its status as waitpid gives it, once it has ended; nothing before.
  [[nodiscard]] std::optional<int> ended() { return wait(WNOHANG); }

 private:
  std::optional<int> wait(int how) {
    int status = 0;
    pid_t got = 0;
    while ((got = ::waitpid(id_, &status, how)) < 0 && errno == EINTR) {
    }
    if (got == 0) return std::nullopt;
    id_ = 0;
    return status;
  }
  pid_t id_;
};

struct Child {
  std::size_t index = 0;
  Process process;
  Descriptor pipe;  ///< open until the child has closed its end
  Clock::time_point begin;
  std::vector<std::byte> written;
};

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// In the child; never returns.
[[noreturn]] void serve(const std::function<std::vector<std::byte>(std::size_t)>& work, std::size_t index,
                        pid_t parent, int pipe) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  std::signal(SIGINT, SIG_IGN);  // the terminal sends it to all: the parent decides
  std::byte kind = kDone;
  std::vector<std::byte> bytes;
  const auto threw = [&](const char* message) {
    kind = kThrew;
    const auto text = std::as_bytes(std::span(message, std::strlen(message)));
    bytes.assign(text.begin(), text.end());
  };
  try {
    bytes = work(index);
  } catch (const std::exception& error) {
    threw(error.what());
  } catch (...) {
    threw("an exception of no known type");
  }
  const bool sent = write_all(pipe, std::span(&kind, 1)) == 0 && write_all(pipe, bytes) == 0;
  ::_exit(sent ? 0 : 1);  // nothing of the parent's is flushed or destroyed
}

/// Nothing where the system has no process or pipe left; `why` then says so.
std::optional<Child> begin(const std::function<std::vector<std::byte>(std::size_t)>& work, std::size_t index,
                           std::string& why) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    why = fmt::format("there is no pipe for it: {}", std::generic_category().message(errno));
    return std::nullopt;
  }
  Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t process = ::fork();
  if (process == 0) serve(work, index, parent, writing.get());
  if (process < 0) {
    why = fmt::format("there is no process for it: {}", std::generic_category().message(errno));
    return std::nullopt;
  }
  ::fcntl(reading.get(), F_SETFL, O_NONBLOCK);
  return Child{index, Process(process), std::move(reading), Clock::now(), {}};
}

/// Takes what the pipe has. False once it is closed.
bool drain(Child& child) {
  std::array<std::byte, 4096> buffer;
  for (;;) {
    const ssize_t got = ::read(child.pipe.get(), buffer.data(), buffer.size());
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    child.written.insert(child.written.end(), buffer.begin(), buffer.begin() + got);
  }
}

/// The result of a child that has closed its pipe and ended.
Isolated conclude(Child& child, int status) {
  Isolated result;
  result.ms = ms_since(child.begin);
  const bool whole = WIFEXITED(status) && WEXITSTATUS(status) == 0 && !child.written.empty();
  const std::byte kind = child.written.empty() ? std::byte{} : child.written.front();
  if (whole && (kind == kDone || kind == kThrew)) {
    child.written.erase(child.written.begin());
    result.end = kind == kDone ? Isolated::End::done : Isolated::End::threw;
    if (kind == kThrew)
      result.message.assign(reinterpret_cast<const char*>(child.written.data()), child.written.size());
    else
      result.bytes = std::move(child.written);
    return result;
  }
  result.end = Isolated::End::crashed;
  result.message = WIFSIGNALED(status) ? fmt::format("its process was ended by signal {} ({})",
                                                     WTERMSIG(status), ::strsignal(WTERMSIG(status)))
                                       : fmt::format("its process ended with status {}", WEXITSTATUS(status));
  return result;
}

/// How it ended; nothing while it runs.
std::optional<Isolated> look(Child& child, std::chrono::milliseconds limit) {
  if (child.pipe.open() && !drain(child)) child.pipe = Descriptor();
  if (!child.pipe.open())
    if (const auto status = child.process.ended()) return conclude(child, *status);
  if (Clock::now() - child.begin <= limit) return std::nullopt;
  return Isolated{Isolated::End::late,
                  fmt::format("it was not done after {} ms", limit.count()),
                  {},
                  ms_since(child.begin)};
}

/// Waits a little, for less where a child has said all and is about to end.
void wait_for_any(const std::vector<Child>& children) {
  std::vector<pollfd> waiting;
  int ms = kPollMs;
  for (const Child& child : children) {
    if (child.pipe.open())
      waiting.push_back({child.pipe.get(), POLLIN, 0});
    else
      ms = kEndingMs;
  }
  ::poll(waiting.data(), waiting.size(), ms);
}

}  // namespace

void run_isolated(std::size_t count, std::size_t at_once, std::chrono::milliseconds limit,
                  const std::function<std::vector<std::byte>(std::size_t)>& work,
                  const std::function<void(std::size_t, Isolated)>& done, const std::function<bool()>& stop) {
  std::vector<Child> children;
  std::size_t next = 0;
  while (next < count || !children.empty()) {
    const bool stopped = stop && stop();
    if (stopped) {
      while (!children.empty()) {
        const Child last = std::move(children.back());
        children.pop_back();
        done(last.index, {Isolated::End::stopped, "stopped", {}, ms_since(last.begin)});
      }
      for (; next < count; ++next) done(next, {Isolated::End::stopped, "stopped", {}, 0});
      return;
    }
    while (next < count && children.size() < std::max<std::size_t>(at_once, 1)) {
      std::string why;
      if (auto child = begin(work, next, why))
        children.push_back(std::move(*child));
      else
        done(next, {Isolated::End::stopped, why, {}, 0});  // not its fault: another time it may work
      ++next;
    }
    wait_for_any(children);
    for (std::size_t i = children.size(); i-- > 0;) {
      std::optional<Isolated> result = look(children[i], limit);
      if (!result) continue;
      const std::size_t index = children[i].index;
      children.erase(children.begin() + static_cast<std::ptrdiff_t>(i));
      done(index, std::move(*result));
    }
  }
}

}  // namespace sparsekiln

#include "system/file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include "system/signals_as_errors.h"
#include "tests/system/file_size_limit.h"
#include "tests/temporary_folder.h"

using namespace sparsekiln;

namespace {

constexpr int kNew = O_WRONLY | O_CREAT | O_EXCL;

std::vector<std::byte> bytes(std::size_t count) { return std::vector<std::byte>(count, std::byte{7}); }

bool is_pending(int signal) {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, signal) == 1;
}

bool is_blocked(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

/// A pipe; the end that is read is closed if it is not wanted.
struct Pipe {
  explicit Pipe(bool with_reader, int flags = 0) {
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC | flags) == 0);
    reading = Descriptor(ends[0]);
    writing = Descriptor(ends[1]);
    if (!with_reader) REQUIRE(reading.close() == 0);
  }
  Descriptor reading;
  Descriptor writing;
};

/// The exit status of a child that does this.
template <typename Work>
int status_of_child(Work work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CAPTURE(status);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("at a limit of file sizes, a write fails with EFBIG and ends no program") {
  const test::TemporaryFolder folder;
  const Descriptor file = open_file(folder.path() / "file", kNew, 0600);
  const FileSizeLimit limit(1000);
  CHECK(write_all(file.get(), bytes(1000)) == 0);
  CHECK(write_all(file.get(), bytes(1)) == EFBIG);
  CHECK_FALSE(is_pending(SIGXFSZ));
  CHECK_FALSE(is_blocked(SIGXFSZ));
}

TEST_CASE("at a pipe that no process reads, a write fails with EPIPE and ends no program") {
  const Pipe pipe(false);
  std::signal(SIGPIPE, SIG_DFL);
  CHECK(write_all(pipe.writing.get(), bytes(1)) == EPIPE);
  CHECK_FALSE(is_pending(SIGPIPE));
  CHECK_FALSE(is_blocked(SIGPIPE));
}

TEST_CASE("a handler of the program's own is not called for a failed write, and is called after it") {
  static volatile std::sig_atomic_t calls;
  calls = 0;
  const auto before = std::signal(SIGPIPE, [](int) { calls = calls + 1; });
  const Pipe pipe(false);
  CHECK(write_all(pipe.writing.get(), bytes(1)) == EPIPE);
  CHECK(calls == 0);
  std::raise(SIGPIPE);
  CHECK(calls == 1);
  std::signal(SIGPIPE, before);
}

TEST_CASE("a signal that was pending before a failed write is pending after it") {
  sigset_t set, mask;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &set, &mask);
  ::raise(SIGPIPE);
  const Pipe pipe(false);
  CHECK(write_all(pipe.writing.get(), bytes(1)) == EPIPE);
  CHECK(is_pending(SIGPIPE));
  constexpr timespec kNow{};
  CHECK(sigtimedwait(&set, nullptr, &kNow) == SIGPIPE);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

TEST_CASE("threads that write at the same time at a limit leave no signal pending") {
  const test::TemporaryFolder folder;
  const FileSizeLimit limit(1);
  std::array<int, 4> wrong{};
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < wrong.size(); ++i)
      threads.emplace_back([&, i] {
        const Descriptor file = open_file(folder.path() / std::to_string(i), kNew, 0600);
        for (int times = 0; times < 1000; ++times)
          if (write_all(file.get(), bytes(2)) != EFBIG || is_pending(SIGXFSZ)) ++wrong[i];
      });
  }
  CHECK(wrong == std::array<int, 4>{});
}

TEST_CASE("errno survives the end of a block of signals") {
  const Pipe pipe(false);
  int error = 0;
  {
    const SignalsAsErrors signals_as_errors;
    CHECK(::write(pipe.writing.get(), "x", 1) == -1);
    error = errno;
  }
  CHECK(error == EPIPE);
  CHECK(errno == EPIPE);
}

TEST_CASE("a pipe that is non-blocking gets all of it") {
  Pipe pipe(true, O_NONBLOCK);
  std::size_t arrived = 0;
  std::jthread reader([&] {
    ::fcntl(pipe.reading.get(), F_SETFL, 0);
    std::array<char, 4096> buffer;
    for (ssize_t got = 1; got > 0; arrived += static_cast<std::size_t>(std::max<ssize_t>(got, 0)))
      got = ::read(pipe.reading.get(), buffer.data(), buffer.size());
  });
  CHECK(write_all(pipe.writing.get(), bytes(1 << 20)) == 0);
  CHECK(pipe.writing.close() == 0);
  reader.join();
  CHECK(arrived == std::size_t{1} << 20);
}

TEST_CASE("a file that is opened where standard streams are closed gets none of their numbers") {
  const test::TemporaryFolder folder;
  CHECK(status_of_child([&] {
          for (const int stream : {0, 1, 2}) ::close(stream);
          const Descriptor file = open_file(folder.path() / "file", kNew, 0600);
          const bool untouched =
              ::fcntl(0, F_GETFD) < 0 && ::fcntl(1, F_GETFD) < 0 && ::fcntl(2, F_GETFD) < 0;
          const bool closes = ::fcntl(file.get(), F_GETFD) == FD_CLOEXEC;
          return file.get() > 2 && untouched && closes ? 0 : 1;
        }) == 0);
}

TEST_CASE("a file that cannot be opened says why") {
  CHECK_FALSE(open_file("/proc/no/such/file", O_RDONLY).open());
  CHECK(errno == ENOENT);
}

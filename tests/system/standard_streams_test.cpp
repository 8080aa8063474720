#include "system/standard_streams.h"

#include <cerrno>
#include <string>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sparsekiln/error.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace sparsekiln;

namespace {

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

void redirect(int stream, const char* file) {
  const int opened = ::open(file, O_WRONLY);
  ::dup2(opened, stream);
  ::close(opened);
}

/// What a pipe without a reader is for a stream.
void redirect_to_no_reader(int stream) {
  int ends[2];
  if (::pipe(ends) != 0) ::_exit(99);
  ::dup2(ends[1], stream);
  ::close(ends[0]);
  ::close(ends[1]);
}

/// The message with which results fail; empty where they do not.
std::string failure() {
  try {
    write_results("results\n");
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("a message that cannot be written is ignored") {
  CHECK(status_of_child([] {
          redirect(2, "/dev/full");
          write_message("a message\n");
          redirect_to_no_reader(2);
          write_message("a message\n");
          ::close(2);
          write_message("a message\n");
          return 0;
        }) == 0);
}

TEST_CASE("results that cannot be written say why") {
  CHECK(status_of_child([] {
          redirect(1, "/dev/full");
          return failure() == "cannot write to standard output: No space left on device" ? 0 : 1;
        }) == 0);
  CHECK(status_of_child([] {
          ::close(1);
          hold_standard_streams();
          return failure() == "cannot write to standard output: Bad file descriptor" ? 0 : 1;
        }) == 0);
}

TEST_CASE("a reader of results who has seen enough is no failure") {
  CHECK(status_of_child([] {
          redirect_to_no_reader(1);
          return failure().empty() ? 0 : 1;
        }) == 0);
}

TEST_CASE("closed standard streams stay closed, and no other file gets their numbers") {
  CHECK(status_of_child([] {
          for (const int stream : {0, 1, 2}) ::close(stream);
          hold_standard_streams();
          const int next = ::open("/dev/null", O_RDWR);
          char byte = 0;
          const bool unreadable = ::read(0, &byte, 1) < 0 && errno == EBADF;
          const bool unwritable = ::write(2, &byte, 1) < 0 && errno == EBADF;
          return next == 3 && unreadable && unwritable ? 0 : 1;
        }) == 0);
}

TEST_CASE("open standard streams are left alone") {
  CHECK(status_of_child([] {
          redirect(1, "/dev/null");
          ::close(0);
          hold_standard_streams();
          return failure().empty() ? 0 : 1;
        }) == 0);
}

#include <string>

#include <doctest/doctest.h>

#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "system/executable_memory.h"
#include "tests/temporary_folder.h"

using namespace sparsekiln;

namespace {

constexpr int kDenyWriteExecute = 65;     // PR_SET_MDWE of linux/prctl.h, from 6.3 on
constexpr unsigned long kRefuseGain = 1;  // PR_MDWE_REFUSE_EXEC_GAIN
constexpr int kRight = 0, kWrong = 1, kNotDenied = 2;

/// The message of a compile, in a process that may make no executable memory.
int child(const std::filesystem::path& cache) {
  if (::prctl(kDenyWriteExecute, kRefuseGain, 0, 0, 0) != 0) return kNotDenied;
  if (why_no_executable_memory() != "Permission denied") return kWrong;
  try {
    static_cast<void>(compile(patterns::random(2, 2, 0.5, 1),
                              {.block = {8, 8}, .batch = 4, .target = "cpu", .cache_dir = cache}));
    return kWrong;
  } catch (const Error& error) {
    const std::string message = error.what();
    const bool says = message.find("no executable memory (Permission denied)") != std::string::npos &&
                      message.find("MemoryDenyWriteExecute=no") != std::string::npos;
    return says && error.kind() == ErrorKind::driver ? kRight : kWrong;
  }
}

}  // namespace

TEST_CASE("a process that may make no executable memory is told so, with what would work") {
  CHECK(why_no_executable_memory() == "");
  const test::TemporaryFolder cache;
  const pid_t process = ::fork();
  if (process == 0) ::_exit(child(cache.path()));
  int status = 0;
  REQUIRE(::waitpid(process, &status, 0) == process);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotDenied)
    MESSAGE("this kernel cannot deny executable memory");
  else
    CHECK(WEXITSTATUS(status) == kRight);
}

#include "system/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace sparsekiln;

namespace {

constexpr uid_t kUnusedUser = 54321;

}  // namespace

TEST_CASE("work is called once for each number, on as many threads, the calling one with 0") {
  for (const std::size_t threads : {0, 1, 5}) {
    std::mutex mutex;
    std::vector<std::size_t> numbers;
    std::set<std::thread::id> ids;
    std::thread::id of_zero;
    in_parallel(threads, [&](std::size_t number) {
      const std::lock_guard lock(mutex);
      numbers.push_back(number);
      ids.insert(std::this_thread::get_id());
      if (number == 0) of_zero = std::this_thread::get_id();
    });
    std::sort(numbers.begin(), numbers.end());
    REQUIRE(numbers.size() == std::max<std::size_t>(threads, 1));
    for (std::size_t i = 0; i < numbers.size(); ++i) CHECK(numbers[i] == i);
    CHECK(ids.size() == numbers.size());
    CHECK(of_zero == std::this_thread::get_id());
  }
}

TEST_CASE("what a call throws comes out when all have ended") {
  std::atomic<int> ended = 0;
  CHECK_THROWS_WITH_AS(in_parallel(4,
                                   [&](std::size_t number) {
                                     ++ended;
                                     if (number == 2) throw std::out_of_range("the third");
                                   }),
                       "the third", std::out_of_range);
  CHECK(ended == 4);
}

TEST_CASE("where the system has no thread to give, the calling one does all of the work") {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit one{1, 1};  // which does not hold for root
    if ((::geteuid() == 0 && ::setuid(kUnusedUser) != 0) || ::setrlimit(RLIMIT_NPROC, &one) != 0) ::_exit(2);
    try {
      std::thread([] {}).join();
      ::_exit(3);
    } catch (const std::system_error&) {
    }
    std::atomic<int> next = 0;
    int done = 0;
    in_parallel(3, [&](std::size_t) {
      for (int mine = next++; mine < 10; mine = next++) ++done;
    });
    ::_exit(done == 10 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

#include "runtime/single_flight.h"

#include <atomic>
#include <latch>
#include <stdexcept>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sparsekiln {
namespace {

TEST_CASE("callers that ask while the work is under way get its result without doing it") {
  SingleFlight<int, int> flights;
  std::latch working(1);
  std::latch may_end(1);
  std::atomic<int> runs = 0;
  std::thread first([&] {
    const auto [value, mine] = flights.run(7, [&] {
      ++runs;
      working.count_down();
      may_end.wait();
      return 42;
    });
    CHECK(value == 42);
    CHECK(mine);
  });
  working.wait();
  std::atomic<int> asked = 0;
  std::atomic<int> joined = 0;
  std::vector<std::thread> others;
  for (int other = 0; other < 4; ++other)
    others.emplace_back([&] {
      ++asked;
      const auto [value, mine] = flights.run(7, [&] {
        ++runs;
        return 42;
      });
      CHECK(value == 42);
      joined += mine ? 0 : 1;
    });
  while (asked != 4) std::this_thread::yield();
  CHECK(flights.run(8, [] { return 1; }).first == 1);  // another key does not wait
  may_end.count_down();
  first.join();
  for (std::thread& other : others) other.join();
  CHECK(runs + joined == 5);
  CHECK(runs >= 1);
}

TEST_CASE("a process that is forked while the work is under way does its own") {
  SingleFlight<int, int> flights;
  std::latch working(1);
  std::latch may_end(1);
  std::thread first([&] {
    flights.run(7, [&] {
      working.count_down();
      may_end.wait();
      return 42;
    });
  });
  working.wait();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const auto [value, mine] = flights.run(7, [] { return 43; });
    ::_exit(value == 43 && mine && flights.run(7, [] { return 44; }).second ? 0 : 1);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  may_end.count_down();
  first.join();
}

TEST_CASE("a failure reaches the caller, and the next one tries again") {
  SingleFlight<int, int> flights;
  CHECK_THROWS_AS(flights.run(1, []() -> int { throw std::runtime_error("no"); }), std::runtime_error);
  CHECK(flights.run(1, [] { return 5; }).first == 5);
}

}  // namespace
}  // namespace sparsekiln

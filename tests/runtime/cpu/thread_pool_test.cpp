#include "runtime/cpu/thread_pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

namespace sparsekiln::cpu {
namespace {

constexpr std::int64_t kJobs = 37;

/// Counts every job, and jobs that started before the pass in front of them had ended.
struct Count {
  std::array<std::array<std::atomic<int>, kJobs>, 2> runs{};
  std::array<std::int64_t, kJobs> first_results{};  ///< plain memory, which the second pass reads
  std::atomic<std::int64_t> first_pass{0};
  std::atomic<int> early{0};

  static void job(const void* context, std::int32_t pass, std::int64_t job) {
    auto& self = *const_cast<Count*>(static_cast<const Count*>(context));
    if (pass == 0) {
      if (job % 5 == 0) std::this_thread::yield();
      self.first_results[static_cast<std::size_t>(job)] = job + 1;
      ++self.first_pass;
    } else if (self.first_pass < kJobs ||
               self.first_results[static_cast<std::size_t>(kJobs - 1 - job)] != kJobs - job) {
      ++self.early;
    }
    ++self.runs[static_cast<std::size_t>(pass)][static_cast<std::size_t>(job)];
  }

  void check() const {
    for (const auto& pass : runs)
      for (const auto& run : pass) CHECK(run == 1);
    CHECK(early == 0);
  }
};

TEST_CASE("every job of every pass runs once, and passes do not overlap") {
  for (const std::int32_t threads : {1, 2, 3, 8}) {
    ThreadPool pool;
    for (int turn = 0; turn < 200; ++turn) {
      Count count;
      pool.run({Count::job, &count, 2, kJobs, threads});
      count.check();
    }
  }
}

TEST_CASE("a pool counts right for launches of few and of many threads in turn") {
  ThreadPool pool;
  for (int turn = 0; turn < 20; ++turn)
    for (const std::int32_t threads : {2, 40, 9, 17, 3}) {
      Count count;
      pool.run({Count::job, &count, 2, kJobs, threads});
      count.check();
    }
}

TEST_CASE("callers that meet share the pool without waiting for each other's jobs") {
  ThreadPool pool;
  std::vector<std::jthread> callers;
  std::atomic<int> bad{0};
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int turn = 0; turn < 200; ++turn) {
        Count count;
        pool.run({Count::job, &count, 2, kJobs, 3});
        for (const auto& pass : count.runs)
          for (const auto& run : pass)
            if (run != 1) ++bad;
        if (count.early != 0) ++bad;
      }
    });
  callers.clear();
  CHECK(bad == 0);
}

TEST_CASE("a launch takes no more threads than it may") {
  ThreadPool pool;
  struct Seen {
    std::atomic<int> now{0};
    std::atomic<int> most{0};
  };
  Count count;
  pool.run({Count::job, &count, 2, kJobs, 6});  // so that there are more than may be taken
  for (int turn = 0; turn < 50; ++turn) {
    Seen seen;
    pool.run({[](const void* context, std::int32_t, std::int64_t) {
                auto& self = *const_cast<Seen*>(static_cast<const Seen*>(context));
                const int now = ++self.now;
                for (int most = self.most; now > most && !self.most.compare_exchange_weak(most, now);) {
                }
                std::this_thread::yield();
                --self.now;
              },
              &seen, 1, 64, 2});
    CHECK(seen.most <= 2);
  }
}

/// The threads that take part in 64 jobs of a millisecond.
std::size_t threads_of(ThreadPool& pool, std::int32_t threads) {
  struct Seen {
    std::mutex mutex;
    std::set<std::thread::id> ids;
  } seen;
  pool.run({[](const void* context, std::int32_t, std::int64_t) {
              auto& self = *const_cast<Seen*>(static_cast<const Seen*>(context));
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
              const std::lock_guard lock(self.mutex);
              self.ids.insert(std::this_thread::get_id());
            },
            &seen, 1, 64, threads});
  return seen.ids.size();
}

TEST_CASE("a pool grows with what it is asked for, and does with what is left when it is retired") {
  ThreadPool pool;
  CHECK(threads_of(pool, 1) == 1);
  CHECK(threads_of(pool, 2) <= 2);
  CHECK(threads_of(pool, 6) > 2);
  CHECK(threads_of(pool, 2) <= 2);
  pool.retire();
  CHECK(threads_of(pool, 6) == 1);
}

TEST_CASE("a forked child has a pool with threads of its own") {
  CHECK(threads_of(ThreadPool::shared(), 4) > 1);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(20);
    _exit(threads_of(ThreadPool::shared(), 4) > 1 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

std::atomic<int> bodies{0};

/// A team that calls the body on as many threads as it is asked for, or on one less.
template <unsigned kMissing>
void team_of_new_threads(void (*body)(void*), void* data, unsigned threads, unsigned flags) {
  CHECK(flags == 0);
  std::vector<std::jthread> others;
  for (unsigned i = 1; i + kMissing < threads; ++i)
    others.emplace_back([=] {
      ++bodies;
      body(data);
    });
  ++bodies;
  body(data);
}

struct TeamOfProcess {
  explicit TeamOfProcess(Team team) { set_team(team); }
  ~TeamOfProcess() { set_team(nullptr); }
};

TEST_CASE("a team does all jobs in the order of their passes, on as many threads as it has") {
  for (const Team team : {&team_of_new_threads<0>, &team_of_new_threads<1>}) {
    const TeamOfProcess set(team);
    ThreadPool pool;
    for (const std::int32_t threads : {1, 2, 3, 20}) {
      for (int turn = 0; turn < 20; ++turn) {
        bodies = 0;
        Count count;
        pool.run({Count::job, &count, 2, kJobs, threads});
        count.check();
        CHECK(bodies == (threads == 1 ? 0 : threads - (team == &team_of_new_threads<1> ? 1 : 0)));
      }
    }
  }
  bodies = 0;
  ThreadPool pool;
  CHECK(threads_of(pool, 4) > 1);
  CHECK(bodies == 0);
}

TEST_CASE("a forked child works on threads of its own instead of its parent's team") {
  const TeamOfProcess set(&team_of_new_threads<0>);
  bodies = 0;
  CHECK(threads_of(ThreadPool::shared(), 3) == 3);
  CHECK(bodies == 3);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(20);
    _exit(threads_of(ThreadPool::shared(), 3) > 1 && bodies == 3 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("a pool can be destroyed while its threads look for work, begin to sleep, and sleep") {
  constexpr int kTurns = 500;
  constexpr std::chrono::microseconds kLongest{125};  // twice as long as they look
  for (int turn = 0; turn < kTurns; ++turn) {
    ThreadPool pool;
    Count count;
    pool.run({Count::job, &count, 1, kJobs, 3});
    const auto end = std::chrono::steady_clock::now() + kLongest * turn / kTurns;
    while (std::chrono::steady_clock::now() < end) {
    }
  }
}

TEST_CASE("an idle pool wakes up, and can be destroyed") {
  ThreadPool idle;
  {
    Count count;
    idle.run({Count::job, &count, 2, kJobs, 4});
  }
  ThreadPool pool;
  for (int turn = 0; turn < 3; ++turn) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    Count count;
    pool.run({Count::job, &count, 2, kJobs, 2});
    count.check();
  }
}

}  // namespace
}  // namespace sparsekiln::cpu

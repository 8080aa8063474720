#include "runtime/cpu/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "compiler/host_threads.h"
#include "runtime/team.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::int32_t kMostPasses = 4;
/// Looks at a flag before a thread gives up its processor: some ten microseconds.
constexpr int kSpins = 400;
/// How long a thread looks for the next launch before it sleeps, and how many looks there are between two at
/// the clock: a layer of a Python program, in a loop, comes back in less.
constexpr std::chrono::microseconds kAwake{60};
constexpr int kLooks = 32;
/// How often the caller of a team offers its processor to threads that have not begun.
constexpr int kYields = 100;
/// Threads that count their jobs in one place, and the most such places.
constexpr std::int32_t kSharers = 8;
constexpr std::size_t kMostCounts = 16;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

/// Work that is open, and how far it is.
class ThreadPool::Open {
 public:
  void begin(const Work& work);
  /// Works until there are no more jobs. The caller of `run`, seat 0, returns when all have ended.
  void take_part(std::int32_t seat);

 private:
  /// A counter on a cache line of its own.
  struct alignas(64) Count {
    std::atomic<std::int64_t> value{0};
  };
  /// A pass has these. A thread adds what it has done once, to a count that it shares with few others, or
  /// with many where there are more than kSharers · kMostCounts.
  struct Progress {
    Count next;
    std::array<Count, kMostCounts> done;
  };
  [[nodiscard]] bool all_done(const Progress& pass) const;

  std::array<Progress, kMostPasses> progress_;
  Work work_{};
  std::size_t counts_ = 1;  ///< of each pass that are in use
};

void ThreadPool::Open::begin(const Work& work) {
  work_ = work;
  counts_ = std::min(kMostCounts, static_cast<std::size_t>((work.threads + kSharers - 1) / kSharers));
  for (std::int32_t pass = 0; pass < work.passes; ++pass) {
    Progress& progress = progress_[static_cast<std::size_t>(pass)];
    progress.next.value.store(0, std::memory_order_relaxed);
    for (std::size_t i = 0; i < counts_; ++i) progress.done[i].value.store(0, std::memory_order_relaxed);
  }
}

/// Jobs are handed out one by one, so a thread that the system takes away delays one job, not a share.
void ThreadPool::Open::take_part(std::int32_t seat) {
  for (std::int32_t pass = 0; pass < work_.passes; ++pass) {
    Progress& now = progress_[static_cast<std::size_t>(pass)];
    std::int64_t done = 0;
    for (;;) {
      const std::int64_t job = now.next.value.fetch_add(1, std::memory_order_relaxed);
      if (job >= work_.jobs) break;
      work_.job(work_.context, pass, job);
      ++done;
    }
    if (done > 0)
      now.done[static_cast<std::size_t>(seat) % counts_].value.fetch_add(done, std::memory_order_release);
    // The caller waits for the last pass, and for all to leave.
    if (pass + 1 == work_.passes && seat != 0) return;
    for (int spins = 0; !all_done(now); ++spins) spins < kSpins ? pause() : std::this_thread::yield();
  }
}

bool ThreadPool::Open::all_done(const Progress& pass) const {
  std::int64_t done = 0;
  for (std::size_t i = 0; i < counts_; ++i) done += pass.done[i].value.load(std::memory_order_acquire);
  return done >= work_.jobs;
}

struct ThreadPool::State {
  alignas(64) std::atomic<std::uint32_t> epoch{0};  ///< odd: work is open; threads sleep on it
  alignas(64) std::atomic<std::int32_t> inside{0};  ///< threads that may look at `open`
  alignas(64) std::atomic<std::int32_t> seats{0};   ///< threads that may still join the open work
  Open open;
  std::mutex busy;  ///< held by the caller whose work is open; guards threads
  std::vector<std::jthread> threads;

  bool exhausted = false;

  void reserve(std::int32_t needed);
  void wake(std::int32_t needed);
  void serve(std::stop_token stop);
  void stop();
};

void ThreadPool::State::serve(std::stop_token stop) {
  std::uint32_t seen = 0;
  while (!stop.stop_requested()) {
    std::uint32_t now = epoch.load();
    const auto nothing_to_do = [&] { return now == seen || now % 2 == 0; };
    const auto sleeps_at = std::chrono::steady_clock::now() + kAwake;
    for (int looks = 0; nothing_to_do(); ++looks) {
      if (looks % kLooks == kLooks - 1 && std::chrono::steady_clock::now() >= sleeps_at) break;
      pause();
      now = epoch.load();
    }
    if (nothing_to_do()) {
      // In this order: a stop that comes after the question changes the epoch after `now` was read.
      if (!stop.stop_requested()) epoch.wait(now);
      continue;
    }
    seen = now;
    // Enter, then look again: the caller closes first and counts the threads inside afterwards, so either it
    // sees this thread or this thread sees the work closed (both sides sequentially consistent).
    inside.fetch_add(1);
    if (epoch.load() == now) {
      const std::int32_t seat = seats.fetch_sub(1);
      if (seat > 0) open.take_part(seat);
    }
    inside.fetch_sub(1);
  }
}

ThreadPool::ThreadPool() : state_(std::make_unique<State>()) {}

ThreadPool::~ThreadPool() { state_->stop(); }

void ThreadPool::retire() {
  state_->busy.lock();  // for good
  state_->stop();
}

void ThreadPool::State::stop() {
  for (auto& thread : threads) thread.request_stop();
  epoch.fetch_add(2);
  epoch.notify_all();
  threads.clear();
}

/// Makes threads until `needed` can work together, the caller included.
void ThreadPool::State::reserve(std::int32_t needed) {
  try {
    while (!exhausted && static_cast<std::int32_t>(threads.size()) + 1 < std::min(needed, kMostThreads))
      threads.emplace_back([this](std::stop_token stop) { serve(std::move(stop)); });
  } catch (const std::system_error&) {
    exhausted = true;  // the system gives no more: those that are there do the work
  }
}

void ThreadPool::State::wake(std::int32_t needed) {
  if (needed >= static_cast<std::int32_t>(threads.size())) return epoch.notify_all();
  for (std::int32_t i = 0; i < needed; ++i) epoch.notify_one();
}

namespace {

void work_alone(const ThreadPool::Work& work) {
  for (std::int32_t pass = 0; pass < work.passes; ++pass)
    for (std::int64_t job = 0; job < work.jobs; ++job) work.job(work.context, pass, job);
}

}  // namespace

void ThreadPool::run_on(Team team, const Work& work) {
  struct Shared {
    Open open;
    std::atomic<std::int32_t> seats{0};
    std::int32_t threads;
    std::thread::id caller = std::this_thread::get_id();
  } shared{.threads = work.threads};
  shared.open.begin(work);
  team(
      [](void* data) {
        auto& self = *static_cast<Shared*>(data);
        self.open.take_part(self.seats.fetch_add(1, std::memory_order_relaxed));
        if (std::this_thread::get_id() != self.caller) return;
        // The barrier at the end spins for milliseconds, perhaps on the processor on which a thread that was
        // asleep waits to begin.
        for (int i = 0; i < kYields && self.seats.load(std::memory_order_relaxed) < self.threads; ++i)
          std::this_thread::yield();
      },
      &shared, static_cast<unsigned>(work.threads), 0);
}

void ThreadPool::run(const Work& work) {
  if (work.threads <= 1 || work.jobs <= 1 || work.passes > kMostPasses) return work_alone(work);
  if (const Team team = sparsekiln::team()) return run_on(team, work);
  State& state = *state_;
  const std::unique_lock lock(state.busy, std::try_to_lock);
  if (!lock) return work_alone(work);
  state.reserve(work.threads);
  state.open.begin(work);
  state.seats.store(work.threads - 1);
  state.epoch.fetch_add(1);
  state.wake(work.threads - 1);
  state.open.take_part(0);
  state.epoch.fetch_add(1);
  for (int spins = 0; state.inside.load() != 0; ++spins) spins < kSpins ? pause() : std::this_thread::yield();
}

namespace {

constinit std::atomic<ThreadPool*> pool_of_process{nullptr};

/// Threads that outlive main may still launch: the pool is there for them, without threads.
const struct AtExit {
  ~AtExit() {
    if (ThreadPool* const pool = pool_of_process.load()) pool->retire();
  }
} at_exit;

/// A child that was forked has this memory but not the threads; locks and counters that they held stay as
/// they were. There the pool is neither used nor destroyed.
[[maybe_unused]] const int at_fork = pthread_atfork(nullptr, nullptr, [] { pool_of_process.store(nullptr); });

}  // namespace

ThreadPool& ThreadPool::shared() {
  ThreadPool* pool = pool_of_process.load();
  if (pool == nullptr) {
    auto made = std::make_unique<ThreadPool>();
    if (pool_of_process.compare_exchange_strong(pool, made.get())) pool = made.release();
  }
  return *pool;
}

}  // namespace sparsekiln::cpu

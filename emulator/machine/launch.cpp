#include "emulator/machine/launch.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cfenv>
#include <exception>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

#include "emulator/machine/block.h"
#include "emulator/machine/crew.h"
#include "emulator/machine/report.h"
#include "emulator/machine/residents.h"

namespace sparsekiln::emulator {
namespace {

/// Warp instructions that are worth waking other host threads for.
constexpr std::uint64_t kWorthThreads = 20'000;
/// How many blocks that talk are on their way together at first: as many as take so many bytes of the host,
/// which its caches should hold, but more than a few. Where they wait for blocks that have not begun, twice
/// as many, and so on up to what the device holds.
constexpr std::uint64_t kResidentBytes = std::uint64_t{8} << 20;
constexpr std::uint64_t kLeastResident = 12;
constexpr std::uint64_t kMostResident = 128;
/// Rounds without progress after which more blocks begin.
constexpr int kStalledRounds = 64;

/// What went wrong first, in the order of the seed and not of the clock.
class FirstFailure {
 public:
  void note(std::uint64_t position, std::exception_ptr what) {
    const std::scoped_lock lock(mutex_);
    if (what_ != nullptr && position_.load() < position) return;
    position_ = position;
    what_ = std::move(what);
  }
  /// Whether something at or before `position` has failed already.
  [[nodiscard]] bool before(std::uint64_t position) const {
    return position_.load(std::memory_order_relaxed) <= position;
  }
  void rethrow() const {
    if (what_ != nullptr) std::rethrow_exception(what_);
  }

 private:
  std::mutex mutex_;
  std::atomic<std::uint64_t> position_{~std::uint64_t{0}};
  std::exception_ptr what_;
};

/// Rounds to nearest and keeps subnormals, whatever the caller's thread does; threads that are started
/// meanwhile inherit it.
class DefaultArithmetic {
 public:
  DefaultArithmetic() {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultArithmetic() { std::fesetenv(&callers_); }
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

 private:
  std::fenv_t callers_{};
};

unsigned host_threads(const LaunchRequest& request) {
  if (request.host_threads > 0) return static_cast<unsigned>(request.host_threads);
  return std::max(1u, std::thread::hardware_concurrency());
}

std::uint64_t executed_by(const std::vector<std::unique_ptr<Worker>>& workers) {
  std::uint64_t sum = 0;
  for (const auto& worker : workers)
    sum += std::accumulate(worker->executed.begin(), worker->executed.end(), std::uint64_t{0});
  return sum;
}

/// A launch on its way.
class Launch {
 public:
  explicit Launch(const LaunchRequest& request)
      : grid_(request),
        order_(grid_.blocks / grid_.cluster_size(), request.seed),
        crew_(std::min(host_threads(request), grid_.blocks)) {
    for (unsigned i = 0; i < crew_.size(); ++i) workers_.push_back(std::make_unique<Worker>(grid_.program));
  }

  Counters run() {
    if ((grid_.program.talks_to_blocks && !grid_.alone()) || grid_.clustered())
      run_rounds();
    else
      run_queue();
    return counters();
  }

 private:
  /// Blocks that never talk: each runs to its end.
  void run_queue() {
    FirstFailure failure;
    std::atomic<std::uint32_t> next{0};
    const auto take = [&](Team& team, unsigned member) {
      const std::uint32_t position = next++;
      if (position >= grid_.blocks || failure.before(position)) return false;
      try {
        team.start(order_.at(position));
        team.first().run(*workers_[member]);
      } catch (...) {
        failure.note(position, std::current_exception());
      }
      return true;
    };
    {
      Team team(grid_);
      while (take(team, 0)) {
        const std::uint64_t left = grid_.blocks - std::min<std::uint32_t>(next, grid_.blocks);
        if (crew_.size() > 1 && executed_by(workers_) / next * left > kWorthThreads) break;
      }
    }
    if (next < grid_.blocks)
      crew_.all([&](unsigned member) {
        try {
          Team team(grid_);
          while (take(team, member)) {
          }
        } catch (...) {
          failure.note(0, std::current_exception());
        }
      });
    failure.rethrow();
  }

  [[nodiscard]] std::uint32_t resident() const {
    const std::uint64_t bytes = std::uint64_t{grid_.program.register_bytes} * grid_.warps +
                                std::uint64_t{grid_.shared_bytes} * (1 + sizeof(Line) / kLineBytes) +
                                std::uint64_t{grid_.local_bytes} * grid_.threads + 4096;
    const std::uint64_t fit = std::clamp(kResidentBytes / bytes, kLeastResident, kMostResident);
    const std::uint32_t size = grid_.cluster_size();
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>({(fit + size - 1) / size, grid_.blocks / size, most_resident()}));
  }
  /// Clusters that the device holds.
  [[nodiscard]] std::uint32_t most_resident() const {
    return std::max(1u, grid_.request.resident_blocks / grid_.cluster_size());
  }

  /// Rounds: all blocks on their way run until they want to talk, or until others must, then talk one after
  /// the other.
  void run_rounds() {
    Residents residents(grid_, order_, resident());
    Random random(mixed(grid_.request.seed + 1));
    int stalled = 0;
    while (true) {
      const std::vector<Block*> running = residents.fill();
      if (running.empty()) return;
      const std::uint64_t progress = grid_.progress;
      run_alone(running);
      const bool nobody_talks = !talk(running, random, residents.not_begun());
      stalled = grid_.progress == progress ? stalled + 1 : 0;
      if (stalled < kStalledRounds) continue;
      if (nobody_talks) running.front()->report_stuck();
      residents.grow(most_resident());
      stalled = 0;
    }
  }

  void run_alone(const std::vector<Block*>& blocks) {
    FirstFailure failure;
    std::vector<std::uint64_t> before(blocks.size());
    std::atomic<std::size_t> next{0};
    const auto take = [&](unsigned member) {
      const std::size_t i = next++;
      if (i >= blocks.size() || failure.before(i)) return false;
      before[i] = blocks[i]->progress;
      try {
        blocks[i]->run(*workers_[member]);
      } catch (...) {
        failure.note(i, std::current_exception());
      }
      return true;
    };
    const std::uint64_t executed = crew_.size() > 1 ? executed_by(workers_) : 0;
    while (take(0)) {
      if (crew_.size() == 1 || next >= blocks.size()) continue;
      if ((executed_by(workers_) - executed) / next * (blocks.size() - next) > kWorthThreads) {
        crew_.all([&](unsigned member) {
          while (take(member)) {
          }
        });
        break;
      }
    }
    failure.rethrow();
    for (std::size_t i = 0; i < blocks.size(); ++i) grid_.progress += blocks[i]->progress - before[i];
  }

  /// What goes from block to block in a cluster without a turn.
  void talk_in_clusters(const std::vector<Block*>& blocks, bool waits) {
    for (Block* block : blocks) {
      const std::uint64_t before = block->progress;
      if (block->rank == 0) block->cluster->look_at_barrier();
      if (block->land_at_peers(waits)) waits = false;
      grid_.progress += block->progress - before;
    }
  }

  /// Blocks of a cluster that have to do without a turn this time, so that others get ahead of them; no rank
  /// where nothing has changed since the last time.
  std::uint32_t lagging_rank(Random& random) {
    const std::uint32_t size = grid_.cluster_size();
    const bool changed = std::exchange(talked_at_, grid_.progress) != grid_.progress;
    return grid_.clustered() && changed ? random.below(2 * size) : size;
  }

  /// Whether any warp wanted to. Faults where nothing will change any more; `not_begun` clusters find no
  /// place on the device.
  bool talk(const std::vector<Block*>& blocks, Random& random, std::uint32_t not_begun) {
    struct Turn {
      Block* block;
      std::uint32_t warp;
    };
    std::vector<Turn> turns;
    for (Block* block : blocks)
      for (std::uint32_t left = block->wanting(); left != 0; left &= left - 1)
        turns.push_back({block, static_cast<std::uint32_t>(std::countr_zero(left))});
    for (auto left = static_cast<std::uint32_t>(turns.size()); left > 1; --left)
      std::swap(turns[left - 1], turns[random.below(left)]);
    const std::uint64_t progress = grid_.progress;
    if (grid_.clustered()) talk_in_clusters(blocks, turns.empty());
    bool all_circle = !turns.empty();
    const std::uint32_t lagging = lagging_rank(random);
    for (const Turn& turn : turns)
      all_circle =
          turn.block->rank != lagging && turn.block->take_turn(turn.warp, *workers_[0]) && all_circle;
    if (!all_circle || grid_.progress != progress) return !turns.empty();
    const auto parted = std::find_if(turns.begin(), turns.end(), [](const Turn& turn) {
      return !turn.block->warps[turn.warp].diverged.empty();
    });
    const Turn& turn = parted != turns.end() ? *parted : turns.front();
    report_endless(turn.block->warps[turn.warp],
                   not_begun == 0 ? ""
                                  : "repeats itself, and " + std::to_string(not_begun) +
                                        " blocks have not begun: the device holds no more than " +
                                        std::to_string(blocks.size()) + " of this kernel at once");
  }

  [[nodiscard]] Counters counters() const {
    Counters sum(grid_.program.code.size());
    for (const auto& worker : workers_)
      for (std::size_t pc = 0; pc < sum.size(); ++pc) {
        if ((grid_.program.code[pc].traits & kMadeByDecoder) != 0) continue;
        sum[pc] += worker->counters[pc];
        sum[pc].executed += worker->executed[pc];
      }
    return sum;
  }

  Grid grid_;
  StartOrder order_;
  Crew crew_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::uint64_t talked_at_ = 0;  ///< progress of the grid when blocks talked last
};

}  // namespace

Counters run(const LaunchRequest& request) {
  const DefaultArithmetic arithmetic;
  return Launch(request).run();
}

}  // namespace sparsekiln::emulator

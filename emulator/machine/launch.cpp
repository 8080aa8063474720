#include "emulator/machine/launch.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cfenv>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>

#include "emulator/machine/block.h"
#include "emulator/machine/crew.h"
#include "emulator/machine/report.h"

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
/// Grids with more blocks begin with them in their own order.
constexpr std::uint32_t kMostShuffled = 1u << 22;

/// The order in which blocks start.
class StartOrder {
 public:
  StartOrder(std::uint32_t blocks, std::uint64_t seed) {
    if (blocks > kMostShuffled || blocks < 2) return;
    order_.resize(blocks);
    std::iota(order_.begin(), order_.end(), 0u);
    Random random(mixed(seed));
    for (std::uint32_t left = blocks; left > 1; --left)
      std::swap(order_[left - 1], order_[random.below(left)]);
  }
  [[nodiscard]] std::uint32_t at(std::uint32_t position) const {
    return order_.empty() ? position : order_[position];
  }

 private:
  std::vector<std::uint32_t> order_;
};

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

/// The blocks that are on their way together. A place is used for one block after the other.
class Residents {
 public:
  Residents(Grid& grid, const StartOrder& order, std::uint32_t places) : grid_(grid), order_(order) {
    add(places);
  }

  /// Begins blocks where there is place. All that are on their way, in the order of their places.
  std::vector<Block*> fill() {
    std::vector<Block*> running;
    for (Resident& place : places_) {
      place.runs = place.runs && !place.block->ended();
      if (!place.runs && next_ < grid_.blocks) {
        place.block->start(order_.at(next_++));
        place.runs = true;
      }
      if (place.runs) running.push_back(place.block.get());
    }
    return running;
  }
  [[nodiscard]] std::uint32_t not_begun() const { return grid_.blocks - next_; }
  /// Twice as many places, but no more than `most` or than there are blocks for.
  void grow(std::uint32_t most) {
    const auto size = static_cast<std::uint32_t>(places_.size());
    add(std::min({size, not_begun(), most - std::min(most, size)}));
  }

 private:
  struct Resident {
    std::unique_ptr<Block> block;
    bool runs = false;
  };

  void add(std::uint32_t places) {
    for (; places != 0; --places) places_.push_back({std::make_unique<Block>(grid_)});
  }

  Grid& grid_;
  const StartOrder& order_;
  std::vector<Resident> places_;
  std::uint32_t next_ = 0;  ///< position of the block that begins next
};

/// A launch on its way.
class Launch {
 public:
  explicit Launch(const LaunchRequest& request)
      : grid_(request),
        order_(grid_.blocks, request.seed),
        crew_(std::min(host_threads(request), grid_.blocks)) {
    for (unsigned i = 0; i < crew_.size(); ++i) workers_.push_back(std::make_unique<Worker>(grid_.program));
  }

  Counters run() {
    if (grid_.program.talks_to_blocks && !grid_.alone())
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
    const auto take = [&](Block& block, unsigned member) {
      const std::uint32_t position = next++;
      if (position >= grid_.blocks || failure.before(position)) return false;
      try {
        block.start(order_.at(position));
        block.run(*workers_[member]);
      } catch (...) {
        failure.note(position, std::current_exception());
      }
      return true;
    };
    {
      Block block(grid_);
      while (take(block, 0)) {
        const std::uint64_t left = grid_.blocks - std::min<std::uint32_t>(next, grid_.blocks);
        if (crew_.size() > 1 && executed_by(workers_) / next * left > kWorthThreads) break;
      }
    }
    if (next < grid_.blocks)
      crew_.all([&](unsigned member) {
        try {
          Block block(grid_);
          while (take(block, member)) {
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
    return static_cast<std::uint32_t>(std::min<std::uint64_t>({fit, grid_.blocks, most_resident()}));
  }
  /// What the device holds.
  [[nodiscard]] std::uint32_t most_resident() const { return std::max(1u, grid_.request.resident_blocks); }

  /// Rounds: all blocks on their way run until they want to talk, then talk one after the other.
  void run_rounds() {
    Residents residents(grid_, order_, resident());
    Random random(mixed(grid_.request.seed + 1));
    int stalled = 0;
    while (true) {
      const std::vector<Block*> running = residents.fill();
      if (running.empty()) return;
      const std::uint64_t progress = grid_.progress;
      run_alone(running);
      talk(running, random, residents.not_begun());
      stalled = grid_.progress == progress ? stalled + 1 : 0;
      if (stalled < kStalledRounds || residents.not_begun() == 0) continue;
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

  /// Faults where nothing will change any more; `not_begun` blocks find no place on the device.
  void talk(const std::vector<Block*>& blocks, Random& random, std::uint32_t not_begun) {
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
    bool all_circle = !turns.empty();
    for (const Turn& turn : turns) all_circle = turn.block->take_turn(turn.warp, *workers_[0]) && all_circle;
    if (!all_circle || grid_.progress != progress) return;
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
};

}  // namespace

Counters run(const LaunchRequest& request) {
  const DefaultArithmetic arithmetic;
  return Launch(request).run();
}

}  // namespace sparsekiln::emulator

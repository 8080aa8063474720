// The rings of templates/spmm_wgmma_rows.cuh: a producer and warpgroups that go through tables as its kernels
// do.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/patterns.h>

#include "compiler/cuda/tables.h"
#include "compiler/cuda/wgmma_rows_shape.h"
#include "compiler/random.h"
#include "compiler/schedule.h"
#include "tests/compiler/cuda/wgmma_cases.h"
#include "tests/compiler/cuda/wgmma_rows_cases.h"

namespace sparsekiln::cuda {
namespace {

/// When a warpgroup gives a line of x back.
enum class Release : std::uint8_t {
  at_once,  ///< when its products are complete
  late,     ///< when its next block of W has come, as if that were waited for while products are queued
};

struct Rings {
  std::int32_t lines;   ///< places of x
  std::int32_t blocks;  ///< places of W, of each warpgroup
  std::int32_t groups;
};

/// The order of chunks alone decides what goes on: a side that can go on does, and where neither can before
/// all chunks are done, no timing of a device would help.
class Simulation {
 public:
  Simulation(Rings rings, Release release)
      : rings_(rings),
        release_(release),
        users_(static_cast<std::size_t>(rings.lines), 0),
        groups_(static_cast<std::size_t>(rings.groups)) {}

  /// The chunks of one worker, for so many batch tiles. False: a deadlock.
  bool run(const std::vector<Tables::Step>& chunks, int batch_tiles) {
    for (int tile = 0; tile < batch_tiles; ++tile)
      for (const Tables::Step& chunk : chunks)
        if (!produce(chunk.bits)) return false;
    consume();
    return std::all_of(groups_.begin(), groups_.end(),
                       [](const Group& group) { return group.waiting.empty(); });
  }

 private:
  struct Chunk {
    int place;
    bool last;  ///< of the warpgroup's chunks of a line
  };
  struct Group {
    std::vector<Chunk> waiting;  ///< blocks of W that have come, in order
    int held = -1;               ///< the line that it gives back late
    int blocks = 0;              ///< that it has not given back
  };

  bool produce(std::uint32_t bits) {
    const auto group = static_cast<std::size_t>(bits >> 27 & 3);
    if ((bits >> 30 & 1) == 0) {
      if (place_ >= 0) users_[static_cast<std::size_t>(place_)] -= rings_.groups - seen_;
      place_ = (place_ + 1) % rings_.lines;
      if (!until([&] { return users_[static_cast<std::size_t>(place_)] == 0; })) return false;
      users_[static_cast<std::size_t>(place_)] = rings_.groups;
      seen_ = 0;
      seen_groups_ = 0;
    }
    if (!until([&] { return groups_[group].blocks < rings_.blocks; })) return false;
    if ((seen_groups_ >> group & 1) == 0) ++seen_;
    seen_groups_ |= 1u << group;
    ++groups_[group].blocks;
    groups_[group].waiting.push_back({place_, bits >> 31 != 0});
    return true;
  }
  /// Lets warpgroups go on until something is so.
  bool until(auto&& is_so) {
    if (is_so()) return true;
    consume();
    return is_so();
  }
  void consume() {
    for (Group& group : groups_) {
      for (const Chunk& chunk : group.waiting) {
        if (group.held >= 0) --users_[static_cast<std::size_t>(group.held)];
        group.held = -1;
        if (chunk.last && release_ == Release::late)
          group.held = chunk.place;
        else if (chunk.last)
          --users_[static_cast<std::size_t>(chunk.place)];
        --group.blocks;
      }
      group.waiting.clear();
    }
  }

  const Rings rings_;
  const Release release_;
  std::vector<int> users_;  ///< of each line, warpgroups that have not given it back
  std::vector<Group> groups_;
  int place_ = -1;  ///< of the line that was filled last
  int seen_ = 0;    ///< warpgroups that it had blocks for
  std::uint32_t seen_groups_ = 0;
};

/// Workers of random layouts that stop before they have done their chunks.
struct Stopped {
  int workers = 0;
  int of = 0;
};
Stopped simulate(int layouts, Release release) {
  Stopped stopped;
  SplitMix64 random(1000003);
  for (int number = 0; number < layouts; ++number) {
    const auto any = [&](auto... values) {
      const std::array of{values...};
      return of[random() % of.size()];
    };
    const std::int32_t side = any(16, 32, 64);
    const auto rows = static_cast<std::int32_t>(1 + random() % 40);
    const auto cols = static_cast<std::int32_t>(1 + random() % 60);
    const Layout layout = patterns::random(rows, cols, any(0.02, 0.1, 0.3, 0.7), random());
    Config config = wgmma_rows_config(any(128, 256), any(2, 3, 4), any(2, 3), 64 / side);
    Problem problem = mma_problem({side, side}, 512, kHalf);
    problem.layout = layout;
    const Target target{Target::Kind::cuda, "sm_90", any(1, 4, 16)};
    const Spmm product(problem);
    const WgmmaRowsShape shape = wgmma_rows_shape(product, target, config);
    const Tables tables = make_tables(product, make_schedule(product, target, config, 512), shape.chunk);
    for (std::size_t worker = 0; worker + 1 < tables.worker_begin.size(); ++worker) {
      const auto chunk = [&](std::size_t of) { return tables.steps.begin() + tables.worker_begin[of].chunk; };
      Simulation simulation({shape.stages_x, shape.stages_w, config.rows}, release);
      stopped.workers += !simulation.run({chunk(worker), chunk(worker + 1)}, 2);
      ++stopped.of;
    }
  }
  return stopped;
}

TEST_CASE("no layout stops warpgroups that have block rows of their own and share lines of x") {
  const Stopped stopped = simulate(10000, Release::at_once);
  CHECK(stopped.of > 20000);
  CHECK(stopped.workers == 0);
}

TEST_CASE("lines of x that are given back late stop some") {
  CHECK(simulate(200, Release::late).workers > 10);
}

}  // namespace
}  // namespace sparsekiln::cuda

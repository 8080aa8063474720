#include "emulator/machine/shadow.h"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "emulator/machine/order.h"
#include "emulator/machine/random.h"

using namespace sparsekiln::emulator;

namespace {

constexpr std::uint32_t kWarps = 3;

/// One lane's bytes in a request.
struct Lane {
  int lane;
  std::uint32_t offset;
};

/// Who comes before whom, byte by byte and with nothing left out.
class Exact {
 public:
  /// Whether the access races.
  bool add(std::uint32_t warp, const std::vector<Lane>& lanes, int bytes, bool writes) {
    bool races = false;
    for (const Lane& lane : lanes)
      for (std::uint32_t byte = lane.offset; byte < lane.offset + static_cast<std::uint32_t>(bytes); ++byte)
        for (const Access& before : touched_[byte]) {
          if (!before.writes && !writes) continue;
          const bool same_warp = before.warp == warp;
          const bool ordered = before.epoch < epoch_ ||
                               (same_warp && (before.lane == lane.lane || before.synced < synced_[warp]));
          races = races || !ordered;
        }
    for (const Lane& lane : lanes)
      for (std::uint32_t byte = lane.offset; byte < lane.offset + static_cast<std::uint32_t>(bytes); ++byte)
        touched_[byte].push_back({warp, lane.lane, writes, epoch_, synced_[warp]});
    return races;
  }
  void barrier() { ++epoch_; }
  void warp_barrier(std::uint32_t warp) { ++synced_[warp]; }

 private:
  struct Access {
    std::uint32_t warp;
    int lane;
    bool writes;
    int epoch;
    int synced;
  };
  std::map<std::uint32_t, std::vector<Access>> touched_;
  int epoch_ = 0;
  int synced_[kWarps] = {};
};

/// The same through lines.
class Watched {
 public:
  Watched() {
    order_.start(0, kWarps);
    for (std::uint32_t& time : times_) pointers_.push_back(&time);
  }
  bool add(std::uint32_t warp, const std::vector<Lane>& lanes, int bytes, bool writes) {
    Mask mask = 0;
    std::uint32_t offsets[kLanes] = {};
    for (const Lane& lane : lanes) {
      mask |= 1u << lane.lane;
      offsets[lane.lane] = lane.offset;
    }
    const Touch touch = Touch::of(0, warp, times_[warp], 1, writes, Strength::weak);
    while (mask != 0) {
      const LaneGroup group =
          first_group(mask, bytes, [&](int lane) { return std::uint64_t{offsets[lane]}; });
      REQUIRE(group.lanes != 0);
      REQUIRE((group.lanes & ~mask) == 0);
      mask &= ~group.lanes;
      Conflict conflict;
      if (!lines_[group.line].add(group, touch, 1, order_.viewer(warp), conflict)) return true;
    }
    return false;
  }
  void barrier() { order_.synchronize_block(pointers_.data()); }
  void warp_barrier(std::uint32_t warp) { order_.synchronize_lanes(warp, kAllLanes, true, times_[warp]); }

 private:
  BlockOrder order_;
  std::uint32_t times_[kWarps] = {1, 1, 1};
  std::vector<std::uint32_t*> pointers_;
  Line lines_[8];
};

/// Lanes of a request of some shape: side by side, swizzled rows, one column of rows, or anywhere.
std::vector<Lane> request(Random& random, int bytes) {
  std::vector<Lane> lanes;
  const std::uint32_t shape = random.below(4);
  const auto size = static_cast<std::uint32_t>(bytes);
  const std::uint32_t shift = random.below(8);
  std::set<std::uint32_t> used;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (shape != 0 && random.below(8) == 0) continue;
    const auto l = static_cast<std::uint32_t>(lane);
    std::uint32_t offset = 0;
    if (shape == 0)
      offset = l * size + shift * 16;
    else if (shape == 1)
      offset = l / 8 * 128 + ((l % 8) ^ (l / 8 % 8) ^ shift) * 16;
    else if (shape == 2)
      offset = l % 8 * 128 + (shift ^ l % 8) * 16;
    else
      offset = random.below(1024 / size) * size;
    offset = offset % 1024 / size * size;
    if (used.insert(offset).second) lanes.push_back({lane, offset});
  }
  if (lanes.empty()) lanes.push_back({0, 0});
  return lanes;
}

}  // namespace

TEST_CASE("lines report no race that is none, and miss few that are") {
  int races = 0;
  int missed = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    Random random(seed);
    Exact exact;
    Watched watched;
    for (int step = 0; step < 40; ++step) {
      const std::uint32_t what = random.below(12);
      const std::uint32_t warp = random.below(kWarps);
      if (what < 4) {
        exact.barrier();
        watched.barrier();
        continue;
      }
      if (what < 6) {
        exact.warp_barrier(warp);
        watched.warp_barrier(warp);
        continue;
      }
      const int bytes = 1 << random.below(5);
      const bool writes = random.below(3) == 0;
      const std::vector<Lane> lanes = request(random, bytes);
      const bool expected = exact.add(warp, lanes, bytes, writes);
      const bool found = watched.add(warp, lanes, bytes, writes);
      INFO("seed ", seed, ", step ", step);
      REQUIRE((expected || !found));
      races += expected ? 1 : 0;
      missed += expected && !found ? 1 : 0;
      if (expected) break;  // what is remembered after a race means nothing
    }
  }
  CHECK(races > 2000);
  CHECK(missed < races / 50);
}

TEST_CASE("a row that is swizzled is one group") {
  const LaneGroup group = first_group(
      kAllLanes, 16, [](int lane) { return std::uint64_t(lane / 8 * 128 + ((lane % 8) ^ 5) * 16); });
  CHECK(group.lanes == 0xff);
  CHECK(group.units == 0xff);
  for (int lane = 0; lane < 8; ++lane) CHECK(group.pattern.lane_at(((lane % 8) ^ 5) * 16 + 7) == lane);
}

TEST_CASE("bytes count as written one by one") {
  Shadow shadow(100);
  shadow.mark_written(3, 30);
  CHECK(shadow.written()[0] == 0xfff8);
  CHECK(shadow.written()[1] == 0xffff);
  CHECK(shadow.written()[2] == 0x0001);
  CHECK_FALSE(shadow.all_written());
  shadow.mark_written(0, 100);
  CHECK(shadow.all_written());
}

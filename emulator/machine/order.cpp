#include "emulator/machine/order.h"

#include <bit>

namespace sparsekiln::emulator {
namespace {

std::uint64_t key_of(std::uint32_t block, std::uint32_t warp, std::uint32_t lane) {
  return std::uint64_t{block} << 16 | warp << 8 | lane;
}

}  // namespace

void Knowledge::learn(std::uint32_t block, std::uint32_t warp, std::uint32_t lane, std::uint32_t time) {
  const std::uint64_t key = key_of(block, warp, lane);
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), Entry{key, 0});
  if (at != entries_.end() && at->first == key)
    at->second = std::max(at->second, time);
  else
    entries_.insert(at, {key, time});
}

bool Knowledge::has(std::uint64_t key, std::uint32_t time) const {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), Entry{key, 0});
  return at != entries_.end() && at->first == key && at->second >= time;
}

bool Knowledge::has(std::uint32_t block, std::uint32_t warp, std::uint32_t lane, std::uint32_t time) const {
  if (warp >= kFirstAgent) return has(key_of(block, warp, 0), time);  // whose times are its own
  return has(key_of(block, kAll, kAll), time) || has(key_of(block, warp, kAll), time) ||
         has(key_of(block, warp, lane), time);
}

bool Knowledge::has_some(std::uint32_t block, std::uint32_t warp, std::uint32_t time) const {
  if (warp >= kFirstAgent) return has(key_of(block, warp, 0), time);
  if (has(key_of(block, kAll, kAll), time)) return true;
  auto at = std::lower_bound(entries_.begin(), entries_.end(), Entry{key_of(block, warp, 0), 0});
  for (; at != entries_.end() && at->first <= key_of(block, warp, kAll); ++at)
    if (at->second >= time) return true;
  return false;
}

bool Knowledge::contains(const Knowledge& other) const {
  auto at = entries_.begin();
  for (const Entry& entry : other.entries_) {
    while (at != entries_.end() && at->first < entry.first) ++at;
    if (at == entries_.end() || at->first != entry.first || at->second < entry.second) return false;
  }
  return true;
}

KnowledgePtr Knowledge::join(const KnowledgePtr& a, const KnowledgePtr& b) {
  if (b == nullptr || a == b) return a;
  if (a == nullptr) return b;
  if (a->entries_.size() >= b->entries_.size() ? a->contains(*b) : false) return a;
  if (b->contains(*a)) return b;
  auto result = std::make_shared<Knowledge>();
  result->entries_.reserve(a->entries_.size() + b->entries_.size());
  auto left = a->entries_.begin();
  auto right = b->entries_.begin();
  while (left != a->entries_.end() || right != b->entries_.end()) {
    if (right == b->entries_.end() || (left != a->entries_.end() && left->first < right->first)) {
      result->entries_.push_back(*left++);
    } else if (left == a->entries_.end() || right->first < left->first) {
      result->entries_.push_back(*right++);
    } else {
      result->entries_.emplace_back(left->first, std::max(left->second, right->second));
      ++left;
      ++right;
    }
  }
  return result;
}

void ThreadOrder::join(const ThreadOrder& other) {
  known.join(other.known);
  for (std::size_t reach = 0; reach < 2; ++reach) {
    fenced[reach].join(other.fenced[reach]);
    read[reach].join(other.read[reach]);
  }
}

bool ThreadOrder::empty() const {
  return known.empty() && fenced[0].empty() && fenced[1].empty() && read[0].empty() && read[1].empty();
}

void BlockOrder::start(std::uint32_t block, std::uint32_t warps) {
  block_ = block;
  epoch_ = 0;
  common_ = {};
  warps_.resize(warps);
  for (std::uint32_t i = 0; i < warps; ++i) {
    WarpOrder& warp = warps_[i];
    warp.owner = this;
    warp.index = i;
    warp.synced = 0;
    warp.known.clear();
    warp.lanes.reset();
    warp.threads.reset();
  }
}

bool BlockOrder::knows(const WarpOrder& warp, int lane, const Touch& before, int before_lane) const {
  const auto whom = static_cast<std::uint32_t>(before_lane);
  if (before.block == block_ && !before.by_agent()) {
    if (!warp.known.empty() && before.time <= warp.known[before.warp()]) return true;
    if (before.warp() == warp.index) {
      if (lane == before_lane && !before.several()) return true;
      if (warp.lanes != nullptr && before.time <= warp.lanes->known[lane][whom]) return true;
    }
  }
  const auto holds = [&](const KnowledgePtr& known) {
    if (known == nullptr) return false;
    return before.mixed() ? known->has_some(before.block, before.warp(), before.time)
                          : known->has(before.block, before.warp(), whom, before.time);
  };
  return holds(common_.known.plain) || (warp.threads != nullptr && holds((*warp.threads)[lane].known.plain));
}

BlockOrder::AsyncPoint::Earlier& BlockOrder::AsyncPoint::earlier_of(const Touch& touch) const {
  for (Earlier& one : earlier)
    if (one.time == touch.time && one.warp == touch.warp() && one.block == touch.block) return one;
  Earlier& replaced = earlier[next++ % earlier.size()];
  replaced = {.block = touch.block, .warp = touch.warp(), .time = touch.time};
  return replaced;
}

/// Reads have their values when they end, so a write of the async proxy may follow them without a proxy
/// fence.
bool BlockOrder::ordered_for_async(const void* context, const Touch& before, const Touch&, unsigned parts,
                                   int bytes_of_part) {
  const auto& point = *static_cast<const AsyncPoint*>(context);
  Touch thread;
  thread.place(parts, LanePattern::of(point.lane, LanePattern::kOneLane));
  const auto by_thread = [&] {
    return point.order->viewer(point.warp).ordered(before, thread, parts, bytes_of_part);
  };
  if (!before.by_agent() && !before.writes()) return by_thread();
  AsyncPoint::Earlier& earlier = point.earlier_of(before);
  if (before.by_agent()) {
    if (earlier.lanes == 0 && by_thread()) earlier.lanes = kAllLanes;
    return earlier.lanes != 0;
  }
  const WarpOrder& warp = point.order->warps_[point.warp];
  const auto holds = [&](const KnowledgePtr& known, std::uint32_t lane) {
    if (known == nullptr) return false;
    return before.mixed() ? known->has_some(before.block, before.warp(), before.time)
                          : known->has(before.block, before.warp(), lane, before.time);
  };
  return each_byte(before, thread, parts, bytes_of_part, [&](int byte) {
    const auto lane = static_cast<std::uint32_t>(before.lane_at(byte));
    if ((earlier.lanes >> lane & 1) != 0) return true;
    const bool known = holds(point.order->common_.known.proxied, lane) ||
                       (warp.threads != nullptr &&
                        holds((*warp.threads)[static_cast<std::size_t>(point.lane)].known.proxied, lane));
    if (known && !before.mixed()) earlier.lanes |= Mask{1} << lane;
    return known;
  });
}

bool BlockOrder::ordered_by_knowledge(const void* context, const Touch& before, const Touch& now,
                                      unsigned parts, int bytes_of_part) {
  const auto& warp = *static_cast<const WarpOrder*>(context);
  int lane = -1;
  int before_lane = -1;
  return each_byte(before, now, parts, bytes_of_part, [&](int byte) {
    if (lane == now.lane_at(byte) && before_lane == before.lane_at(byte)) return true;
    lane = now.lane_at(byte);
    before_lane = before.lane_at(byte);
    return warp.owner->knows(warp, lane, before, before_lane);
  });
}

void BlockOrder::add_numbers(const WarpOrder& warp, Knowledge& to) const {
  if (epoch_ > 0) to.learn(block_, Knowledge::kAll, Knowledge::kAll, epoch_ - 1);
  if (warp.synced > epoch_) to.learn(block_, warp.index, Knowledge::kAll, warp.synced - 1);
  for (std::uint32_t other = 0; other < warp.known.size(); ++other)
    if (warp.known[other] >= epoch_) to.learn(block_, other, Knowledge::kAll, warp.known[other]);
}

Known BlockOrder::released_by(const WarpOrder& warp, int lane, std::uint32_t time) const {
  auto own = std::make_shared<Knowledge>();
  add_numbers(warp, *own);
  own->learn(block_, warp.index, static_cast<std::uint32_t>(lane), time);
  if (warp.lanes != nullptr)
    for (std::uint32_t whom = 0; whom < kLanes; ++whom)
      if (warp.lanes->known[lane][whom] >= epoch_)
        own->learn(block_, warp.index, whom, warp.lanes->known[lane][whom]);
  Known result = common_.known;
  result.join({.plain = own});
  if (warp.threads != nullptr) result.join((*warp.threads)[lane].known);
  return result;
}

Known BlockOrder::release(std::uint32_t index, Mask lanes, std::uint32_t& time) {
  const WarpOrder& warp = warps_[index];
  auto own = std::make_shared<Knowledge>();
  add_numbers(warp, *own);
  each_bit(lanes, [&](int lane) {
    own->learn(block_, index, static_cast<std::uint32_t>(lane), time);
    if (warp.lanes == nullptr) return;
    for (std::uint32_t whom = 0; whom < kLanes; ++whom)
      if (warp.lanes->known[lane][whom] >= epoch_)
        own->learn(block_, index, whom, warp.lanes->known[lane][whom]);
  });
  Known result = common_.known;
  result.join({.plain = own});
  if (warp.threads != nullptr) each_bit(lanes, [&](int lane) { result.join((*warp.threads)[lane].known); });
  ++time;
  return result;
}

Known BlockOrder::fenced(std::uint32_t index, Mask lanes) const {
  Known result = common_.fenced[1];
  if (const WarpOrder& warp = warps_[index]; warp.threads != nullptr)
    each_bit(lanes, [&](int lane) { result.join((*warp.threads)[lane].fenced[1]); });
  return result;
}

void BlockOrder::acquire(std::uint32_t index, Mask lanes, const Known& known) {
  if (known.empty()) return;
  each_bit(lanes, [&](int lane) { thread(index, lane).known.join(known); });
}

void BlockOrder::fence_proxy(std::uint32_t index, Mask lanes, std::uint32_t& time) {
  const KnowledgePtr common = common_.known.plain;
  auto numbers = std::make_shared<Knowledge>();
  add_numbers(warps_[index], *numbers);
  each_bit(lanes, [&](int lane) { numbers->learn(block_, index, static_cast<std::uint32_t>(lane), time); });
  const KnowledgePtr shared = Knowledge::join(numbers, common);
  each_bit(lanes, [&](int lane) {
    Known& known = thread(index, lane).known;
    known.proxied = Knowledge::join(Knowledge::join(known.proxied, known.plain), shared);
  });
  ++time;
}

ThreadOrder& BlockOrder::thread(std::uint32_t warp, int lane) {
  auto& threads = warps_[warp].threads;
  if (threads == nullptr) threads = std::make_unique<std::array<ThreadOrder, kLanes>>();
  return (*threads)[lane];
}

void BlockOrder::share(std::uint32_t from, std::uint32_t to) {
  ThreadOrder all;
  each_bit(from, [&](int w) {
    if (warps_[w].threads != nullptr)
      for (const ThreadOrder& thread : *warps_[w].threads) all.join(thread);
  });
  if (all.empty()) return;
  each_bit(to, [&](int w) {
    for (int lane = 0; lane < kLanes; ++lane) thread(w, lane).join(all);
  });
}

void BlockOrder::synchronize_block(std::uint32_t* const* times) {
  std::uint32_t latest = epoch_;
  for (std::size_t w = 0; w < warps_.size(); ++w) latest = std::max(latest, *times[w]);
  epoch_ = latest + 1;
  for (std::size_t w = 0; w < warps_.size(); ++w) {
    *times[w] = epoch_;
    WarpOrder& warp = warps_[w];
    warp.synced = epoch_;
    warp.known.clear();
    warp.lanes.reset();
    if (warp.threads == nullptr) continue;
    for (const ThreadOrder& thread : *warp.threads) common_.join(thread);
    warp.threads.reset();
  }
}

void BlockOrder::synchronize_warps(std::uint32_t waiting, std::uint32_t arrived, const std::uint32_t* came,
                                   std::uint32_t* const* times) {
  std::vector<std::uint32_t> joint(warps_.size(), 0);
  each_bit(waiting | arrived, [&](int w) {
    const WarpOrder& warp = warps_[w];
    for (std::size_t other = 0; other < warp.known.size(); ++other)
      joint[other] = std::max(joint[other], warp.known[other]);
    joint[w] = std::max(joint[w], came[w]);
  });
  each_bit(waiting, [&](int w) {
    ++*times[w];
    warps_[w].known = joint;
    warps_[w].synced = *times[w];
  });
  share(waiting | arrived, waiting);
}

void BlockOrder::synchronize_lanes(std::uint32_t index, Mask members, bool all, std::uint32_t& time) {
  WarpOrder& warp = warps_[index];
  if (all) {
    warp.synced = time + 1;
  } else {
    if (warp.lanes == nullptr) warp.lanes = std::make_unique<LaneTimes>();
    std::uint32_t joint[kLanes] = {};
    each_bit(members, [&](int lane) {
      for (int whom = 0; whom < kLanes; ++whom)
        joint[whom] = std::max(joint[whom], warp.lanes->known[lane][whom]);
      joint[lane] = std::max(joint[lane], time);
    });
    each_bit(members, [&](int lane) { std::copy_n(joint, kLanes, warp.lanes->known[lane]); });
  }
  ++time;
  if (warp.threads == nullptr) return;
  ThreadOrder known;
  each_bit(members, [&](int lane) { known.join((*warp.threads)[lane]); });
  each_bit(members, [&](int lane) { (*warp.threads)[lane].join(known); });
}

void BlockOrder::fence(std::uint32_t index, Mask lanes, bool device, std::uint32_t& time) {
  each_bit(lanes, [&](int lane) {
    ThreadOrder& own = thread(index, lane);
    for (int reach = 0; reach < (device ? 2 : 1); ++reach) {
      own.known.join(own.read[reach]);
      own.known.join(common_.read[reach]);
    }
    const Known released = released_by(warps_[index], lane, time);
    own.fenced[0] = released;
    if (device) own.fenced[1] = released;
  });
  ++time;
}

void BlockOrder::read(std::uint32_t warp, int lane, const SyncPlace& place, bool acquires, bool device) {
  ThreadOrder& own = thread(warp, lane);
  const auto mine = place.blocks.find(block_);
  Known seen[2];
  if (mine != place.blocks.end()) seen[0] = mine->second;
  if (device) seen[1] = place.device;
  for (int reach = 0; reach < 2; ++reach) {
    if (acquires) own.known.join(seen[reach]);
    own.read[reach].join(seen[reach]);
  }
}

void BlockOrder::write(std::uint32_t index, int lane, SyncPlaces& places, std::uint64_t address,
                       bool modifies, bool releases, bool device, std::uint32_t& time) {
  Known published[2];
  if (releases) {
    published[0] = released_by(warps_[index], lane, time);
    if (device) published[1] = published[0];
    ++time;
  }
  if (warps_[index].threads != nullptr || !common_.empty()) {
    const ThreadOrder& own = thread(index, lane);
    for (int reach = 0; reach < (device ? 2 : 1); ++reach) {
      published[reach].join(own.fenced[reach]);
      published[reach].join(common_.fenced[reach]);
    }
  }
  const std::uint64_t writer = key_of(block_, index, static_cast<std::uint32_t>(lane));
  SyncPlace* const found = places.find(address);
  if (found == nullptr && published[0].empty()) return;
  SyncPlace& place = found == nullptr ? places.at(address) : *found;
  if (!modifies && place.writer != writer) {
    place.device = {};
    place.blocks.clear();
  }
  place.writer = writer;
  if (!published[0].empty()) place.blocks[block_].join(published[0]);
  place.device.join(published[1]);
}

}  // namespace sparsekiln::emulator

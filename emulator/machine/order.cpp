#include "emulator/machine/order.h"

#include <algorithm>
#include <bit>

namespace sparsekiln::emulator {
namespace {

std::uint64_t key_of(std::uint32_t block, std::uint32_t warp, std::uint32_t lane) {
  return std::uint64_t{block} << 16 | warp << 8 | lane;
}

template <class Use>
void each_bit(std::uint32_t bits, Use use) {
  for (; bits != 0; bits &= bits - 1) use(std::countr_zero(bits));
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
  return has(key_of(block, kAll, kAll), time) || has(key_of(block, warp, kAll), time) ||
         has(key_of(block, warp, lane), time);
}

bool Knowledge::has_some(std::uint32_t block, std::uint32_t warp, std::uint32_t time) const {
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
  known = Knowledge::join(known, other.known);
  for (std::size_t reach = 0; reach < 2; ++reach) {
    fenced[reach] = Knowledge::join(fenced[reach], other.fenced[reach]);
    read[reach] = Knowledge::join(read[reach], other.read[reach]);
  }
}

bool ThreadOrder::empty() const {
  return known == nullptr && fenced[0] == nullptr && fenced[1] == nullptr && read[0] == nullptr &&
         read[1] == nullptr;
}

void BlockOrder::start(std::uint32_t block, std::uint32_t warps) {
  block_ = block;
  epoch_ = 0;
  fences_seen_ = false;
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
  if (before.block == block_) {
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
  return holds(common_.known) || (warp.threads != nullptr && holds((*warp.threads)[lane].known));
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

KnowledgePtr BlockOrder::released_by(const WarpOrder& warp, int lane, std::uint32_t time) const {
  auto own = std::make_shared<Knowledge>();
  if (epoch_ > 0) own->learn(block_, Knowledge::kAll, Knowledge::kAll, epoch_ - 1);
  if (warp.synced > epoch_) own->learn(block_, warp.index, Knowledge::kAll, warp.synced - 1);
  own->learn(block_, warp.index, static_cast<std::uint32_t>(lane), time);
  for (std::uint32_t other = 0; other < warp.known.size(); ++other)
    if (warp.known[other] >= epoch_) own->learn(block_, other, Knowledge::kAll, warp.known[other]);
  if (warp.lanes != nullptr)
    for (std::uint32_t whom = 0; whom < kLanes; ++whom)
      if (warp.lanes->known[lane][whom] >= epoch_)
        own->learn(block_, warp.index, whom, warp.lanes->known[lane][whom]);
  KnowledgePtr result = Knowledge::join(own, common_.known);
  if (warp.threads != nullptr) result = Knowledge::join(result, (*warp.threads)[lane].known);
  return result;
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
  fences_seen_ = true;
  each_bit(lanes, [&](int lane) {
    ThreadOrder& own = thread(index, lane);
    for (int reach = 0; reach < (device ? 2 : 1); ++reach)
      own.known = Knowledge::join(Knowledge::join(own.known, own.read[reach]), common_.read[reach]);
    const KnowledgePtr released = released_by(warps_[index], lane, time);
    own.fenced[0] = released;
    if (device) own.fenced[1] = released;
  });
  ++time;
}

void BlockOrder::read(std::uint32_t warp, int lane, const SyncPlace& place, bool acquires, bool device) {
  ThreadOrder& own = thread(warp, lane);
  const auto mine = place.blocks.find(block_);
  KnowledgePtr seen[2];
  if (mine != place.blocks.end()) seen[0] = mine->second;
  if (device) seen[1] = place.device;
  for (int reach = 0; reach < 2; ++reach) {
    if (acquires) own.known = Knowledge::join(own.known, seen[reach]);
    own.read[reach] = Knowledge::join(own.read[reach], seen[reach]);
  }
}

void BlockOrder::write(std::uint32_t index, int lane, SyncPlaces& places, std::uint64_t address,
                       bool modifies, bool releases, bool device, std::uint32_t& time) {
  KnowledgePtr published[2];
  if (releases) {
    fences_seen_ = true;
    published[0] = released_by(warps_[index], lane, time);
    if (device) published[1] = published[0];
    ++time;
  }
  if (warps_[index].threads != nullptr || !common_.empty()) {
    const ThreadOrder& own = thread(index, lane);
    published[0] = Knowledge::join(Knowledge::join(published[0], own.fenced[0]), common_.fenced[0]);
    if (device)
      published[1] = Knowledge::join(Knowledge::join(published[1], own.fenced[1]), common_.fenced[1]);
  }
  const std::uint64_t writer = key_of(block_, index, static_cast<std::uint32_t>(lane));
  SyncPlace* const found = places.find(address);
  if (found == nullptr && published[0] == nullptr) return;
  SyncPlace& place = found == nullptr ? places.at(address) : *found;
  if (!modifies && place.writer != writer) {
    place.device = nullptr;
    place.blocks.clear();
  }
  place.writer = writer;
  if (published[0] != nullptr) {
    KnowledgePtr& mine = place.blocks[block_];
    mine = Knowledge::join(mine, published[0]);
  }
  place.device = Knowledge::join(place.device, published[1]);
}

}  // namespace sparsekiln::emulator

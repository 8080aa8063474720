#include "emulator/machine/block.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "emulator/machine/warp.h"

namespace sparsekiln::emulator {
namespace {

/// How many instructions a warp may run before the emulator checks whether it is in an endless loop; after
/// that twice as many, and so on.
constexpr std::uint64_t kFirstLook = 20'000;
/// How many of them are looked at.
constexpr std::uint32_t kLook = 65'536;
/// No kernel computes this long without a store, a barrier or an end.
constexpr std::uint64_t kMostIdle = 400'000'000;
/// Turns of one warp without progress anywhere before its state is compared.
constexpr std::uint64_t kFirstTurns = 512;  // a power of two
/// What a warp runs before another may be chosen.
constexpr std::uint32_t kLongestSlice = 64;
constexpr std::uint32_t kSliceAlone = 8192;

/// The n-th (from 0) bit set of `bits`.
std::uint32_t nth_bit(std::uint32_t bits, std::uint32_t n) {
  for (; n != 0; --n) bits &= bits - 1;
  return static_cast<std::uint32_t>(std::countr_zero(bits));
}

/// "warps 0, 4 and 5"
std::string names_of(std::uint32_t warps) {
  std::string names = std::has_single_bit(warps) ? "warp " : "warps ";
  for (std::uint32_t left = warps; left != 0; left &= left - 1) {
    names += std::to_string(std::countr_zero(left));
    const std::uint32_t others = left & (left - 1);
    if (others != 0) names += std::has_single_bit(others) ? " and " : ", ";
  }
  return names;
}

/// Faults where warps wait for phases of mbarriers: which of them wait for which.
void report_waits(const Block& block) {
  const Warp* first = nullptr;
  std::string waits;
  for (const auto& [offset, mbarrier] : block.mbarriers) {
    if (mbarrier.waiting == 0) continue;
    if (first == nullptr) first = &block.warps[static_cast<std::size_t>(std::countr_zero(mbarrier.waiting))];
    const std::uint32_t missing = mbarrier.arrived_before & ~mbarrier.arrived;
    waits += (waits.empty() ? "" : "; ") + names_of(mbarrier.waiting) + " for the " +
             describe_mbarrier(offset, mbarrier) +
             (missing == 0 ? "" : ", for which " + names_of(missing) + " arrived the time before");
  }
  if (first != nullptr)
    fault(FaultKind::deadlock, *first, block.grid.program.code[first->pc], std::countr_zero(first->active),
          "waits, and nothing is left that could change what is waited for: " + waits);
}

}  // namespace

LineAlignedBytes::LineAlignedBytes(std::size_t bytes)
    : bytes_(
          static_cast<std::byte*>(::operator new[](std::max<std::size_t>(bytes, 1), std::align_val_t{64}))) {
  std::memset(bytes_.get(), 0, bytes);
}

void WarpSnapshot::take(const Warp& warp, std::size_t register_bytes, std::uint64_t now) {
  registers.assign(warp.registers, warp.registers + register_bytes);
  diverged = warp.diverged;
  pc = warp.pc;
  active = warp.active;
  progress = now;
}

bool WarpSnapshot::same(const Warp& warp, std::uint64_t now) const {
  const auto equal = [](const Divergence& a, const Divergence& b) {
    return a.pc == b.pc && a.join == b.join && a.lanes == b.lanes;
  };
  return pc == warp.pc && progress == now && active == warp.active &&
         std::equal(diverged.begin(), diverged.end(), warp.diverged.begin(), warp.diverged.end(), equal) &&
         std::memcmp(registers.data(), warp.registers, registers.size()) == 0;
}

Block::Block(Grid& of, Cluster& with, std::uint32_t at)
    : grid(of),
      cluster(&with),
      rank(at),
      warps(of.warps),
      copies(of.warps),
      bulk_groups(of.warps),
      idle(of.warps),
      registers_(std::size_t{of.program.register_bytes} * of.warps),
      shared_(of.shared_bytes),
      local_(std::size_t{of.local_bytes} * of.threads),
      patience_(of.warps) {
  shared = shared_.data();
  local = local_.data();
  const std::size_t cells = cells_of(of.shared_bytes);
  if (grid.checks.unwritten) shared_written.resize(cells);
  if (grid.checks.races) {
    shared_filling.resize(cells);
    shared_lines = std::vector<Line>((of.shared_bytes + kLineBytes - 1) / kLineBytes);
  }
  if (grid.checks.unwritten) local_cells.resize(std::size_t{of.local_bytes} * of.threads / kCellBytes);
  for (Warp& warp : warps) times.push_back(&warp.time);
  for (WarpCopies& of_warp : copies) of_warp.pending.reserve(32);
}

void Block::start(std::uint32_t number) {
  index = number;
  random = Random(mixed(grid.request.seed) ^ mixed(~std::uint64_t{number}));
  ready = grid.warps == 32 ? 0xffffffffu : (1u << grid.warps) - 1;
  living = ready;
  progress = 0;
  ++stamp;
  order.start(number, grid.warps);
  shared_places.clear();
  barriers.start();
  mbarriers.clear();
  flying.clear();
  agents.clear();
  landing_ = static_cast<Landing>(mixed(grid.request.seed + number + 1) % 3);
  circling_ = 0;
  matrix.start(grid.warps, grid.program.async_registers);
  pool.start(grid.warps, registers_at_start(grid.program.function));
  std::fill(idle.begin(), idle.end(), 0);
  std::fill(patience_.begin(), patience_.end(), Patience{.next_look = kFirstLook});
  for (std::vector<ByteMask>* const bytes : {&local_cells, &shared_written, &shared_filling})
    std::fill(bytes->begin(), bytes->end(), ByteMask{0});
  for (std::uint32_t w = 0; w < grid.warps; ++w) {
    Warp& warp = warps[w];
    warp.registers = registers_.data() + std::size_t{grid.program.register_bytes} * w;
    warp.pc = 0;
    warp.active = warp.live = grid.lanes_of(w);
    warp.state = WarpState::ready;
    warp.block = this;
    warp.index = w;
    warp.diverged.clear();
    warp.time = 1;
    warp.awaited = 0;
    warp.cluster = {};
    warp.turn_granted = grid.alone();
    copies[w].start();
    bulk_groups[w].start();
    fill_fixed_rows(*this, warp, stamp == 1);
  }
}

std::uint32_t Block::wanting() const {
  std::uint32_t result = 0;
  for (const Warp& warp : warps)
    if (warp.state == WarpState::wants_turn) result |= 1u << warp.index;
  return result;
}

void Block::wake(std::uint32_t which) {
  ready |= which;
  for (; which != 0; which &= which - 1)
    warps[static_cast<std::size_t>(std::countr_zero(which))].state = WarpState::ready;
}

void Block::note_ended(Warp& warp, Mask before) {
  const Mask gone = before & ~warp.live;
  ++progress;
  finish_copies(warp, gone);
  note_missing_wait(warp, gone);
  if (!grid.clustered()) cluster->look_at_barrier();
  if (warp.live != 0) return;
  living &= ~(1u << warp.index);
  end_matrix(warp);
  end_registers(warp);
  release_barriers(*this);
}

void Block::run_warp(std::uint32_t w, std::uint32_t budget) {
  Warp& warp = warps[w];
  const Mask live = warp.live;
  run_slice(warp, grid.program.code.data(), worker->executed.data(), budget);
  if (warp.live != live) note_ended(warp, live);
  if (warp.state != WarpState::ready) ready &= ~(1u << w);
}

void Block::run(Worker& on) {
  worker = &on;
  circling_ = 0;
  std::uint64_t seen = progress;
  while (true) {
    if (progress != seen) {
      seen = progress;
      circling_ = 0;
    }
    const std::uint32_t choice = ready & ~circling_;
    if (!flying.empty() && land_one(choice == 0)) continue;
    if (choice == 0) break;
    const int count = std::popcount(choice);
    const bool alone = count == 1;
    const std::uint32_t w = alone ? static_cast<std::uint32_t>(std::countr_zero(choice))
                                  : nth_bit(choice, random.below(static_cast<std::uint32_t>(count)));
    const std::uint32_t budget = alone ? kSliceAlone : 1 + random.below(kLongestSlice);
    run_warp(w, budget);
    if (progress != seen) {
      idle[w] = 0;
      patience_[w].next_look = kFirstLook;
    } else if ((idle[w] += budget) >= patience_[w].next_look && warps[w].state == WarpState::ready) {
      if (comes_back(w)) circling_ |= 1u << w;
      patience_[w].next_look = idle[w] * 2;
      if (idle[w] > kMostIdle)
        report_endless(warps[w], "ran " + std::to_string(idle[w]) + " instructions without any effect");
    }
  }
  if (living != 0 && wanting() == 0 && !grid.clustered()) report_stuck();
}

void Block::land(const AsyncOperation* operation) {
  const auto found =
      std::find_if(flying.begin(), flying.end(), [&](const auto& one) { return one.get() == operation; });
  if (found == flying.end()) return;
  const std::unique_ptr<AsyncOperation> landing = std::move(*found);
  flying.erase(found);
  landing->land();
}

bool Block::land_one(bool must) {
  constexpr std::uint32_t kRarely = 16;
  if (!must && (landing_ == Landing::late || random.below(kRarely) != 0)) return false;
  std::vector<std::size_t> own;
  for (std::size_t i = 0; i < flying.size(); ++i)
    if (!flying[i]->reaches_peers()) own.push_back(i);
  if (own.empty()) return false;
  const AsyncOperation* const operation =
      flying[own[random.below(static_cast<std::uint32_t>(own.size()))]].get();
  if (ended() && operation->fills_shared())
    throw Fault(FaultKind::copy_not_awaited,
                "copy not awaited: a block ends while a copy into its shared memory is on its way; " +
                    describe(site_of(*this, index, 0, 0, operation->pc)));
  land(operation);
  ++progress;
  return true;
}

bool Block::land_at_peers(bool all) {
  std::vector<const AsyncOperation*> landing;
  for (const auto& operation : flying)
    if (operation->reaches_peers() && (all || (landing_ != Landing::late && random.coin())))
      landing.push_back(operation.get());
  for (const AsyncOperation* operation : landing) land(operation);
  progress += landing.size();
  return !landing.empty();
}

bool Block::comes_back(std::uint32_t w) {
  WarpSnapshot& snapshot = patience_[w].running;
  Warp& warp = warps[w];
  snapshot.take(warp, grid.program.register_bytes, progress);
  for (std::uint32_t i = 0; i < kLook; ++i) {
    run_warp(w, 1);
    if (warp.state != WarpState::ready || progress != snapshot.progress) return false;
    if (snapshot.same(warp, progress)) return true;
  }
  return false;
}

bool Block::take_turn(std::uint32_t w, Worker& on) {
  worker = &on;
  Warp& warp = warps[w];
  Patience& patience = patience_[w];
  const std::uint64_t before = progress;
  bool circles = false;
  if (grid.progress != patience.progress) {
    patience.progress = grid.progress;
    patience.turns = 0;
  } else if (++patience.turns >= kFirstTurns) {
    if (std::has_single_bit(patience.turns))
      patience.talking.take(warp, grid.program.register_bytes, grid.progress);
    else
      circles = patience.talking.same(warp, grid.progress);
  }
  warp.turn_granted = true;
  wake(1u << w);
  run_warp(w, random.coin() ? 1 : 1 + random.below(kLongestSlice));
  warp.turn_granted = grid.alone();
  grid.progress += progress - before;
  return circles;
}

void Block::report_stuck() const {
  report_registers(*this);
  report_matrix(*this);
  for (std::uint32_t left = circling_; left != 0; left &= left - 1) {
    const Warp& warp = warps[static_cast<std::size_t>(std::countr_zero(left))];
    if (!warp.diverged.empty()) report_endless(warp, "");
  }
  report_waits(*this);
  for (const Warp& warp : warps)
    if (warp.cluster.suspended)
      fault(FaultKind::barrier_not_reached, warp, grid.program.code[warp.pc], std::countr_zero(warp.active),
            "the barrier of the cluster will never be complete: a thread of it waits elsewhere");
  if (circling_ != 0) report_endless(warps[static_cast<std::size_t>(std::countr_zero(circling_))], "");
  for (std::uint32_t id = 0; id < kBarriers; ++id)
    if (barriers.arrivals[id].waiting != 0) report_missing(*this, id);
  throw Fault(FaultKind::deadlock, "deadlock: no warp of a block can run");
}

void report_endless(const Warp& warp, const std::string& why) {
  const Instruction& next = warp.block->grid.program.code[warp.pc];
  const int lane = std::countr_zero(warp.active);
  const std::string reason =
      why.empty() ? "repeats itself, and no other warp is left that could change what it waits for" : why;
  Mask parted = 0;
  for (const Divergence& waiting : warp.diverged) parted |= waiting.lanes & ~warp.active & warp.live;
  if (parted == 0) fault(FaultKind::deadlock, warp, next, lane, reason);
  const Site other =
      site_of(*warp.block, warp.block->index, warp.index, std::countr_zero(parted), warp.diverged.back().pc);
  fault(FaultKind::divergence_not_supported, warp, next, lane,
        "this lane " + reason + "; lanes of its own warp wait meanwhile: " + describe(other));
}

}  // namespace sparsekiln::emulator

#include "emulator/machine/async_proxy.h"

#include <algorithm>

#include "emulator/machine/access.h"

namespace sparsekiln::emulator {
namespace {

/// Calls use(group) for the lines of [offset, offset + bytes).
template <class Use>
void each_line(int lane, std::uint64_t offset, std::uint64_t bytes, Use use) {
  for (const std::uint64_t end = offset + bytes; offset < end;) {
    LaneGroup group;
    group.line = offset / kLineBytes;
    group.lanes = 1u << lane;
    group.begin = static_cast<std::uint32_t>(offset % kLineBytes);
    group.end =
        static_cast<std::uint32_t>(std::min(end - group.line * kLineBytes, std::uint64_t{kLineBytes}));
    if (group.begin % kCellBytes == 0 && group.end % kCellBytes == 0)
      group.units = ((1u << (group.end - group.begin) / kCellBytes) - 1) << group.begin / kCellBytes;
    group.pattern = LanePattern::of(0, LanePattern::kOneLane);
    use(group);
    offset = group.line * kLineBytes + group.end;
  }
}

CheckedAccess checked_of(const AsyncIssue& issue, AccessSpace space, AccessKind kind) {
  return {.warp = issue.warp,
          .instruction = issue.instruction,
          .mask = 1u << issue.lane,
          .access = {.space = space, .kind = kind, .bytes = 1},
          .async = true};
}

Touch touch_of(const AsyncIssue& issue, AccessKind kind) {
  return Touch::of(issue.agent.block, issue.agent.slot, issue.agent.time,
                   pc_of(issue.warp, issue.instruction), kind != AccessKind::read,
                   kind == AccessKind::atomic ? Strength::device : Strength::weak);
}

BlockOrder::AsyncPoint point_of(const AsyncIssue& issue) {
  return {.order = &issue.warp.block->order, .warp = issue.warp.index, .lane = issue.lane};
}

/// What launches before may still access, in pieces that watch_overlap takes.
void check_overlap(const CheckedAccess& checked, const Allocation& allocation, std::uint64_t address,
                   std::uint64_t bytes, bool waited) {
  CheckedAccess piece = checked;
  const bool units = address % kCellBytes == 0 && bytes % kCellBytes == 0;
  const std::uint64_t step = units ? kCellBytes : 1;
  piece.access.bytes = static_cast<int>(step);
  for (std::uint64_t done = 0; done < bytes;) {
    std::uint64_t addresses[kLanes] = {};
    Mask lanes = 0;
    for (int lane = 0; lane < kLanes && done < bytes; ++lane, done += step) {
      addresses[lane] = address + done;
      lanes |= 1u << lane;
    }
    watch_overlap(piece, allocation, lanes, addresses, waited ? kAllLanes : 0);
  }
}

}  // namespace

std::uint32_t agent_slot(Block& of, AgentKind kind, std::uint32_t which) {
  const std::uint64_t key = std::uint64_t{static_cast<std::uint8_t>(kind)} << 32 | which;
  const auto next = static_cast<std::uint32_t>(of.agents.size());
  return of.agents.try_emplace(key, kFirstAgent + next % (kLastAgent - kFirstAgent + 1)).first->second;
}

void touch_shared(const AsyncIssue& issue, Block& of, std::uint32_t offset, std::uint32_t bytes,
                  AccessKind kind) {
  const SharedRange range{offset, bytes};
  touch_shared(issue, of, {&range, 1}, kind);
}

void touch_shared(const AsyncIssue& issue, Block& of, std::span<const SharedRange> ranges, AccessKind kind) {
  const CheckedAccess checked = checked_of(issue, AccessSpace::shared, kind);
  const std::uint32_t size = of.grid.shared_bytes;
  for (const SharedRange& range : ranges)
    if (range.offset > size || range.bytes > size - range.offset)
      checked.fail(FaultKind::out_of_bounds, issue.lane,
                   checked.text(range.offset + kSharedBase) + " and " + std::to_string(range.bytes - 1) +
                       " after it of shared memory, of which the block has " + std::to_string(size) +
                       " from " + hex(kSharedBase));
  if (!checked.checks().races && !checked.checks().unwritten) return;
  const BlockOrder::AsyncPoint point = point_of(issue);
  const SharedWatch watch{checked, of, touch_of(issue, kind), BlockOrder::async_viewer(point)};
  for (const SharedRange& range : ranges)
    each_line(issue.lane, range.offset, range.bytes,
              [&](const LaneGroup& group) { watch.line(group, true); });
}

std::byte* touch_global(const AsyncIssue& issue, std::uint64_t address, std::uint32_t bytes,
                        AccessKind kind) {
  const CheckedAccess checked = checked_of(issue, AccessSpace::global, kind);
  const Grid& grid = issue.warp.block->grid;
  Allocation* const allocation = grid.find(address);
  if (allocation == nullptr || allocation->constant ||
      bytes > allocation->bytes - (address - allocation->address))
    checked.fail(FaultKind::out_of_bounds, issue.lane,
                 checked.text(address) + " and " + std::to_string(bytes - 1) + " after it" +
                     grid.whereabouts(address, false));
  std::byte* const host = allocation->data.get() + (address - allocation->address);
  const BlockOrder::AsyncPoint point = point_of(issue);
  const GlobalWatch watch{checked, *allocation, touch_of(issue, kind), BlockOrder::async_viewer(point)};
  if (!watch.needed()) return host;
  if (grid.request.overlaps())
    check_overlap(checked, *allocation, address, bytes, (issue.warp.awaited >> issue.lane & 1) != 0);
  each_line(issue.lane, address - allocation->address, bytes, [&](const LaneGroup& group) {
    const std::uint64_t index = group.line / Shadow::kLinesOfPage;
    const Shadow::Locked lock(*allocation->shadow, index);
    watch.line(group, watch.races ? &allocation->shadow->page(index) : nullptr, true);
  });
  return host;
}

void learn_of(Warp& warp, Mask lanes, const Agent& agent) {
  if (!checks_order(warp)) return;
  auto known = std::make_shared<Knowledge>();
  known->learn(agent.block, agent.slot, 0, agent.time);
  warp.block->order.acquire(warp.index, lanes, {.plain = std::move(known)});
}

void send(Warp& warp, std::unique_ptr<AsyncOperation> operation) {
  Block& block = *warp.block;
  ++block.progress;
  if (block.lands_early())
    operation->land();
  else
    block.flying.push_back(std::move(operation));
}

void land_now(Block& block, const AsyncOperation* operation) { block.land(operation); }

}  // namespace sparsekiln::emulator

#include "emulator/machine/access.h"
#include "emulator/machine/footprint.h"

// Launches that begin before others of their stream have ended (PTX ISA 9.7.13, griddepcontrol). One runs
// after the other here. Its threads are checked against all that launches before it access and that need not
// have happened yet.

namespace sparsekiln::emulator {
namespace {

/// The lowest byte of the group that `footprint` accesses as well, one of the two accesses being a write.
/// False where there is none.
bool meets(const Footprint& footprint, const Allocation& allocation, const LaneGroup& group, bool writes,
           std::uint32_t& byte) {
  const AllocationFootprint* const part = footprint.find(allocation.address);
  const AllocationFootprint::Page* const page =
      part == nullptr ? nullptr : part->page(group.line / Shadow::kLinesOfPage);
  if (page == nullptr) return false;
  const std::uint64_t first = group.line % Shadow::kLinesOfPage * kCellsOfLine;
  bool found = false;
  group.each_cell([&](std::uint32_t cell, ByteMask bytes) {
    const unsigned others = page->written[first + cell] | (writes ? page->read[first + cell] : 0u);
    if (found || (bytes & others) == 0) return;
    found = true;
    byte = cell * kCellBytes + static_cast<std::uint32_t>(std::countr_zero(bytes & others));
  });
  return found;
}

/// Whether the bytes that the footprint has at the same place are written by it.
bool writes_at(const Footprint& footprint, const Allocation& allocation, std::uint64_t offset) {
  const AllocationFootprint::Page& page =
      *footprint.find(allocation.address)->page(offset / Shadow::kPageBytes);
  const std::uint64_t cell = offset % Shadow::kPageBytes / kCellBytes;
  return (page.written[cell] >> offset % kCellBytes & 1) != 0;
}

/// `reason`: why the launch may not have ended.
void check_against(const CheckedAccess& checked, const Footprint& earlier, const char* reason,
                   const Allocation& allocation, Mask lanes, const std::uint64_t* addresses) {
  while (lanes != 0) {
    const LaneGroup group = first_group(lanes, checked.access.bytes,
                                        [&](int lane) { return addresses[lane] - allocation.address; });
    lanes &= ~group.lanes;
    std::uint32_t byte = 0;
    if (!meets(earlier, allocation, group, checked.writes(), byte)) continue;
    const int lane = group.pattern.lane_at(static_cast<int>(byte));
    const bool written = writes_at(earlier, allocation, group.line * kLineBytes + byte);
    checked.fail(FaultKind::launch_not_awaited, lane,
                 checked.text(addresses[lane]) + ", which the kernel " + earlier.kernel() +
                     ", launched before, may still " + (written ? "write" : "read") + ": " + reason);
  }
}

}  // namespace

void watch_overlap(const CheckedAccess& checked, const Allocation& allocation, Mask lanes,
                   const std::uint64_t* addresses, Mask waited) {
  const LaunchRequest& request = checked.block().grid.request;
  constexpr const char* kNotAwaited = "the thread has not executed griddepcontrol.wait";
  constexpr const char* kNotAwaitedBetween =
      "a launch between the two ended, or let its dependents begin, without griddepcontrol.wait in each "
      "thread";
  waited &= lanes;
  const Mask others = lanes & ~waited;
  for (const Footprint* const earlier : request.unfinished_before_wait)
    check_against(checked, *earlier,
                  earlier == request.unfinished_before_wait.back() ? kNotAwaited : kNotAwaitedBetween,
                  allocation, others, addresses);
  for (const Footprint* const earlier : request.unfinished_after_wait)
    check_against(checked, *earlier, kNotAwaitedBetween, allocation, waited, addresses);
}

void wait_for_launches(Warp& warp, Mask mask) { warp.awaited |= mask; }

void let_dependents_begin(Warp& warp, Mask mask) {
  Footprint* const own = warp.block->grid.request.footprint;
  if (own != nullptr && (mask & ~warp.awaited) != 0) own->note_early_trigger();
}

void note_missing_wait(const Warp& warp, Mask ended) {
  Footprint* const own = warp.block->grid.request.footprint;
  if (own != nullptr && (ended & ~warp.awaited) != 0) own->note_end_without_wait();
}

}  // namespace sparsekiln::emulator

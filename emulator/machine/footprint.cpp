#include "emulator/machine/footprint.h"

#include "emulator/machine/memory.h"

namespace sparsekiln::emulator {

void AllocationFootprint::add(const LaneGroup& group, bool reads, bool writes) {
  std::call_once(sized_, [&] { pages_.resize(count_); });
  std::unique_ptr<Page>& page = pages_[group.line / Shadow::kLinesOfPage];
  if (page == nullptr) page = std::make_unique<Page>();
  const std::uint64_t first = group.line % Shadow::kLinesOfPage * kCellsOfLine;
  group.each_cell([&](std::uint32_t cell, ByteMask bytes) {
    if (reads) page->read[first + cell] |= bytes;
    if (writes) page->written[first + cell] |= bytes;
  });
}

AllocationFootprint& Footprint::add(const Allocation& allocation) {
  return parts_.try_emplace(allocation.address, allocation.bytes).first->second;
}

const AllocationFootprint* Footprint::find(std::uint64_t address) const {
  const auto found = parts_.find(address);
  return found == parts_.end() ? nullptr : &found->second;
}

}  // namespace sparsekiln::emulator

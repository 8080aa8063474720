#include <algorithm>
#include <bit>
#include <cstring>

#include "emulator/machine/access.h"
#include "emulator/machine/traffic.h"

namespace sparsekiln::emulator {
namespace {

ByteMask bytes_in_cell(std::uint32_t offset, std::uint32_t bytes) {
  return static_cast<ByteMask>(((1u << bytes) - 1) << offset % kCellBytes);
}

/// memcpy of 4, 8 or 16 bytes.
void copy_bytes(std::byte* to, const std::byte* from, std::uint32_t bytes) {
  if (bytes == 16)
    std::memcpy(to, from, 16);
  else if (bytes == 8)
    std::memcpy(to, from, 8);
  else
    std::memcpy(to, from, 4);
}

/// Checks what is read of the source, and puts it where `to` says: the first bytes of each lane's, then
/// zeros.
void take_source(const CheckedAccess& checked, const std::uint64_t* from, const std::uint32_t* source_bytes,
                 std::byte* const* to) {
  std::byte* host[kLanes];
  const auto bytes = static_cast<std::uint32_t>(checked.access.bytes);
  Mask whole = 0;
  Mask part = 0;
  each_bit(checked.mask, [&](int lane) {
    if (source_bytes[lane] >= bytes)
      whole |= 1u << lane;
    else if (source_bytes[lane] > 0)
      part |= 1u << lane;
  });
  if (whole != checked.mask) {
    checked.check_alignment(LaneAddresses(from, checked.mask));
    each_bit(checked.mask & ~whole, [&](int lane) { std::memset(to[lane], 0, bytes); });
  }
  CheckedAccess read = checked;
  if (whole != 0) {
    read.mask = whole;
    check_global(read, from, 0, host);
    each_bit(whole, [&](int lane) { copy_bytes(to[lane], host[lane], bytes); });
  }
  read.access.bytes = 1;
  for (std::uint32_t byte = 0; part != 0; ++byte) {
    each_bit(part, [&](int lane) {
      if (source_bytes[lane] == byte) part &= ~(1u << lane);
    });
    if (part == 0) break;
    std::uint64_t addresses[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) addresses[lane] = from[lane] + byte;
    read.mask = part;
    check_global(read, addresses, 0, host);
    each_bit(part, [&](int lane) { to[lane][byte] = *host[lane]; });
  }
}

/// The copies of `lanes` are done: what they wrote counts as written by those threads, now.
void complete(Warp& warp, PendingCopy& copy, Mask lanes) {
  Block& block = *warp.block;
  if (copy.late)
    each_bit(lanes,
             [&](int lane) { copy_bytes(block.shared + copy.to[lane], copy.data[lane].data(), copy.bytes); });
  copy.lanes &= ~lanes;
  ++block.progress;
  if (!block.shared_written.empty())
    each_bit(lanes, [&](int lane) {
      block.shared_written[copy.to[lane] / kCellBytes] |= bytes_in_cell(copy.to[lane], copy.bytes);
    });
  if (!block.grid.checks.races) return;
  each_bit(lanes, [&](int lane) {
    block.shared_filling[copy.to[lane] / kCellBytes] &=
        static_cast<ByteMask>(~bytes_in_cell(copy.to[lane], copy.bytes));
  });
  const Viewer viewer = block.order.viewer(warp.index);
  const Touch touch = Touch::of(block.index, warp.index, warp.time, copy.pc, true, Strength::weak);
  while (lanes != 0) {
    const LaneGroup group = first_group(lanes, static_cast<int>(copy.bytes),
                                        [&](int lane) { return std::uint64_t{copy.to[lane]}; });
    lanes &= ~group.lanes;
    // An access to these bytes since the copy began has faulted already.
    Conflict none;
    (void)block.shared_lines[group.line].add(group, touch, block.stamp, viewer, none);
  }
}

/// Completes what `awaited(copy, lane)` says.
template <class Awaited>
void complete_where(Warp& warp, Mask mask, Awaited awaited) {
  WarpCopies& copies = warp.block->copies[warp.index];
  for (std::size_t i = copies.first; i < copies.pending.size(); ++i) {
    PendingCopy& copy = copies.pending[i];
    Mask lanes = 0;
    each_bit(copy.lanes & mask, [&](int lane) { lanes |= awaited(copy, lane) ? 1u << lane : 0; });
    if (lanes != 0) complete(warp, copy, lanes);
  }
  copies.tidy();
}

/// From now on no thread may access what is being filled.
void mark_filling(const Warp& warp, const Instruction& instruction, const PendingCopy& copy) {
  each_bit(copy.lanes, [&](int lane) {
    ByteMask& filling = warp.block->shared_filling[copy.to[lane] / kCellBytes];
    const ByteMask filled = bytes_in_cell(copy.to[lane], copy.bytes);
    // Two lanes of this instruction may not fill the same bytes either: when, is open for each.
    if ((filling & filled) != 0)
      fault(FaultKind::copy_overwritten, warp, instruction, lane,
            "copies to where another lane of the same instruction copies to: " +
                hex(copy.to[lane] + kSharedBase));
    filling |= filled;
  });
}

void count(Warp& warp, const Instruction& instruction, Mask mask, int bytes, const std::uint64_t* to,
           const std::uint64_t* from, const std::uint32_t* source_bytes) {
  LineCounters& counters = counters_of(warp, instruction);
  count_shared(counters, mask, bytes, to);
  Mask reading = 0;
  std::uint64_t missing = 0;
  each_bit(mask, [&](int lane) {
    if (source_bytes[lane] == 0) return;
    reading |= 1u << lane;
    missing += static_cast<std::uint32_t>(bytes) - source_bytes[lane];
  });
  if (reading == 0) return;
  count_global(counters, reading, bytes, from);
  counters.global_bytes -= missing;
}

}  // namespace

void watch_sources(const CheckedAccess& checked, Mask lanes, const std::uint64_t* addresses) {
  const Block& block = checked.block();
  const auto bytes = static_cast<std::uint64_t>(checked.access.bytes);
  std::uint64_t begin = ~std::uint64_t{0};
  std::uint64_t end = 0;
  each_bit(lanes, [&](int lane) {
    begin = std::min(begin, addresses[lane]);
    end = std::max(end, addresses[lane] + bytes);
  });
  const auto meet = [&](const PendingCopy& copy, std::uint32_t w) {
    each_bit(copy.lanes, [&](int reader) {
      const std::uint64_t from = copy.from[reader];
      each_bit(lanes, [&](int lane) {
        if (addresses[lane] >= from + copy.read[reader] || from >= addresses[lane] + bytes) return;
        const Site site = site_of(block, block.index, w, reader, copy.pc);
        checked.fail(
            FaultKind::race, lane,
            checked.text(addresses[lane]) +
                ", which an asynchronous copy may still be reading that its thread has not waited for: "
                "the copy by " +
                describe_thread(site) + ", " + describe_code(*site.program, copy.pc));
      });
    });
  };
  for (std::uint32_t w = 0; w < block.copies.size(); ++w) {
    const WarpCopies& copies = block.copies[w];
    for (std::size_t i = copies.first; i < copies.pending.size(); ++i) {
      const PendingCopy& copy = copies.pending[i];
      if (copy.lanes != 0 && copy.from_begin < end && begin < copy.from_end) meet(copy, w);
    }
  }
}

void copy_async(Warp& warp, const Instruction& instruction, Mask mask, int bytes, const std::uint64_t* to,
                const std::uint64_t* from, const std::uint32_t* source_bytes) {
  Block& block = *warp.block;
  WarpCopies& copies = block.copies[warp.index];
  const CheckedAccess write{warp, instruction, mask, {AccessSpace::shared, AccessKind::write, bytes}};
  const CheckedAccess read{warp, instruction, mask, {AccessSpace::global, AccessKind::read, bytes}};
  std::byte* into[kLanes];
  ++block.progress;
  check_shared(write, block, to, 0, into);
  const bool late = block.random.coin();
  const bool watched = block.grid.checks.races;
  if (!late && !watched) {
    take_source(read, from, source_bytes, into);
  } else {
    PendingCopy copy;
    copy.lanes = mask;
    copy.late = late;
    copy.pc = pc_of(warp, instruction);
    copy.bytes = static_cast<std::uint32_t>(bytes);
    copy.group = copies.committed;
    copy.from_begin = ~std::uint64_t{0};
    each_bit(mask, [&](int lane) {
      copy.to[lane] = static_cast<std::uint32_t>(to[lane]) - kSharedBase;
      copy.from[lane] = from[lane];
      copy.read[lane] = std::min(source_bytes[lane], copy.bytes);
      if (copy.read[lane] != 0) {
        copy.from_begin = std::min(copy.from_begin, from[lane]);
        copy.from_end = std::max(copy.from_end, from[lane] + copy.read[lane]);
      }
      if (late) into[lane] = copy.data[lane].data();
    });
    take_source(read, from, source_bytes, into);
    if (watched) mark_filling(warp, instruction, copy);
    copies.pending.push_back(copy);
  }
  if (block.grid.checks.counters) count(warp, instruction, mask, bytes, to, from, source_bytes);
}

void commit_copies(Warp& warp, Mask mask) {
  each_bit(mask, [&](int lane) { ++warp.block->copies[warp.index].committed[lane]; });
}

void wait_copies(Warp& warp, Mask mask, std::uint32_t pending) {
  const std::array<std::uint32_t, kLanes>& committed = warp.block->copies[warp.index].committed;
  complete_where(warp, mask, [&](const PendingCopy& copy, int lane) {
    return committed[lane] > copy.group[lane] && committed[lane] - copy.group[lane] > pending;
  });
}

void wait_all_copies(Warp& warp, Mask mask) {
  complete_where(warp, mask, [](const PendingCopy&, int) { return true; });
}

void finish_copies(Warp& warp, Mask lanes) { wait_all_copies(warp, lanes); }

}  // namespace sparsekiln::emulator

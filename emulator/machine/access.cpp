#include "emulator/machine/access.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "emulator/machine/traffic.h"

namespace sparsekiln::emulator {
namespace {

template <class Use>
void each_lane_of(Mask mask, Use use) {
  for (; mask != 0; mask &= mask - 1) use(std::countr_zero(mask));
}

/// Whether the bytes of every lane are within [base, base + size).
bool all_inside(const LaneAddresses& addresses, std::uint64_t base, std::uint64_t size, int bytes) {
  if (size < static_cast<std::uint64_t>(bytes)) return false;
  const std::uint64_t last = size - bytes;
  std::uint64_t outside = 0;
  for (int lane = 0; lane < kLanes; ++lane) outside |= addresses.at[lane] - base > last ? 1 : 0;
  return outside == 0;
}

/// The lowest lane of the mask whose bytes are not within [base, base + size); 32 if there is none.
int first_outside(const std::uint64_t* addresses, Mask mask, std::uint64_t base, std::uint64_t size,
                  int bytes) {
  for (; mask != 0; mask &= mask - 1) {
    const int lane = std::countr_zero(mask);
    const std::uint64_t offset = addresses[lane] - base;
    if (offset >= size || size - offset < static_cast<std::uint64_t>(bytes)) return lane;
  }
  return kLanes;
}

/// Where the first of `bytes` of a cell of the group lies, and who touches it.
struct Place {
  int lane;
  std::uint64_t address;  ///< of the byte
};
Place place_of(const LaneGroup& group, std::uint32_t cell, unsigned bytes, std::uint64_t memory) {
  const std::uint32_t byte = cell * kCellBytes + static_cast<std::uint32_t>(std::countr_zero(bytes));
  return {group.pattern.lane_at(static_cast<int>(byte)), memory + group.line * kLineBytes + byte};
}

/// Where the access begins that touches `address`.
std::uint64_t begin_of(const Request& request, std::uint64_t address) {
  return address & ~static_cast<std::uint64_t>(request.access.bytes - 1);
}

/// Checks that no unwritten bytes are read, and marks what is written. `written` has the bytes of the whole
/// memory, by cell; the memory starts at the address `memory`.
void watch_written(const Request& request, const LaneGroup& group, ByteMask* written, std::uint64_t memory) {
  ByteMask* const cells = written + group.line * kCellsOfLine;
  if (all_cells_are(cells, 0xffff)) return;
  group.each_cell([&](std::uint32_t c, ByteMask bytes) {
    if (request.reads() && (bytes & ~cells[c]) != 0) {
      const Place at = place_of(group, c, bytes & ~cells[c], memory);
      request.fail(FaultKind::unwritten_read, at.lane,
                   request.text(begin_of(request, at.address)) +
                       ", of which nothing has written the byte at " + hex(at.address));
    }
    if (request.writes()) cells[c] |= bytes;
  });
}

void watch_order(const Request& request, const LaneGroup& group, const Touch& touch, Line& line,
                 std::uint32_t stamp, const Viewer& viewer, std::uint64_t memory) {
  Conflict with;
  if (line.add(group, touch, stamp, viewer, with)) return;
  const Site site = site_of(request.block(), with.touch.block, with.touch.warp(), with.lane, with.touch.pc());
  request.fail(FaultKind::race, group.pattern.lane_at(static_cast<int>(with.byte)),
               request.text(begin_of(request, memory + group.line * kLineBytes + with.byte)) +
                   ", which races with the " + (with.touch.writes() ? "write" : "read") + " by " +
                   describe_thread(site) + ": " + describe_code(*site.program, with.touch.pc()));
}

/// An asynchronous copy that fills bytes from `address` of shared memory on.
std::string describe_copy(const Block& block, std::uint64_t address) {
  for (std::size_t w = 0; w < block.copies.size(); ++w)
    for (const PendingCopy& copy : block.copies[w].pending)
      for (Mask left = copy.lanes; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        if (address - kSharedBase - copy.to[lane] >= copy.bytes) continue;
        const Site site = site_of(block, block.index, static_cast<std::uint32_t>(w), lane, copy.pc);
        return "the copy by " + describe_thread(site) + ", " + describe_code(*site.program, copy.pc);
      }
  return "a copy";
}

void watch_filling(const Request& request, const LaneGroup& group) {
  const Block& block = request.block();
  const ByteMask* const cells = block.shared_filling.data() + group.line * kCellsOfLine;
  if (all_cells_are(cells, 0)) return;
  group.each_cell([&](std::uint32_t c, ByteMask bytes) {
    if ((bytes & cells[c]) == 0) return;
    const Place at = place_of(group, c, bytes & cells[c], kSharedBase);
    request.fail(request.reads() ? FaultKind::copy_not_awaited : FaultKind::copy_overwritten, at.lane,
                 request.text(begin_of(request, at.address)) +
                     ", which an asynchronous copy is filling that its thread has not waited for: " +
                     describe_copy(block, at.address));
  });
}

Touch touch_of(const Request& request) {
  return Touch::of(request.block().index, request.warp.index, request.warp.time,
                   pc_of(request.warp, request.instruction), request.writes(), strength_of(request.access));
}

void watch_shared(const Request& request, const std::uint32_t* offsets, Mask common) {
  Block& block = request.block();
  const Viewer viewer = block.order.viewer(request.warp.index);
  const Touch touch = touch_of(request);
  const bool races = request.checks().races;
  for (Mask left = request.mask; left != 0;) {
    const LaneGroup group =
        first_group(left, request.access.bytes, [&](int lane) { return std::uint64_t{offsets[lane]}; });
    left &= ~group.lanes;
    if (races) watch_filling(request, group);
    if (request.checks().unwritten) watch_written(request, group, block.shared_written.data(), kSharedBase);
    if (races && (group.lanes & ~common) != 0)
      watch_order(request, group, touch, block.shared_lines[group.line], block.stamp, viewer, kSharedBase);
  }
}

/// Lanes of one allocation.
void watch_global(const Request& request, Allocation& allocation, Mask lanes, const std::uint64_t* addresses,
                  Mask common) {
  Shadow& shadow = *allocation.shadow;
  const bool races = request.checks().races;
  if (request.writes() && !request.checks().unwritten) shadow.mark_all_written();
  const bool written = request.checks().unwritten && !shadow.all_written();
  if (!races && !written) return;
  Block& block = request.block();
  if (races && request.writes()) watch_sources(request, lanes, addresses);
  const Viewer viewer = block.order.viewer(request.warp.index);
  const Touch touch = touch_of(request);
  const auto offset = [&](int lane) { return addresses[lane] - allocation.address; };
  LaneGroup group = first_group(lanes, request.access.bytes, offset);
  while (lanes != 0) {
    const std::uint64_t index = group.line / Shadow::kLinesOfPage;
    const Shadow::Locked lock(shadow, index);
    Shadow::Page* const page = races ? &shadow.page(index) : nullptr;
    do {
      lanes &= ~group.lanes;
      if (written) watch_written(request, group, shadow.written(), allocation.address);
      if (races && (group.lanes & ~common) != 0)
        watch_order(request, group, touch, page->lines[group.line % Shadow::kLinesOfPage], block.grid.stamp,
                    viewer, allocation.address);
      if (lanes == 0) return;
      group = first_group(lanes, request.access.bytes, offset);
    } while (group.line / Shadow::kLinesOfPage == index);
  }
}

void watch_local(const Request& request, const std::uint64_t* offsets) {
  std::vector<ByteMask>& cells = request.block().local_cells;
  each_lane_of(request.mask, [&](int lane) {
    const auto bytes =
        static_cast<ByteMask>(((1u << request.access.bytes) - 1) << offsets[lane] % kCellBytes);
    ByteMask& written = cells[offsets[lane] / kCellBytes];
    if (request.reads() && (bytes & ~written) != 0)
      request.fail(FaultKind::unwritten_read, lane,
                   request.text(offsets[lane] % request.block().grid.local_bytes) +
                       " of local memory, which nothing has written");
    if (request.writes()) written = static_cast<ByteMask>(written | bytes);
  });
}

void check_local(const Request& request, const std::uint64_t* given, std::byte** host) {
  Block& block = request.block();
  const std::uint32_t size = block.grid.local_bytes;
  const std::uint32_t has = block.grid.program.local_bytes;
  std::uint64_t offsets[kLanes];
  request.check_alignment(LaneAddresses(given, request.mask));
  each_lane_of(request.mask, [&](int lane) {
    const auto address = static_cast<std::uint32_t>(given[lane]);
    if (address >= has || has - address < static_cast<std::uint32_t>(request.access.bytes))
      request.fail(FaultKind::out_of_bounds, lane,
                   request.text(address) + " of local memory, of which a thread has " + std::to_string(has));
    const std::uint64_t thread = request.warp.index * kLanes + static_cast<std::uint32_t>(lane);
    offsets[lane] = thread * size + address;
    host[lane] = block.local + offsets[lane];
  });
  if (request.checks().unwritten) watch_local(request, offsets);
}

void check_constant(const Request& request, const std::uint64_t* given, std::byte** host) {
  const Block& block = request.block();
  const LaneAddresses addresses(given, request.mask);
  if (request.writes())
    request.fail(FaultKind::invalid_operation, std::countr_zero(request.mask), "writes constant memory");
  request.check_alignment(addresses);
  Allocation*& found = block.worker->found[pc_of(request.warp, request.instruction)];
  const auto fits = [&](const Allocation* allocation) {
    return allocation != nullptr && allocation->constant &&
           all_inside(addresses, allocation->address, allocation->bytes, request.access.bytes);
  };
  if (!fits(found)) {
    Allocation* const at_first = block.grid.find(addresses.at[std::countr_zero(request.mask)]);
    if (fits(at_first)) {
      found = at_first;
    } else {
      each_lane_of(request.mask, [&](int lane) {
        const Allocation* const allocation = block.grid.find(given[lane]);
        if (allocation == nullptr || !allocation->constant ||
            first_outside(given, 1u << lane, allocation->address, allocation->bytes, request.access.bytes) !=
                kLanes)
          request.fail(FaultKind::out_of_bounds, lane,
                       request.text(given[lane]) + block.grid.whereabouts(given[lane], true));
        host[lane] = allocation->data.get() + (given[lane] - allocation->address);
      });
      return;
    }
  }
  for (int lane = 0; lane < kLanes; ++lane)
    host[lane] = found->data.get() + (addresses.at[lane] - found->address);
}

/// Splits the lanes by the window that a generic address is in (PTX ISA 5.1, "Generic Addressing").
void check_generic(Request request, const std::uint64_t* addresses, Mask common, std::byte** host,
                   Mask& shared, Mask& global) {
  Mask local = 0;
  shared = 0;
  each_lane_of(request.mask, [&](int lane) {
    shared |= addresses[lane] - kSharedWindow < kWindowBytes ? 1u << lane : 0;
    local |= addresses[lane] - kLocalWindow < kWindowBytes ? 1u << lane : 0;
  });
  global = request.mask & ~shared & ~local;
  const Mask all = request.mask;
  std::uint64_t offsets[kLanes];
  each_lane_of(all, [&](int lane) { offsets[lane] = addresses[lane] % kWindowBytes; });
  const auto with = [&](Mask mask, auto check) {
    request.mask = mask;
    if (mask != 0) check();
  };
  with(shared, [&] { check_shared(request, offsets, common, host); });
  with(local, [&] { check_local(request, offsets, host); });
  with(global, [&] { check_global(request, addresses, common, host); });
}

/// host[lane] = address(lane) for the lanes of `mask`; all at once where it has all of them.
template <class Address>
void place(std::byte** host, Mask mask, Address address) {
  if (mask == kAllLanes)
    for (int lane = 0; lane < kLanes; ++lane) host[lane] = address(lane);
  else
    each_lane_of(mask, [&](int lane) { host[lane] = address(lane); });
}

}  // namespace

LaneAddresses::LaneAddresses(const std::uint64_t* given, Mask mask) {
  std::copy_n(given, kLanes, at);
  if (mask == kAllLanes) return;
  const std::uint64_t some = given[std::countr_zero(mask)];
  for (int lane = 0; lane < kLanes; ++lane) at[lane] = (mask >> lane & 1) != 0 ? at[lane] : some;
}

std::string Request::text(std::uint64_t address) const {
  const char* const verb = access.kind == AccessKind::read    ? "reads "
                           : access.kind == AccessKind::write ? "writes "
                                                              : "updates ";
  return verb + std::to_string(access.bytes) + " bytes at " + hex(address);
}

void Request::fail(FaultKind kind, int lane, const std::string& what) const {
  fault(kind, warp, instruction, lane, what);
}

void Request::check_alignment(const LaneAddresses& addresses) const {
  const auto low = static_cast<std::uint64_t>(access.bytes - 1);
  std::uint64_t bits = 0;
  for (int lane = 0; lane < kLanes; ++lane) bits |= addresses.at[lane];
  if ((bits & low) == 0) return;
  each_lane_of(mask, [&](int lane) {
    if ((addresses.at[lane] & low) != 0)
      fail(FaultKind::misaligned, lane,
           text(addresses.at[lane]) + ", no multiple of " + std::to_string(access.bytes));
  });
}

Mask repeated(const std::uint64_t* addresses, Mask mask, int bytes) {
  if (mask == kAllLanes) {
    std::uint64_t falls = 0;
    for (int lane = 1; lane < kLanes; ++lane)
      falls |= addresses[lane] < addresses[lane - 1] + static_cast<std::uint64_t>(bytes) ? 1 : 0;
    if (falls == 0) return 0;
  }
  constexpr std::uint32_t kSlots = 64;
  std::uint64_t used = 0;
  std::uint64_t slots[kSlots];
  Mask result = 0;
  each_lane_of(mask, [&](int lane) {
    auto slot = static_cast<std::uint32_t>(addresses[lane] * 0x9e3779b97f4a7c15u >> 58);
    while ((used >> slot & 1) != 0 && slots[slot] != addresses[lane]) slot = (slot + 1) % kSlots;
    if ((used >> slot & 1) != 0) result |= 1u << lane;
    used |= std::uint64_t{1} << slot;
    slots[slot] = addresses[lane];
  });
  return result;
}

void check_shared(const Request& request, const std::uint64_t* given, Mask common, std::byte** host) {
  Block& block = request.block();
  LaneAddresses addresses(given, request.mask);
  for (std::uint64_t& address : addresses.at) address = static_cast<std::uint32_t>(address);
  request.check_alignment(addresses);
  if (!all_inside(addresses, kSharedBase, block.grid.shared_bytes, request.access.bytes)) {
    const int lane =
        first_outside(addresses.at, request.mask, kSharedBase, block.grid.shared_bytes, request.access.bytes);
    request.fail(FaultKind::out_of_bounds, lane,
                 request.text(addresses.at[lane]) + " of shared memory, of which the block has " +
                     std::to_string(block.grid.shared_bytes) + " from " + hex(kSharedBase));
  }
  std::uint32_t offsets[kLanes];
  for (int lane = 0; lane < kLanes; ++lane)
    offsets[lane] = static_cast<std::uint32_t>(addresses.at[lane]) - kSharedBase;
  place(host, request.mask, [&, memory = block.shared](int lane) { return memory + offsets[lane]; });
  if (request.checks().races || request.checks().unwritten) watch_shared(request, offsets, common);
}

void check_global(const Request& request, const std::uint64_t* given, Mask common, std::byte** host) {
  const Block& block = request.block();
  const LaneAddresses addresses(given, request.mask);
  request.check_alignment(addresses);
  Allocation*& found = block.worker->found[pc_of(request.warp, request.instruction)];
  const int bytes = request.access.bytes;
  if (found == nullptr || found->constant || !all_inside(addresses, found->address, found->bytes, bytes)) {
    for (Mask left = request.mask; left != 0;) {
      const int first = std::countr_zero(left);
      Allocation* const allocation = block.grid.find(given[first]);
      if (allocation == nullptr || allocation->constant ||
          first_outside(given, 1u << first, allocation->address, allocation->bytes, bytes) != kLanes)
        request.fail(FaultKind::out_of_bounds, first,
                     request.text(given[first]) + block.grid.whereabouts(given[first], false));
      Mask inside = 0;
      each_lane_of(left, [&](int lane) {
        if (first_outside(given, 1u << lane, allocation->address, allocation->bytes, bytes) != kLanes) return;
        inside |= 1u << lane;
        host[lane] = allocation->data.get() + (given[lane] - allocation->address);
      });
      watch_global(request, *allocation, inside, given, common);
      found = allocation;
      left &= ~inside;
    }
    return;
  }
  place(host, request.mask, [&, data = found->data.get(), first = found->address](int lane) {
    return data + (addresses.at[lane] - first);
  });
  watch_global(request, *found, request.mask, given, common);
}

Mask access(Warp& warp, const Instruction& instruction, Mask mask, const Access& what,
            const std::uint64_t* addresses, std::byte** host) {
  const Request request{warp, instruction, mask, what};
  Block& block = *warp.block;
  const bool writes = what.kind != AccessKind::read;
  if (what.kind == AccessKind::write) ++block.progress;
  const Mask common =
      what.kind == AccessKind::write && block.grid.checks.races && what.space != AccessSpace::local
          ? repeated(addresses, mask, what.bytes)
          : 0;
  Mask shared = 0;
  Mask global = 0;
  switch (what.space) {
    case AccessSpace::shared:
      shared = mask;
      check_shared(request, addresses, common, host);
      break;
    case AccessSpace::global:
      global = mask;
      check_global(request, addresses, common, host);
      break;
    case AccessSpace::local:
      check_local(request, addresses, host);
      break;
    case AccessSpace::constant:
      check_constant(request, addresses, host);
      break;
    case AccessSpace::generic:
      check_generic(request, addresses, common, host, shared, global);
      break;
  }
  if (block.grid.checks.counters && (shared | global) != 0) {
    LineCounters& counters = counters_of(warp, instruction);
    if (shared != 0) count_shared(counters, shared, what.bytes, addresses);
    if (global != 0) count_global(counters, global, what.bytes, addresses);
  }
  return writes ? common : 0;
}

void after_common_write(const Warp& warp, const Instruction& instruction, Mask common, int bytes,
                        std::byte* const* host, const std::byte (*written)[16]) {
  each_lane_of(common, [&](int lane) {
    if (std::memcmp(host[lane], written[lane], static_cast<std::size_t>(bytes)) != 0)
      fault(FaultKind::race, warp, instruction, lane,
            "writes where another lane of the same instruction writes something else");
  });
}

}  // namespace sparsekiln::emulator

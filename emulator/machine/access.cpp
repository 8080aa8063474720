#include "emulator/machine/access.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "emulator/machine/cluster.h"
#include "emulator/machine/footprint.h"
#include "emulator/machine/traffic.h"

namespace sparsekiln::emulator {
namespace {

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
std::uint64_t begin_of(const CheckedAccess& checked, std::uint64_t address) {
  return address & ~static_cast<std::uint64_t>(checked.access.bytes - 1);
}

/// Checks that no unwritten bytes are read, and marks what is written. `written` has the bytes of the whole
/// memory, by cell; the memory starts at the address `memory`.
void watch_written(const CheckedAccess& checked, const LaneGroup& group, ByteMask* written,
                   std::uint64_t memory) {
  ByteMask* const cells = written + group.line * kCellsOfLine;
  if (all_cells_are(cells, 0xffff)) return;
  group.each_cell([&](std::uint32_t c, ByteMask bytes) {
    if (checked.reads() && (bytes & ~cells[c]) != 0) {
      const Place at = place_of(group, c, bytes & ~cells[c], memory);
      checked.fail(FaultKind::unwritten_read, at.lane,
                   checked.text(begin_of(checked, at.address)) +
                       ", of which nothing has written the byte at " + hex(at.address));
    }
    if (checked.writes()) cells[c] |= bytes;
  });
}

[[noreturn]] void report_race(const CheckedAccess& checked, const LaneGroup& group, const Conflict& with,
                              std::uint64_t memory) {
  const Program& program = checked.block().grid.program;
  const std::string who =
      with.touch.by_agent()
          ? "an asynchronous operation that it has not waited for"
          : describe_thread(site_of(checked.block(), with.touch.block, with.touch.warp(), with.lane, 0));
  const int lane =
      checked.async ? std::countr_zero(checked.mask) : group.pattern.lane_at(static_cast<int>(with.byte));
  checked.fail(FaultKind::race, lane,
               checked.text(begin_of(checked, memory + group.line * kLineBytes + with.byte)) +
                   ", which races with the " + (with.touch.writes() ? "write" : "read") + " by " + who +
                   ": " + describe_code(program, with.touch.pc()) +
                   (checked.async && with.touch.writes() && !with.touch.by_agent()
                        ? " (no fence.proxy.async is between the two, or nothing orders them)"
                        : ""));
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

void watch_filling(const CheckedAccess& checked, const Block& block, const LaneGroup& group) {
  const ByteMask* const cells = block.shared_filling.data() + group.line * kCellsOfLine;
  if (all_cells_are(cells, 0)) return;
  group.each_cell([&](std::uint32_t c, ByteMask bytes) {
    if ((bytes & cells[c]) == 0) return;
    const Place at = place_of(group, c, bytes & cells[c], kSharedBase);
    checked.fail(checked.reads() ? FaultKind::copy_not_awaited : FaultKind::copy_overwritten, at.lane,
                 checked.text(begin_of(checked, at.address)) +
                     ", which an asynchronous copy is filling that its thread has not waited for: " +
                     describe_copy(block, at.address));
  });
}

Touch touch_of(const CheckedAccess& checked) {
  return Touch::of(checked.block().index, checked.warp.index, checked.warp.time,
                   pc_of(checked.warp, checked.instruction), checked.writes(), strength_of(checked.access));
}

void watch_shared(const CheckedAccess& checked, Block& of, const std::uint32_t* offsets, Mask common) {
  const SharedWatch watch{checked, of, touch_of(checked), checked.block().order.viewer(checked.warp.index),
                          offsets};
  for (Mask left = checked.mask; left != 0;) {
    const LaneGroup group =
        first_group(left, checked.access.bytes, [&](int lane) { return std::uint64_t{offsets[lane]}; });
    left &= ~group.lanes;
    watch.line(group, (group.lanes & ~common) != 0);
  }
}

/// Lanes of one allocation.
void watch_global(const CheckedAccess& checked, Allocation& allocation, Mask lanes,
                  const std::uint64_t* addresses, Mask common) {
  const Block& block = checked.block();
  const GlobalWatch watch{checked, allocation, touch_of(checked), block.order.viewer(checked.warp.index)};
  if (!watch.needed()) return;
  if (watch.races && checked.writes()) watch_sources(checked, lanes, addresses);
  if (block.grid.request.overlaps())
    watch_overlap(checked, allocation, lanes, addresses, checked.warp.awaited);
  const auto offset = [&](int lane) { return addresses[lane] - allocation.address; };
  LaneGroup group = first_group(lanes, checked.access.bytes, offset);
  while (lanes != 0) {
    const std::uint64_t index = group.line / Shadow::kLinesOfPage;
    const Shadow::Locked lock(*allocation.shadow, index);
    Shadow::Page* const page = watch.races ? &allocation.shadow->page(index) : nullptr;
    do {
      lanes &= ~group.lanes;
      watch.line(group, page, (group.lanes & ~common) != 0);
      if (lanes == 0) return;
      group = first_group(lanes, checked.access.bytes, offset);
    } while (group.line / Shadow::kLinesOfPage == index);
  }
}

void watch_local(const CheckedAccess& checked, const std::uint64_t* offsets) {
  std::vector<ByteMask>& cells = checked.block().local_cells;
  each_bit(checked.mask, [&](int lane) {
    const auto bytes =
        static_cast<ByteMask>(((1u << checked.access.bytes) - 1) << offsets[lane] % kCellBytes);
    ByteMask& written = cells[offsets[lane] / kCellBytes];
    if (checked.reads() && (bytes & ~written) != 0)
      checked.fail(FaultKind::unwritten_read, lane,
                   checked.text(offsets[lane] % checked.block().grid.local_bytes) +
                       " of local memory, which nothing has written");
    if (checked.writes()) written = static_cast<ByteMask>(written | bytes);
  });
}

void check_local(const CheckedAccess& checked, const std::uint64_t* given, std::byte** host) {
  Block& block = checked.block();
  const std::uint32_t size = block.grid.local_bytes;
  const std::uint32_t has = block.grid.program.local_bytes;
  std::uint64_t offsets[kLanes];
  checked.check_alignment(LaneAddresses(given, checked.mask));
  each_bit(checked.mask, [&](int lane) {
    const auto address = static_cast<std::uint32_t>(given[lane]);
    if (address >= has || has - address < static_cast<std::uint32_t>(checked.access.bytes))
      checked.fail(FaultKind::out_of_bounds, lane,
                   checked.text(address) + " of local memory, of which a thread has " + std::to_string(has));
    const std::uint64_t thread = checked.warp.index * kLanes + static_cast<std::uint32_t>(lane);
    offsets[lane] = thread * size + address;
    host[lane] = block.local + offsets[lane];
  });
  if (checked.checks().unwritten) watch_local(checked, offsets);
}

void check_constant(const CheckedAccess& checked, const std::uint64_t* given, std::byte** host) {
  const Block& block = checked.block();
  const LaneAddresses addresses(given, checked.mask);
  if (checked.writes())
    checked.fail(FaultKind::invalid_operation, std::countr_zero(checked.mask), "writes constant memory");
  checked.check_alignment(addresses);
  Allocation*& found = block.worker->found[pc_of(checked.warp, checked.instruction)];
  const auto fits = [&](const Allocation* allocation) {
    return allocation != nullptr && allocation->constant &&
           all_inside(addresses, allocation->address, allocation->bytes, checked.access.bytes);
  };
  if (!fits(found)) {
    Allocation* const at_first = block.grid.find(addresses.at[std::countr_zero(checked.mask)]);
    if (fits(at_first)) {
      found = at_first;
    } else {
      each_bit(checked.mask, [&](int lane) {
        const Allocation* const allocation = block.grid.find(given[lane]);
        if (allocation == nullptr || !allocation->constant ||
            first_outside(given, 1u << lane, allocation->address, allocation->bytes, checked.access.bytes) !=
                kLanes)
          checked.fail(FaultKind::out_of_bounds, lane,
                       checked.text(given[lane]) + block.grid.whereabouts(given[lane], true));
        host[lane] = allocation->data.get() + (given[lane] - allocation->address);
      });
      return;
    }
  }
  for (int lane = 0; lane < kLanes; ++lane)
    host[lane] = found->data.get() + (addresses.at[lane] - found->address);
}

/// Splits the lanes by the block of the cluster whose memory they access.
void check_cluster(CheckedAccess checked, const std::uint64_t* given, Mask common, std::byte** host) {
  std::uint64_t addresses[kLanes] = {};
  for (Mask left = checked.mask; left != 0;) {
    Block* of = nullptr;
    Mask together = 0;
    each_bit(left, [&](int lane) {
      const SharedPlace place =
          shared_place(checked.warp, checked.instruction, lane, static_cast<std::uint32_t>(given[lane]));
      if (of == nullptr) of = place.block;
      if (place.block != of) return;
      together |= 1u << lane;
      addresses[lane] = place.offset + kSharedBase;
    });
    checked.mask = together;
    check_shared(checked, *of, addresses, common, host);
    left &= ~together;
  }
}

/// Parameters are the same for all lanes and only read (PTX ISA 5.1.6.1).
void check_parameters(const CheckedAccess& checked, const std::uint64_t* offsets, std::byte** host) {
  if (checked.writes())
    checked.fail(FaultKind::invalid_operation, std::countr_zero(checked.mask),
                 "writes a parameter of the kernel");
  checked.check_alignment(LaneAddresses(offsets, checked.mask));
  const std::uint32_t has = checked.block().grid.program.param_bytes;
  if (const int lane = first_outside(offsets, checked.mask, 0, has, checked.access.bytes); lane != kLanes)
    checked.fail(FaultKind::out_of_bounds, lane,
                 checked.text(offsets[lane]) + " of the parameters, which have " + std::to_string(has));
  // const_cast: nothing is written there.
  auto* const from = const_cast<std::byte*>(parameters(checked.warp));
  each_bit(checked.mask, [&](int lane) { host[lane] = from + offsets[lane]; });
}

/// Splits the lanes by the window that a generic address is in (PTX ISA 5.1, "Generic Addressing").
void check_generic(CheckedAccess checked, const std::uint64_t* addresses, Mask common, std::byte** host,
                   Mask& shared, Mask& global) {
  Mask local = 0;
  Mask parameter = 0;
  Mask constant = 0;
  shared = 0;
  each_bit(checked.mask, [&](int lane) {
    shared |= addresses[lane] - kSharedWindow < kWindowBytes ? 1u << lane : 0;
    local |= addresses[lane] - kLocalWindow < kWindowBytes ? 1u << lane : 0;
    parameter |= addresses[lane] - kParamWindow < kWindowBytes ? 1u << lane : 0;
    constant |= addresses[lane] - kConstantBase < kConstantBytes ? 1u << lane : 0;
  });
  global = checked.mask & ~shared & ~local & ~parameter & ~constant;
  const Mask all = checked.mask;
  std::uint64_t offsets[kLanes];
  each_bit(all, [&](int lane) { offsets[lane] = addresses[lane] % kWindowBytes; });
  const auto with = [&](Mask mask, auto check) {
    checked.mask = mask;
    if (mask != 0) check();
  };
  with(shared, [&] { check_cluster(checked, offsets, common, host); });
  with(local, [&] { check_local(checked, offsets, host); });
  with(parameter, [&] { check_parameters(checked, offsets, host); });
  with(constant, [&] { check_constant(checked, addresses, host); });
  with(global, [&] { check_global(checked, addresses, common, host); });
}

/// Checks an access of any space; `shared` and `global` are the lanes that access these memories.
void check_any(const CheckedAccess& checked, const std::uint64_t* addresses, Mask common, std::byte** host,
               Mask& shared, Mask& global) {
  switch (checked.access.space) {
    case AccessSpace::shared:
      shared = checked.mask;
      check_shared(checked, checked.block(), addresses, common, host);
      break;
    case AccessSpace::shared_cluster:
      shared = checked.mask;
      check_cluster(checked, addresses, common, host);
      break;
    case AccessSpace::global:
      global = checked.mask;
      check_global(checked, addresses, common, host);
      break;
    case AccessSpace::local:
      check_local(checked, addresses, host);
      break;
    case AccessSpace::constant:
      check_constant(checked, addresses, host);
      break;
    case AccessSpace::generic:
      check_generic(checked, addresses, common, host, shared, global);
      break;
  }
}

/// host[lane] = address(lane) for the lanes of `mask`; all at once where it has all of them.
template <class Address>
void place(std::byte** host, Mask mask, Address address) {
  if (mask == kAllLanes)
    for (int lane = 0; lane < kLanes; ++lane) host[lane] = address(lane);
  else
    each_bit(mask, [&](int lane) { host[lane] = address(lane); });
}

}  // namespace

LaneAddresses::LaneAddresses(const std::uint64_t* given, Mask mask) {
  std::copy_n(given, kLanes, at);
  if (mask == kAllLanes) return;
  const std::uint64_t some = given[std::countr_zero(mask)];
  for (int lane = 0; lane < kLanes; ++lane) at[lane] = (mask >> lane & 1) != 0 ? at[lane] : some;
}

std::string CheckedAccess::text(std::uint64_t address) const {
  const char* const verb = access.kind == AccessKind::read    ? "reads "
                           : access.kind == AccessKind::write ? "writes "
                                                              : "updates ";
  if (async) return std::string("the async proxy ") + verb + "the byte at " + hex(address);
  return verb + std::to_string(access.bytes) + " bytes at " + hex(address);
}

void CheckedAccess::fail(FaultKind kind, int lane, const std::string& what) const {
  fault(kind, warp, instruction, lane, what);
}

void CheckedAccess::check_alignment(const LaneAddresses& addresses) const {
  const auto low = static_cast<std::uint64_t>(access.bytes - 1);
  std::uint64_t bits = 0;
  for (int lane = 0; lane < kLanes; ++lane) bits |= addresses.at[lane];
  if ((bits & low) == 0) return;
  each_bit(mask, [&](int lane) {
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
  each_bit(mask, [&](int lane) {
    auto slot = static_cast<std::uint32_t>(addresses[lane] * 0x9e3779b97f4a7c15u >> 58);
    while ((used >> slot & 1) != 0 && slots[slot] != addresses[lane]) slot = (slot + 1) % kSlots;
    if ((used >> slot & 1) != 0) result |= 1u << lane;
    used |= std::uint64_t{1} << slot;
    slots[slot] = addresses[lane];
  });
  return result;
}

bool SharedWatch::keeps(const LaneGroup& group) const {
  if (offsets == nullptr || checked.access.keeps == nullptr) return false;
  bool all = true;
  each_bit(group.lanes, [&](int lane) {
    all = all && checked.access.keeps(checked.warp, checked.instruction, lane, of.shared + offsets[lane]);
  });
  return all;
}

void SharedWatch::line(const LaneGroup& group, bool racing) const {
  const Checks& checks = checked.checks();
  if (checks.races) watch_filling(checked, of, group);
  if (checks.unwritten) watch_written(checked, group, of.shared_written.data(), kSharedBase);
  if (checks.races && racing)
    if (Conflict with; !of.shared_lines[group.line].add(group, touch, of.stamp, viewer, with))
      if (!with.touch.writes() || !keeps(group)) report_race(checked, group, with, kSharedBase);
}

bool GlobalWatch::needed() const {
  if (checked.writes() && !checked.checks().unwritten) allocation.shadow->mark_all_written();
  return races || written;
}

void GlobalWatch::line(const LaneGroup& group, Shadow::Page* page, bool racing) const {
  if (written) watch_written(checked, group, allocation.shadow->written(), allocation.address);
  if (allocation.footprint != nullptr) allocation.footprint->add(group, checked.reads(), checked.writes());
  if (races && racing)
    if (Conflict with; !page->lines[group.line % Shadow::kLinesOfPage].add(
            group, touch, checked.block().grid.stamp, viewer, with))
      report_race(checked, group, with, allocation.address);
}

void check_shared(const CheckedAccess& checked, Block& block, const std::uint64_t* given, Mask common,
                  std::byte** host) {
  LaneAddresses addresses(given, checked.mask);
  for (std::uint64_t& address : addresses.at) address = static_cast<std::uint32_t>(address);
  checked.check_alignment(addresses);
  if (!all_inside(addresses, kSharedBase, block.grid.shared_bytes, checked.access.bytes)) {
    const int lane =
        first_outside(addresses.at, checked.mask, kSharedBase, block.grid.shared_bytes, checked.access.bytes);
    checked.fail(FaultKind::out_of_bounds, lane,
                 checked.text(addresses.at[lane]) + " of shared memory, of which the block has " +
                     std::to_string(block.grid.shared_bytes) + " from " + hex(kSharedBase));
  }
  std::uint32_t offsets[kLanes];
  for (int lane = 0; lane < kLanes; ++lane)
    offsets[lane] = static_cast<std::uint32_t>(addresses.at[lane]) - kSharedBase;
  place(host, checked.mask, [&, memory = block.shared](int lane) { return memory + offsets[lane]; });
  if (checked.checks().races || checked.checks().unwritten) watch_shared(checked, block, offsets, common);
}

void check_global(const CheckedAccess& checked, const std::uint64_t* given, Mask common, std::byte** host) {
  const Block& block = checked.block();
  const LaneAddresses addresses(given, checked.mask);
  checked.check_alignment(addresses);
  Allocation*& found = block.worker->found[pc_of(checked.warp, checked.instruction)];
  const int bytes = checked.access.bytes;
  if (found == nullptr || found->constant || !all_inside(addresses, found->address, found->bytes, bytes)) {
    for (Mask left = checked.mask; left != 0;) {
      const int first = std::countr_zero(left);
      Allocation* const allocation = block.grid.find(given[first]);
      if (allocation == nullptr || allocation->constant ||
          first_outside(given, 1u << first, allocation->address, allocation->bytes, bytes) != kLanes)
        checked.fail(FaultKind::out_of_bounds, first,
                     checked.text(given[first]) + block.grid.whereabouts(given[first], false));
      Mask inside = 0;
      each_bit(left, [&](int lane) {
        if (first_outside(given, 1u << lane, allocation->address, allocation->bytes, bytes) != kLanes) return;
        inside |= 1u << lane;
        host[lane] = allocation->data.get() + (given[lane] - allocation->address);
      });
      watch_global(checked, *allocation, inside, given, common);
      found = allocation;
      left &= ~inside;
    }
    return;
  }
  place(host, checked.mask, [&, data = found->data.get(), first = found->address](int lane) {
    return data + (addresses.at[lane] - first);
  });
  watch_global(checked, *found, checked.mask, given, common);
}

void check_space(const CheckedAccess& checked, const std::uint64_t* addresses, std::byte** host) {
  Mask shared = 0;
  Mask global = 0;
  check_any(checked, addresses, 0, host, shared, global);
}

Mask access(Warp& warp, const Instruction& instruction, Mask mask, const Access& what,
            const std::uint64_t* addresses, std::byte** host) {
  const CheckedAccess checked{warp, instruction, mask, what};
  Block& block = *warp.block;
  const bool writes = what.kind != AccessKind::read;
  if (what.kind == AccessKind::write) ++block.progress;
  const Mask common =
      what.kind == AccessKind::write && block.grid.checks.races && what.space != AccessSpace::local
          ? repeated(addresses, mask, what.bytes)
          : 0;
  Mask shared = 0;
  Mask global = 0;
  check_any(checked, addresses, common, host, shared, global);
  if (block.grid.checks.counters && (shared | global) != 0) {
    LineCounters& counters = counters_of(warp, instruction);
    if (shared != 0) count_shared(counters, shared, what.bytes, addresses);
    if (global != 0) count_global(counters, global, what.bytes, addresses);
  }
  return writes ? common : 0;
}

void after_common_write(const Warp& warp, const Instruction& instruction, Mask common, int bytes,
                        std::byte* const* host, const std::byte (*written)[16]) {
  each_bit(common, [&](int lane) {
    if (std::memcmp(host[lane], written[lane], static_cast<std::size_t>(bytes)) != 0)
      fault(FaultKind::race, warp, instruction, lane,
            "writes where another lane of the same instruction writes something else");
  });
}

}  // namespace sparsekiln::emulator

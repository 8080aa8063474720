#pragma once

#include <cstdint>
#include <string>

#include "emulator/machine/block.h"
#include "emulator/machine/warp.h"

namespace sparsekiln::emulator {

/// The steps of access(), which asynchronous copies use as well. Nothing here changes the counters.

/// Addresses of a warp, where inactive lanes have the address of an active one: loops may then treat all
/// lanes alike.
struct LaneAddresses {
  LaneAddresses(const std::uint64_t* given, Mask mask);
  std::uint64_t at[kLanes];
};

/// One warp's access on its way through the checks.
struct CheckedAccess {
  Warp& warp;
  const Instruction& instruction;
  Mask mask;
  Access access;
  bool async = false;  ///< by the async proxy, on behalf of the one lane of the mask

  [[nodiscard]] Block& block() const { return *warp.block; }
  [[nodiscard]] const Checks& checks() const { return warp.block->grid.checks; }
  [[nodiscard]] bool writes() const { return access.kind != AccessKind::read; }
  [[nodiscard]] bool reads() const { return access.kind != AccessKind::write; }
  /// "writes 4 bytes at 0x…"
  [[nodiscard]] std::string text(std::uint64_t address) const;
  [[noreturn]] void fail(FaultKind kind, int lane, const std::string& what) const;
  /// Throws Fault where an address is no multiple of the access's size.
  void check_alignment(const LaneAddresses& addresses) const;
};

/// Each: bounds, alignment, unwritten bytes, races; host addresses of the lanes of the mask. Lanes of
/// `common` write where another lane of the instruction writes and are no race with it.
void check_shared(const CheckedAccess& checked, Block& of, const std::uint64_t* addresses, Mask common,
                  std::byte** host);
void check_global(const CheckedAccess& checked, const std::uint64_t* addresses, Mask common,
                  std::byte** host);

/// The checks for the space of the access, whichever it is.
void check_space(const CheckedAccess& checked, const std::uint64_t* addresses, std::byte** host);

/// Checks and records an access line by line: unwritten bytes, copies on their way, races.
struct SharedWatch {
  const CheckedAccess& checked;
  Block& of;
  Touch touch;  ///< by whom
  Viewer viewer;
  const std::uint32_t* offsets = nullptr;  ///< of the lanes, from the start of the memory; null: of no thread

  /// Whether what the lanes of a group write is there already: then it may meet other writes of the same.
  [[nodiscard]] bool keeps(const LaneGroup& group) const;
  /// `racing`: whether the group may race; not where it writes what another lane of the instruction writes.
  void line(const LaneGroup& group, bool racing) const;
};
struct GlobalWatch {
  const CheckedAccess& checked;
  Allocation& allocation;
  Touch touch;
  Viewer viewer;
  bool races = checked.checks().races;
  bool written = checked.checks().unwritten && !allocation.shadow->all_written();

  /// Whether lines have to be looked at, after what concerns the allocation as a whole.
  [[nodiscard]] bool needed() const;
  /// `page`: of the group, null without `races`. Its lock is held.
  void line(const LaneGroup& group, Shadow::Page* page, bool racing) const;
};

/// Until its thread waits for a copy, the copy reads its source at any time after its issue. It may or may
/// not copy what the block writes there meanwhile, whatever the order of the issue and the write. (For writes
/// of other blocks, the order of the read at issue counts: those blocks run on host threads of their own.)
void watch_sources(const CheckedAccess& checked, Mask lanes, const std::uint64_t* addresses);

/// Throws Fault where lanes access what earlier launches access that need not have ended
/// (LaunchRequest::unfinished_before_wait). All lanes access one allocation; those of `waited` have executed
/// griddepcontrol.wait.
void watch_overlap(const CheckedAccess& checked, const Allocation& allocation, Mask lanes,
                   const std::uint64_t* addresses, Mask waited);

/// Lanes of `mask` that have the address of an earlier one.
[[nodiscard]] Mask repeated(const std::uint64_t* addresses, Mask mask, int bytes);

}  // namespace sparsekiln::emulator

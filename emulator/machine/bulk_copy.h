#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "emulator/machine/tensor_map.h"
#include "emulator/machine/warp.h"

/// Bulk copies between global and shared memory, issued by one lane (PTX ISA 9.7.9.25.4 and 9.7.9.27): their
/// checks, and the operations that they send on their way (async_proxy.h).
namespace sparsekiln::emulator {

/// What a bulk copy moves: bytes of global memory, and where each is in the box in shared memory.
struct BulkBox {
  std::vector<BoxRun> runs;
  std::uint32_t bytes = 0;  ///< in shared memory, those outside of the tensor included
  Swizzle swizzle = Swizzle::none;
  TensorElement element = TensorElement::u8;
  std::uint64_t fill = 0;  ///< bits of an element that is outside
};
[[nodiscard]] BulkBox plain_box(std::uint64_t address, std::uint32_t bytes);
[[nodiscard]] BulkBox tensor_box(const TensorMap& map, const TensorCoordinates& first);

/// A place in shared memory with the mbarrier that hears of what arrives there. Offsets as in async_proxy.h.
struct BulkTarget {
  Block* block = nullptr;
  std::uint32_t offset = 0;
  std::uint32_t barrier = 0;
};

/// Combines an element of the destination with one of the source.
struct Reduction {
  std::uint32_t bytes = 0;
  void (*combine)(std::byte* to, const std::byte* from) = nullptr;
};

/// Who issues.
struct BulkIssuer {
  Warp& warp;
  const Instruction& instruction;
  int lane = 0;
};

/// Global to shared memory, of each target the same.
void load_bulk(const BulkIssuer& issuer, BulkBox box, std::span<const BulkTarget> targets);
/// Shared memory at `offset` of the own block to global memory, as part of the group that the lane commits
/// next. With a reduction, which is done at once: other blocks take turns with it.
void store_bulk(const BulkIssuer& issuer, BulkBox box, std::uint32_t offset, const Reduction* reduction);
/// Shared memory of the own block to that of another of the cluster. `reduction` may be null.
void send_bulk(const BulkIssuer& issuer, std::uint32_t offset, std::uint32_t bytes, const BulkTarget& target,
               const Reduction* reduction);

void commit_bulk(Warp& warp, Mask mask);
/// Until at most `pending` of each lane's groups are on their way; `reads_only`: until the sources of all
/// others have been read.
void wait_bulk(Warp& warp, Mask mask, std::uint32_t pending, bool reads_only);

}  // namespace sparsekiln::emulator

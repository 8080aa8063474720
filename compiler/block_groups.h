#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "compiler/sddmm.h"

namespace sparsekiln {

struct GroupShape;

/// Outputs, and inputs, of a piece of a block of variant grouped, and features of a tile of dy or x.
inline constexpr std::int32_t kPieceSide = 64;

/// Pieces of blocks that a CTA sums at the same time (variants grouped and halo), and the tiles of dy and x
/// that they read: each is read once for all of them. As in Sddmm, x is what the taps of a convolution
/// displace.
struct BlockGroup {
  struct Piece {
    std::int32_t out = 0;  ///< which of `outs` it reads
    std::int32_t in = 0;   ///< which of `ins`
    std::int32_t tap = 0;  ///< of those that read the same tile of x
    std::int32_t dw = 0;   ///< where its first element is in dw, in units of a piece's inputs
    friend bool operator==(const Piece&, const Piece&) = default;
  };
  std::vector<std::int32_t> outs;  ///< tiles of dy: each is output piece.out · it and those after
  std::vector<std::int32_t> ins;   ///< tiles of x: input piece.in · (it / depths) and those after
  std::int32_t summed = 0;    ///< of outs, in front: those that this group sums for the gradient of a bias
  std::vector<Piece> pieces;  ///< none: only dy is summed
  /// Two pieces, which share a row or a column and are in the order of the other, or one and kNone: what is
  /// multiplied together. Every piece is in one. GroupShape::pairs_in_rows: they share a row, and are in the
  /// order in which they read x.
  using Pair = std::array<std::int32_t, 2>;
  static constexpr std::int32_t kNone = -1;
  std::vector<Pair> pairs;

  [[nodiscard]] std::int32_t tiles() const { return static_cast<std::int32_t>(outs.size() + ins.size()); }
  /// What its tiles take of shared memory.
  [[nodiscard]] std::int64_t bytes(const GroupShape& shape) const;
  friend bool operator==(const BlockGroup&, const BlockGroup&) = default;
};

/// Whether gradients of the weight are computed in groups of pieces, instead of runs of blocks.
[[nodiscard]] constexpr bool groups_blocks(const Config& config) {
  return config.variant == Variant::grouped || config.variant == Variant::halo;
}

/// What a group consists of, and how much a place of a kernel's ring has room for.
struct GroupShape {
  BlockShape piece{kPieceSide, kPieceSide};
  std::int32_t depths = 1;  ///< tiles of x of a column: one for each depth of a convolution's kernel
  std::int32_t taps = 1;    ///< that read the same tile of x
  /// Where a tile of x has what each of these taps reads. Not empty: pieces of a pair share a tile of dy, the
  /// one that reads x further ahead being the second; else a tile of dy or of x.
  std::vector<std::int64_t> displacements;
  std::int64_t out_bytes = 0;    ///< of a tile of dy
  std::int64_t in_bytes = 0;     ///< of a tile of x
  std::int64_t place_bytes = 0;  ///< of a place: no group's tiles take more

  [[nodiscard]] bool pairs_in_rows() const { return !displacements.empty(); }
  /// Pieces of a block.
  [[nodiscard]] std::int32_t down(BlockShape block) const { return block.out / piece.out; }
  [[nodiscard]] std::int32_t across(BlockShape block) const { return block.in / piece.in; }
};
[[nodiscard]] GroupShape group_shape(const Sddmm& gradient, const Config& config);
/// Bytes of shared memory that the ring takes at most.
inline constexpr std::int64_t kGroupRingBytes = 220 * 1024;

/// Pieces of the blocks of a layout.
[[nodiscard]] std::int64_t pieces_of(const Sddmm& gradient, const GroupShape& shape);

/// Chunks that a slice of the batch has at least: fewer are not worth a combine.
inline constexpr std::int64_t kChunksOfSlice = 8;

/// Groups to plan for, of at most `most_pieces` each: as many as there are CTAs, or whole multiples of them.
/// If there are so few pieces that several CTAs can share a group, a slice of the batch's `chunks` each,
/// groups are few and large, since large ones share more tiles.
[[nodiscard]] std::int64_t planned_groups(std::int64_t pieces, std::int64_t ctas, std::int64_t chunks,
                                          std::int32_t most_pieces);

/// Pieces of all blocks, shared out to groups of at most config.rows pieces in half as many pairs, whose
/// tiles fit a place of the ring. Every piece is in exactly one group. If the gradient of a bias is asked
/// for, every 64 outputs are summed by one group, at most config.rows of each.
///
/// Groups are about equally large, and each grows greedily: it takes the row or column of the layout that
/// brings most pieces with the rows and columns it has, and, of equals, where there are fewer pieces in a row
/// than in a column, the row with the fewest left or the column with the most. O(pieces · log pieces); it
/// looks at a bounded number of blocks of a row. As edges of a graph of rows and columns, pieces that hang
/// together can be shared out to pairs of neighbours, all but one where their number is odd (Chartrand,
/// Polimeni and Stewart 1973, line graphs of connected graphs of even size).
[[nodiscard]] std::vector<BlockGroup> make_block_groups(const Sddmm& gradient, const Target& target,
                                                        const Config& config);

/// No schedule has more groups. From the layout's size alone.
[[nodiscard]] std::int64_t group_bound(const Sddmm& gradient, const Config& config);

}  // namespace sparsekiln

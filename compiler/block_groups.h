#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "compiler/sddmm.h"

namespace sparsekiln {

/// Outputs, and inputs, of a piece of a block, and features of a tile of dy or x.
inline constexpr std::int32_t kPieceSide = 64;

/// Pieces of blocks, of 64 outputs and 64 inputs each, that a CTA sums at the same time (variant grouped),
/// and the tiles of dy and x that they read: each is read once for all of them.
struct BlockGroup {
  struct Piece {
    std::int32_t out = 0;  ///< which of `outs` it reads
    std::int32_t in = 0;   ///< which of `ins`
    std::int32_t dw = 0;   ///< where its first element is in dw, in units of 64 elements
    friend bool operator==(const Piece&, const Piece&) = default;
  };
  std::vector<std::int32_t> outs;  ///< tiles of dy: each is output 64 · it and those after
  std::vector<std::int32_t> ins;   ///< tiles of x
  std::int32_t summed = 0;    ///< of outs, in front: those that this group sums for the gradient of a bias
  std::vector<Piece> pieces;  ///< none: only dy is summed
  /// Two pieces, which share a row or a column and are in the order of the other, or one and kNone: what is
  /// multiplied together. Every piece is in one.
  using Pair = std::array<std::int32_t, 2>;
  static constexpr std::int32_t kNone = -1;
  std::vector<Pair> pairs;

  [[nodiscard]] std::int32_t tiles() const { return static_cast<std::int32_t>(outs.size() + ins.size()); }
  friend bool operator==(const BlockGroup&, const BlockGroup&) = default;
};

/// Pieces of the blocks of a layout.
[[nodiscard]] std::int64_t pieces_of(const Sddmm& gradient);

/// Tiles that a place of the ring of such a kernel has room for: no group has more.
[[nodiscard]] std::int32_t tiles_of_place(const Config& config);
/// Bytes of shared memory that the ring takes.
inline constexpr std::int64_t kGroupRingBytes = 220 * 1024;

/// Chunks that a slice of the batch has at least: fewer are not worth a combine.
inline constexpr std::int64_t kChunksOfSlice = 8;

/// Groups to plan for, of at most `most_pieces` each: as many as there are CTAs, or whole multiples of them.
/// If there are so few pieces that several CTAs can share a group, a slice of the batch's `chunks` each,
/// groups are few and large, since large ones share more tiles.
[[nodiscard]] std::int64_t planned_groups(std::int64_t pieces, std::int64_t ctas, std::int64_t chunks,
                                          std::int32_t most_pieces);

/// Pieces of all blocks, shared out to groups of at most config.rows pieces in half as many pairs, and
/// tiles_of_place(config) tiles. Every piece is in exactly one group. If the gradient of a bias is asked for,
/// every 64 outputs are summed by one group, at most config.rows of each.
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
[[nodiscard]] std::int64_t group_bound(const Sddmm& gradient);

}  // namespace sparsekiln

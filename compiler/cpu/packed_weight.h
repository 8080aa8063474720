#pragma once

#include <cstdint>

#include <sparsekiln/problem.h>

#include "compiler/cpu/level.h"

namespace sparsekiln::cpu {

/// Distances within the share of a block's weight that one register tile reads, in words (32 bits along k).
/// Where a tile's share begins does not depend on the order: behind the words of the outputs before it.
struct WeightStrides {
  std::int64_t output;  ///< from one output to the next
  std::int64_t k;       ///< from one word of k to the next
};

/// As it lies, a block is [output][word]. Packed, it is [register tile][word][output of the tile]: in the
/// order of use, so that the broadcasts of one step of k are neighbours and a tile reads one stream instead
/// of one for each output.
[[nodiscard]] WeightStrides weight_strides(bool packed, std::int32_t tile_outputs, std::int32_t block_words);

/// Copies w, `blocks` dense blocks, into the packed order: as many bytes, nothing padded. The two must not
/// overlap.
void pack_weight(std::int64_t blocks, BlockShape block, DType dtype, const RegisterTile& tile, const void* w,
                 void* packed);

}  // namespace sparsekiln::cpu

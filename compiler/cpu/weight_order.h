#pragma once

#include <cstdint>

#include <sparsekiln/problem.h>

namespace sparsekiln::cpu {

/// Elements along k of a word, the unit in which the passes read x and the weight: the two of 32 bits where
/// bf16 is contiguous along k, which are multiplied as pairs. Else one, and one of 16 bits is widened to
/// float32 before it is multiplied.
[[nodiscard]] std::int32_t word_elements(DType dtype, bool by_columns);

/// The memory order of the blocks of a product (compiler/spmm.h).
enum class WeightOrder : std::uint8_t {
  rows,     ///< [output][word], as W has them for forward
  columns,  ///< [word][output], as W has them for the gradient of its input
  packed,   ///< [register tile][word][output of the tile]
};

/// Distances within the share of a block's weight that one register tile reads, in words.
/// By columns the share begins at its first output, else after the words of the outputs before it.
struct WeightStrides {
  std::int64_t output;  ///< from one output to the next
  std::int64_t k;       ///< from one word of k to the next
};

/// The packed order is that of use, so that the broadcasts of one step of k are neighbours and a tile reads
/// one stream instead of one for each output.
[[nodiscard]] WeightStrides weight_strides(WeightOrder order, std::int32_t tile_outputs,
                                           std::int32_t block_out, std::int32_t block_words);

}  // namespace sparsekiln::cpu

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <sparsekiln/layout.h>

namespace sparsekiln::patterns {

/// How far a stack of layers spreads its inputs: of how many output blocks of the last layer an input block
/// of the first one is an input. Block j reaches block i where the layers have a chain of present blocks from
/// column j to row i. Figures are taken over all input blocks.
struct Mixing {
  std::int64_t minimum = 0;  ///< output blocks that are reached from the input block that reaches the fewest
  double median = 0;         ///< of an even number, the mean of the two in the middle
  double mean = 0;
  std::int64_t maximum = 0;
  double share = 0;  ///< reached pairs of input and output block, of all pairs; 1 only if all are reached
};

/// The mixing after the first layer, after the first two … one entry a layer. The layers follow one another:
/// the rows of each (outputs) are the columns (inputs) of the next. A layer that is applied K times is given
/// K times. (The LSTM of github.com/openai/blocksparse, for Gray, Radford & Kingma 2017, computes the shares,
/// in percent, as the mix factors of the layers within a time step.)
///
/// The product of boolean matrices, 512 input blocks at a time: layers · blocks · inputs / 512 steps of 64
/// bytes, so a second or less for a few dense layers of 4096 × 4096 blocks. Memory: 128 bytes for each block
/// row, and 4 bytes for each input block and layer.
///
/// Throws `invalid_argument` where the layers do not fit each other, and where one has no rows or no columns.
[[nodiscard]] std::vector<Mixing> mixing(std::span<const Layout> layers);

}  // namespace sparsekiln::patterns

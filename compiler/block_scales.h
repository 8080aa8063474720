#pragma once

#include <cstdint>
#include <vector>

#include <sparsekiln/convolution.h>

namespace sparsekiln {

/// Blocks of the layout of a convolution with so many blocks of values, one for each tap that a block has. Of
/// a linear layer they are the same.
[[nodiscard]] std::int64_t layout_blocks(const Convolution& convolution, std::int64_t weight_blocks);

/// Which blocks of values each block scale multiplies: all taps of a block of the layout, which are
/// neighbours.
class BlockScales {
 public:
  /// One for each block of values.
  BlockScales() = default;
  /// `weight_blocks`: of values.
  BlockScales(const Convolution& convolution, std::int64_t weight_blocks);

  [[nodiscard]] std::int32_t count() const { return count_; }
  /// The blocks of values of every block scale; 0: they differ in this.
  [[nodiscard]] std::int32_t taps() const { return taps_; }
  /// Whether one multiplies several.
  [[nodiscard]] bool shared() const { return taps_ != 1; }
  /// The number of the scale of a block of values.
  [[nodiscard]] std::int32_t of(std::int32_t weight_block) const;
  /// The first block of values of a block scale; of the one after the last one, where those end.
  [[nodiscard]] std::int32_t first(std::int32_t scale) const;

 private:
  std::int32_t count_ = 0;
  std::int32_t taps_ = 1;
  std::vector<std::int32_t> first_;  ///< count + 1, where taps_ is 0
};

}  // namespace sparsekiln

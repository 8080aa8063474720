#pragma once

#include <cstdint>
#include <vector>

#include <sparsekiln/convolution.h>

namespace sparsekiln {

/// Blocks of the layout of a convolution with so many blocks of values, one for each tap that a block has. Of
/// a linear layer they are the same.
[[nodiscard]] std::int64_t layout_blocks(const Convolution& convolution, std::int64_t weight_blocks);

/// Which blocks of values each gate scales: all taps of a block of the layout, which are neighbours.
class BlockGates {
 public:
  /// One gate for each block of values.
  BlockGates() = default;
  /// `weight_blocks`: of values.
  BlockGates(const Convolution& convolution, std::int64_t weight_blocks);

  [[nodiscard]] std::int32_t count() const { return count_; }
  /// The blocks of values of every gate; 0: gates differ in this.
  [[nodiscard]] std::int32_t taps() const { return taps_; }
  /// Whether a gate scales several.
  [[nodiscard]] bool shared() const { return taps_ != 1; }
  /// The gate of a block of values.
  [[nodiscard]] std::int32_t of(std::int32_t weight_block) const;
  /// The first block of values of a gate; of the gate after the last one, where those end.
  [[nodiscard]] std::int32_t first(std::int32_t gate) const;

 private:
  std::int32_t count_ = 0;
  std::int32_t taps_ = 1;
  std::vector<std::int32_t> first_;  ///< count + 1, where taps_ is 0
};

}  // namespace sparsekiln

#include "compiler/block_scales.h"

#include <algorithm>
#include <cstddef>

namespace sparsekiln {

std::int64_t layout_blocks(const Convolution& convolution, std::int64_t weight_blocks) {
  if (!convolution.present()) return weight_blocks;
  const std::int32_t taps = convolution.taps_of_block();
  return taps != 0 ? weight_blocks / taps : std::ssize(convolution.tap_mask) / convolution.taps();
}

BlockScales::BlockScales(const Convolution& convolution, std::int64_t weight_blocks)
    : count_(static_cast<std::int32_t>(layout_blocks(convolution, weight_blocks))),
      taps_(convolution.present() ? convolution.taps_of_block() : 1) {
  if (taps_ != 0) return;
  first_.push_back(0);
  for (std::int32_t block = 0; block < count_; ++block) {
    std::int32_t end = first_.back();
    for (std::int32_t tap = 0; tap < convolution.taps(); ++tap)
      end += convolution.has_tap(block, tap) ? 1 : 0;
    first_.push_back(end);
  }
}

std::int32_t BlockScales::of(std::int32_t weight_block) const {
  if (taps_ != 0) return weight_block / taps_;
  const auto after = std::upper_bound(first_.begin(), first_.end(), weight_block);
  return static_cast<std::int32_t>(after - first_.begin()) - 1;
}

std::int32_t BlockScales::first(std::int32_t scale) const {
  return taps_ != 0 ? scale * taps_ : first_[static_cast<std::size_t>(scale)];
}

}  // namespace sparsekiln

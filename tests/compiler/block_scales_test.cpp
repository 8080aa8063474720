#include "compiler/block_scales.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <sparsekiln/convolution.h>

namespace sparsekiln {
namespace {

std::vector<int> scales_of(const BlockScales& scales, int weight_blocks) {
  std::vector<int> result;
  for (int block = 0; block < weight_blocks; ++block) result.push_back(scales.of(block));
  return result;
}

std::vector<int> first_blocks(const BlockScales& scales) {
  std::vector<int> result;
  for (int scale = 0; scale <= scales.count(); ++scale) result.push_back(scales.first(scale));
  return result;
}

Convolution with_taps(const std::string& digits) {
  return parse_convolution("kernel=3 input=9 taps=" + digits);
}

}  // namespace

TEST_CASE("every block of a linear layer, and of a kernel of one tap, has a scale of its own") {
  for (const Convolution& convolution : {Convolution(), parse_convolution("kernel=1 input=9")}) {
    const BlockScales scales(convolution, 4);
    CHECK_FALSE(scales.shared());
    CHECK(scales_of(scales, 4) == std::vector{0, 1, 2, 3});
    CHECK(first_blocks(scales) == std::vector{0, 1, 2, 3, 4});
  }
}

TEST_CASE("all taps that a block has share its scale") {
  const BlockScales whole(parse_convolution("kernel=3 input=9"), 6);
  CHECK(whole.shared());
  CHECK(scales_of(whole, 6) == std::vector{0, 0, 0, 1, 1, 1});
  const BlockScales masked(with_taps("101"), 6);
  CHECK(masked.taps() == 2);
  CHECK(scales_of(masked, 6) == std::vector{0, 0, 1, 1, 2, 2});
  CHECK(first_blocks(masked) == std::vector{0, 2, 4, 6});
}

TEST_CASE("a block without taps has a scale that multiplies nothing") {
  const BlockScales scales(with_taps("000110000001000"), 3);
  CHECK(scales.count() == 5);
  CHECK(scales.taps() == 0);
  CHECK(scales_of(scales, 3) == std::vector{1, 1, 3});
  CHECK(first_blocks(scales) == std::vector{0, 0, 2, 2, 3, 3});
  CHECK(layout_blocks(with_taps("000110000001000"), 3) == 5);
}

}  // namespace sparsekiln

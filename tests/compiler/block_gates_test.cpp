#include "compiler/block_gates.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <sparsekiln/convolution.h>

namespace sparsekiln {
namespace {

std::vector<int> gates_of(const BlockGates& gates, int weight_blocks) {
  std::vector<int> result;
  for (int block = 0; block < weight_blocks; ++block) result.push_back(gates.of(block));
  return result;
}

std::vector<int> first_blocks(const BlockGates& gates) {
  std::vector<int> result;
  for (int gate = 0; gate <= gates.count(); ++gate) result.push_back(gates.first(gate));
  return result;
}

Convolution with_taps(const std::string& digits) {
  return parse_convolution("kernel=3 input=9 taps=" + digits);
}

}  // namespace

TEST_CASE("every block of a linear layer, and of a kernel of one tap, has a gate of its own") {
  for (const Convolution& convolution : {Convolution(), parse_convolution("kernel=1 input=9")}) {
    const BlockGates gates(convolution, 4);
    CHECK_FALSE(gates.shared());
    CHECK(gates_of(gates, 4) == std::vector{0, 1, 2, 3});
    CHECK(first_blocks(gates) == std::vector{0, 1, 2, 3, 4});
  }
}

TEST_CASE("all taps that a block has share its gate") {
  const BlockGates whole(parse_convolution("kernel=3 input=9"), 6);
  CHECK(whole.shared());
  CHECK(gates_of(whole, 6) == std::vector{0, 0, 0, 1, 1, 1});
  const BlockGates masked(with_taps("101"), 6);
  CHECK(masked.taps() == 2);
  CHECK(gates_of(masked, 6) == std::vector{0, 0, 1, 1, 2, 2});
  CHECK(first_blocks(masked) == std::vector{0, 2, 4, 6});
}

TEST_CASE("a block without taps has a gate that scales nothing") {
  const BlockGates gates(with_taps("000110000001000"), 3);
  CHECK(gates.count() == 5);
  CHECK(gates.taps() == 0);
  CHECK(gates_of(gates, 3) == std::vector{1, 1, 3});
  CHECK(first_blocks(gates) == std::vector{0, 0, 2, 2, 3, 3});
  CHECK(layout_blocks(with_taps("000110000001000"), 3) == 5);
}

}  // namespace sparsekiln

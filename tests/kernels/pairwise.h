#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace sparsekiln::test {

/// A value's number for each axis; kUnset while a row is being made.
using Row = std::vector<int>;
constexpr int kUnset = -1;

/// Value `first` of axis `first_axis` together with value `second` of the later axis `second_axis`.
struct Pair {
  std::size_t first_axis, second_axis;
  int first, second;
  friend bool operator==(const Pair&, const Pair&) = default;
};

struct CoveringArray {
  std::vector<Row> rows;
  std::vector<Pair> impossible;  ///< pairs that no allowed row holds
};

/// False where no completion of a row, with some axes unset, is of use.
using Allowed = std::function<bool(const Row&)>;

/// Few rows that together hold every allowed pair of values of any two axes, made greedily: each row begins
/// with the first pair that is missing and takes, axis by axis, the value that adds most (after AETG: Cohen,
/// Dalal, Fredman & Patton 1997). Most faults need no more than two values to show (Kuhn, Wallace & Gallo
/// 2004). The same axes give the same rows on every machine. Axes that `allowed` looks at come best first:
/// the others are not tried in vain then.
[[nodiscard]] CoveringArray pairwise(std::span<const int> axis_sizes, const Allowed& allowed = {});

}  // namespace sparsekiln::test

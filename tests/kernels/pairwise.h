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
  std::vector<Pair> impossible;  ///< pairs that no allowed row holds, as far as this array had to
};

/// False where no completion of a row, with some axes unset, is of use.
using Allowed = std::function<bool(const Row&)>;

/// Every allowed row there is.
[[nodiscard]] std::vector<Row> product(std::span<const int> axis_sizes, const Allowed& allowed = {});

/// Axes with the values that one of several arrays has for them.
struct Family {
  std::vector<int> sizes;  ///< values of each axis
  Allowed allowed;         ///< empty: everything is
};

/// Few rows that together hold every allowed pair of values of any two axes, made greedily: each row begins
/// with the first pair that is missing and takes, axis by axis, the value that adds most (after AETG: Cohen,
/// Dalal, Fredman & Patton 1997). Most faults need no more than two values to show (Kuhn, Wallace & Gallo
/// 2004). The same axes give the same rows on every machine. Axes that `allowed` looks at come best first:
/// the others are not tried in vain then.
[[nodiscard]] CoveringArray pairwise(std::span<const int> axis_sizes, const Allowed& allowed = {});

/// An array for each family, where a pair of values of two `shared` axes need be in one of them only: such
/// pairs are given to the families in turn, each to the first that has an allowed row with it, and are
/// impossible where none has. Every other pair is in each array in which it is allowed. All families have
/// the same axes, and value i of a shared axis means the same in all; one may have fewer of them.
[[nodiscard]] std::vector<CoveringArray> pairwise(std::span<const Family> families,
                                                  std::span<const std::size_t> shared);

/// The pairs that no row of `arrays` holds and that are not said to be impossible: none if they are what
/// `pairwise` made of these families.
[[nodiscard]] std::vector<Pair> uncovered(std::span<const Family> families,
                                          std::span<const std::size_t> shared,
                                          std::span<const CoveringArray> arrays);

}  // namespace sparsekiln::test

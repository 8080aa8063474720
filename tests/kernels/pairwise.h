#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace sparsekiln::test {

/// The number of a value on each axis; kUnset while a row is being made.
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
  /// pairs that no allowed row contains, among those that this array had to cover
  std::vector<Pair> impossible;
};

/// False if no completion of a row, with some axes unset, is allowed.
using Allowed = std::function<bool(const Row&)>;

/// Every allowed row.
[[nodiscard]] std::vector<Row> product(std::span<const int> axis_sizes, const Allowed& allowed = {});

/// Axes with the values that one of several arrays has for them.
struct Family {
  std::vector<int> sizes;  ///< values of each axis
  Allowed allowed;         ///< empty: everything is
};

/// Few rows that together contain every allowed pair of values of any two axes. They are made greedily: each
/// row starts with the first missing pair and takes, axis by axis, the value that adds most (after AETG:
/// Cohen, Dalal, Fredman & Patton 1997). Most faults need no more than two values to show (Kuhn, Wallace &
/// Gallo 2004). The same axes give the same rows on every machine. Axes that `allowed` examines should come
/// first, so that the others are not tried in vain.
[[nodiscard]] CoveringArray pairwise(std::span<const int> axis_sizes, const Allowed& allowed = {});

/// An array for each family, where a pair of values of two `shared` axes needs to be in only one of them.
/// Such pairs are given to the families in turn, each to the first that has an allowed row with it; they are
/// impossible if there is none. Every other pair is in each array in which it is allowed. All families have
/// the same axes, and value i of a shared axis means the same in all; a family may have fewer of them.
[[nodiscard]] std::vector<CoveringArray> pairwise(std::span<const Family> families,
                                                  std::span<const std::size_t> shared);

/// The pairs that no row of `arrays` contains and that are not listed as impossible: none, if `pairwise` made
/// the arrays from these families.
[[nodiscard]] std::vector<Pair> uncovered(std::span<const Family> families,
                                          std::span<const std::size_t> shared,
                                          std::span<const CoveringArray> arrays);

}  // namespace sparsekiln::test

#include "tests/kernels/pairwise.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace sparsekiln::test {
namespace {

/// Which pairs no row contains yet.
class Missing {
 public:
  explicit Missing(std::span<const int> sizes) {
    int offset = 0;
    for (const int size : sizes) {
      offset_.push_back(offset);
      offset += size;
    }
    values_ = static_cast<std::size_t>(offset);
    missing_.assign(values_ * values_, 1);
  }

  /// The axes in either order.
  [[nodiscard]] bool has(std::size_t axis, int value, std::size_t other_axis, int other) const {
    return missing_[at(axis, value, other_axis, other)] != 0;
  }
  [[nodiscard]] bool has(const Pair& pair) const {
    return has(pair.first_axis, pair.first, pair.second_axis, pair.second);
  }
  void remove(const Pair& pair) {
    missing_[at(pair.first_axis, pair.first, pair.second_axis, pair.second)] = 0;
    missing_[at(pair.second_axis, pair.second, pair.first_axis, pair.first)] = 0;
  }
  /// Missing pairs of `value` with the values of `row`.
  [[nodiscard]] int gain(const Row& row, std::size_t axis, int value) const {
    int count = 0;
    const std::uint8_t* const missing = &missing_[at(axis, value, 0, 0)];
    for (std::size_t other = 0; other < row.size(); ++other)
      if (other != axis && row[other] != kUnset) count += missing[offset_[other] + row[other]];
    return count;
  }

 private:
  [[nodiscard]] std::size_t at(std::size_t axis, int value, std::size_t other_axis, int other) const {
    return static_cast<std::size_t>(offset_[axis] + value) * values_ +
           static_cast<std::size_t>(offset_[other_axis] + other);
  }

  std::vector<int> offset_;
  std::size_t values_ = 0;
  std::vector<std::uint8_t> missing_;
};

/// Whether a family has these values of shared axes.
bool has_values(const Family& family, const Pair& pair) {
  return pair.first < family.sizes[pair.first_axis] && pair.second < family.sizes[pair.second_axis];
}

/// The array of one family while it is being made.
class Generator {
 public:
  explicit Generator(const Family& family) : family_(family), missing_(family.sizes) {}

  [[nodiscard]] bool misses(const Pair& pair) const {
    return has_values(family_, pair) && missing_.has(pair);
  }
  void remove(const Pair& pair) {
    if (has_values(family_, pair)) missing_.remove(pair);
  }

  /// Adds a row with a missing pair; false if there is none, which ends the search for that pair here.
  bool cover(const Pair& pair) {
    Row row(family_.sizes.size(), kUnset);
    row[pair.first_axis] = pair.first;
    row[pair.second_axis] = pair.second;
    const bool possible = is_allowed(row) && complete(row, 0);
    if (possible)
      array_.rows.push_back(std::move(row));
    else
      array_.impossible.push_back(pair);
    remove(pair);
    return possible;
  }

  [[nodiscard]] const CoveringArray& array() const { return array_; }

 private:
  [[nodiscard]] bool is_allowed(const Row& row) const { return !family_.allowed || family_.allowed(row); }

  /// Sets what is unset from `axis` on, the value with most gain first; false if nothing is allowed.
  [[nodiscard]] bool complete(Row& row, std::size_t axis) const {
    struct Choice {
      int value, gain;
    };
    while (axis < row.size() && row[axis] != kUnset) ++axis;
    if (axis == row.size()) return true;
    const int size = family_.sizes[axis];
    std::vector<Choice> choices;
    for (int i = 0; i < size; ++i) {  // ties rotate, so that values appear equally often
      const int value = (i + static_cast<int>(array_.rows.size())) % size;
      choices.push_back({value, missing_.gain(row, axis, value)});
    }
    std::stable_sort(choices.begin(), choices.end(),
                     [](const Choice& left, const Choice& right) { return left.gain > right.gain; });
    for (const Choice& choice : choices) {
      row[axis] = choice.value;
      if (is_allowed(row) && complete(row, axis + 1)) return true;
    }
    row[axis] = kUnset;
    return false;
  }

  const Family& family_;
  Missing missing_;
  CoveringArray array_;
};

/// Calls `visit` with every pair that a family has: those of shared axes last, and before them first those of
/// the axes with most values, which need most rows.
template <class Visit>
void for_each_pair(std::span<const Family> families, std::span<const std::size_t> shared, Visit visit) {
  if (families.empty()) return;
  std::vector<int> sizes = families[0].sizes;
  for (const Family& family : families)
    for (std::size_t axis = 0; axis < sizes.size(); ++axis)
      sizes[axis] = std::max(sizes[axis], family.sizes[axis]);
  struct Axes {
    std::size_t first, second;
    bool shared;
    int pairs;
  };
  const auto is_shared = [&](std::size_t axis) {
    return std::find(shared.begin(), shared.end(), axis) != shared.end();
  };
  std::vector<Axes> all;
  for (std::size_t a = 0; a < sizes.size(); ++a)
    for (std::size_t b = a + 1; b < sizes.size(); ++b)
      all.push_back({a, b, is_shared(a) && is_shared(b), sizes[a] * sizes[b]});
  std::stable_sort(all.begin(), all.end(), [](const Axes& left, const Axes& right) {
    return left.shared != right.shared ? right.shared : left.pairs > right.pairs;
  });
  for (const Axes& axes : all)
    for (int first = 0; first < sizes[axes.first]; ++first)
      for (int second = 0; second < sizes[axes.second]; ++second)
        visit(Pair{axes.first, axes.second, first, second}, axes.shared);
}

}  // namespace

std::vector<Row> product(std::span<const int> axis_sizes, const Allowed& allowed) {
  std::vector<Row> rows{Row(axis_sizes.size(), kUnset)};
  for (std::size_t axis = 0; axis < axis_sizes.size(); ++axis) {
    std::vector<Row> longer;
    for (Row& row : rows)
      for (row[axis] = 0; row[axis] < axis_sizes[axis]; ++row[axis])
        if (!allowed || allowed(row)) longer.push_back(row);
    rows = std::move(longer);
  }
  return rows;
}

CoveringArray pairwise(std::span<const int> axis_sizes, const Allowed& allowed) {
  const Family family{{axis_sizes.begin(), axis_sizes.end()}, allowed};
  return pairwise(std::span(&family, 1), {}).front();
}

std::vector<CoveringArray> pairwise(std::span<const Family> families, std::span<const std::size_t> shared) {
  std::vector<Generator> generators(families.begin(), families.end());
  const auto cover = [&](std::size_t index, const Pair& pair) {
    if (!generators[index].cover(pair)) return false;
    const Row& row = generators[index].array().rows.back();
    for (std::size_t a = 0; a < row.size(); ++a)
      for (std::size_t b = a + 1; b < row.size(); ++b) generators[index].remove({a, b, row[a], row[b]});
    for (Generator& generator : generators)
      for (const std::size_t a : shared)
        for (const std::size_t b : shared)
          if (a < b) generator.remove({a, b, row[a], row[b]});
    return true;
  };
  std::size_t turn = 0;
  for_each_pair(families, shared, [&](const Pair& pair, bool once) {
    for (std::size_t i = 0; i < generators.size(); ++i) {
      const std::size_t index = (turn + i) % generators.size();
      if (generators[index].misses(pair) && cover(index, pair) && once) break;
    }
    if (once) ++turn;
  });
  std::vector<CoveringArray> arrays;
  for (const Generator& generator : generators) arrays.push_back(generator.array());
  return arrays;
}

std::vector<Pair> uncovered(std::span<const Family> families, std::span<const std::size_t> shared,
                            std::span<const CoveringArray> arrays) {
  std::vector<Pair> result;
  for_each_pair(families, shared, [&](const Pair& pair, bool once) {
    std::size_t holding = 0;
    std::size_t without = 0;  // families that cannot contain it
    for (std::size_t i = 0; i < families.size(); ++i) {
      const auto& [rows, impossible] = arrays[i];
      const auto holds = [&](const Row& row) {
        return row[pair.first_axis] == pair.first && row[pair.second_axis] == pair.second;
      };
      if (std::any_of(rows.begin(), rows.end(), holds))
        ++holding;
      else if (!has_values(families[i], pair) ||
               std::find(impossible.begin(), impossible.end(), pair) != impossible.end())
        ++without;
    }
    if (once ? holding == 0 && without < families.size() : holding + without < families.size())
      result.push_back(pair);
  });
  return result;
}

}  // namespace sparsekiln::test

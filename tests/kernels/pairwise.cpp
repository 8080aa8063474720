#include "tests/kernels/pairwise.h"

#include <algorithm>
#include <optional>

namespace sparsekiln::test {
namespace {

/// Which pairs no row holds yet.
class Missing {
 public:
  explicit Missing(std::span<const int> sizes) {
    int offset = 0;
    for (const int size : sizes) {
      offset_.push_back(offset);
      offset += size;
    }
    values_ = static_cast<std::size_t>(offset);
    missing_.assign(values_ * values_, true);
  }

  /// Of either order of the axes.
  [[nodiscard]] bool has(std::size_t axis, int value, std::size_t other_axis, int other) const {
    return missing_[at(axis, value, other_axis, other)];
  }
  void remove(std::size_t axis, int value, std::size_t other_axis, int other) {
    missing_[at(axis, value, other_axis, other)] = false;
    missing_[at(other_axis, other, axis, value)] = false;
  }
  void remove(const Row& row) {
    for (std::size_t a = 0; a < row.size(); ++a)
      for (std::size_t b = a + 1; b < row.size(); ++b) remove(a, row[a], b, row[b]);
  }
  /// Missing pairs of `value` with what `row` has.
  [[nodiscard]] int gain(const Row& row, std::size_t axis, int value) const {
    int count = 0;
    for (std::size_t other = 0; other < row.size(); ++other)
      if (other != axis && row[other] != kUnset && has(axis, value, other, row[other])) ++count;
    return count;
  }

 private:
  [[nodiscard]] std::size_t at(std::size_t axis, int value, std::size_t other_axis, int other) const {
    return static_cast<std::size_t>(offset_[axis] + value) * values_ +
           static_cast<std::size_t>(offset_[other_axis] + other);
  }

  std::vector<int> offset_;
  std::size_t values_ = 0;
  std::vector<bool> missing_;
};

class Generator {
 public:
  Generator(std::span<const int> sizes, const Allowed& allowed)
      : sizes_(sizes), allowed_(allowed), missing_(sizes) {}

  CoveringArray run() {
    for (std::size_t a = 0; a < sizes_.size(); ++a)
      for (std::size_t b = a + 1; b < sizes_.size(); ++b)
        for (int first = 0; first < sizes_[a]; ++first)
          for (int second = 0; second < sizes_[b]; ++second)
            if (missing_.has(a, first, b, second)) cover({a, b, first, second});
    return std::move(array_);
  }

 private:
  void cover(const Pair& pair) {
    Row row(sizes_.size(), kUnset);
    row[pair.first_axis] = pair.first;
    row[pair.second_axis] = pair.second;
    if (is_allowed(row) && complete(row, 0)) {
      missing_.remove(row);
      array_.rows.push_back(row);
    } else {
      missing_.remove(pair.first_axis, pair.first, pair.second_axis, pair.second);
      array_.impossible.push_back(pair);
    }
  }

  [[nodiscard]] bool is_allowed(const Row& row) const { return !allowed_ || allowed_(row); }

  /// Sets what is unset from `axis` on, the value of most gain first; false where nothing is allowed.
  bool complete(Row& row, std::size_t axis) const {
    while (axis < row.size() && row[axis] != kUnset) ++axis;
    if (axis == row.size()) return true;
    std::vector<int> values;
    for (int i = 0; i < sizes_[axis]; ++i)  // ties go round, so that values appear equally often
      values.push_back((i + static_cast<int>(array_.rows.size())) % sizes_[axis]);
    std::stable_sort(values.begin(), values.end(), [&](int left, int right) {
      return missing_.gain(row, axis, left) > missing_.gain(row, axis, right);
    });
    for (const int value : values) {
      row[axis] = value;
      if (is_allowed(row) && complete(row, axis + 1)) return true;
    }
    row[axis] = kUnset;
    return false;
  }

  std::span<const int> sizes_;
  const Allowed& allowed_;
  Missing missing_;
  CoveringArray array_;
};

}  // namespace

CoveringArray pairwise(std::span<const int> axis_sizes, const Allowed& allowed) {
  return Generator(axis_sizes, allowed).run();
}

}  // namespace sparsekiln::test

#include "compiler/row_group_search.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "compiler/random.h"

namespace sparsekiln {
namespace {

/// Words of columns that all tries together look at.
constexpr std::int64_t kWords = std::int64_t{1} << 21;
constexpr std::int64_t kMostTries = 200000;

/// The columns of each row as bits, and after the last row a row that needs none.
class Columns {
 public:
  explicit Columns(const RowSets& sets)
      : words_((static_cast<std::size_t>(sets.columns) + 63) / 64),
        bits_((static_cast<std::size_t>(sets.rows()) + 1) * words_, 0),
        none_(sets.rows()) {
    for (std::int32_t row = 0; row < sets.rows(); ++row)
      for (std::int32_t at = sets.begin[static_cast<std::size_t>(row)];
           at < sets.begin[static_cast<std::size_t>(row) + 1]; ++at) {
        const auto column = static_cast<std::size_t>(sets.cols[static_cast<std::size_t>(at)]);
        bits_[static_cast<std::size_t>(row) * words_ + column / 64] |= std::uint64_t{1} << column % 64;
      }
  }
  [[nodiscard]] std::size_t words() const { return words_; }
  /// How many columns any of so many rows needs.
  [[nodiscard]] int united(const std::int32_t* rows, std::int32_t size) const {
    int count = 0;
    for (std::size_t word = 0; word < words_; ++word) {
      std::uint64_t any = 0;
      for (std::int32_t i = 0; i < size; ++i) any |= bits_[of(rows[i]) * words_ + word];
      count += std::popcount(any);
    }
    return count;
  }

 private:
  [[nodiscard]] std::size_t of(std::int32_t row) const {
    return static_cast<std::size_t>(row == kNoRow ? none_ : row);
  }

  std::size_t words_;
  std::vector<std::uint64_t> bits_;
  std::int32_t none_;
};

/// Whether an exchange that costs one column more is made, of `left` tries out of `all`: of one in seven in
/// the beginning, and with the fourth power of what is left.
bool accepts_one_more(std::uint64_t drawn, std::int64_t left, std::int64_t all) {
  constexpr std::int64_t kOne = 1 << 15;
  const std::int64_t share = left * kOne / all;
  const std::int64_t square = share * share / kOne;
  return static_cast<std::int64_t>(drawn % kOne) * 7 < square * square / kOne;
}

}  // namespace

void search_row_groups(const RowSets& sets, std::vector<std::int32_t>& order, std::int32_t size) {
  const auto row_groups = static_cast<std::int64_t>(order.size()) / std::max(size, 1);
  if (size < 2 || row_groups < 2 || sets.columns == 0) return;
  const Columns columns(sets);
  const auto words = static_cast<std::int64_t>(columns.words());
  const std::int64_t tries = std::min(kMostTries, kWords / (2 * size * words));
  std::vector<int> needed;
  for (std::int64_t row_group = 0; row_group < row_groups; ++row_group)
    needed.push_back(columns.united(order.data() + row_group * size, size));
  SplitMix64 random(1);
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(draw_below(random, static_cast<std::uint64_t>(bound)));
  };
  for (std::int64_t left = tries; left > 0; --left) {
    const std::int64_t first = below(row_groups);
    const std::int64_t second = (first + 1 + below(row_groups - 1)) % row_groups;
    std::int32_t* const rows = order.data() + first * size;
    std::int32_t* const others = order.data() + second * size;
    std::int32_t& row = rows[below(size)];
    std::int32_t& other = others[below(size)];
    std::swap(row, other);
    const int of_first = columns.united(rows, size);
    const int of_second = columns.united(others, size);
    int& before = needed[static_cast<std::size_t>(first)];
    int& before_second = needed[static_cast<std::size_t>(second)];
    const int more = of_first + of_second - before - before_second;
    if (more > 1 || (more == 1 && !accepts_one_more(random(), left, tries))) {
      std::swap(row, other);
      continue;
    }
    before = of_first;
    before_second = of_second;
  }
}

}  // namespace sparsekiln

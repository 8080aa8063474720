#include "compiler/row_group.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "compiler/row_group_search.h"

namespace sparsekiln {
namespace {

/// Steps of the inverted index that the search for row groups may take: some tens of milliseconds.
constexpr std::int64_t kMostSteps = std::int64_t{1} << 25;
/// A mask has one byte per row, eight in a word.
constexpr std::size_t kWordRows = 8;
/// Words of a mask that are added at once: some vector registers.
constexpr std::size_t kMaskWords = 8;
constexpr std::size_t kMaskRows = kMaskWords * kWordRows;
/// A step over this many rows of a mask takes about as long as one over a row of a list.
constexpr std::int32_t kMaskSpeed = 16;
/// A column is a mask if it has more than one row in so many.
constexpr std::int64_t kSparsestMask = 16;

std::span<const std::int32_t> columns_of(const RowSets& sets, std::int32_t row) {
  const auto begin = static_cast<std::size_t>(sets.begin[static_cast<std::size_t>(row)]);
  const auto end = static_cast<std::size_t>(sets.begin[static_cast<std::size_t>(row) + 1]);
  return std::span(sets.cols).subspan(begin, end - begin);
}

/// Which rows need a column: a list of them, or, if they are many, a mask over all rows.
class RowsOfColumns {
 public:
  explicit RowsOfColumns(const RowSets& sets)
      : rows_(sets.rows()),
        padded_rows_((static_cast<std::size_t>(sets.rows()) + kMaskRows - 1) / kMaskRows * kMaskRows),
        begin_(static_cast<std::size_t>(sets.columns) + 1, 0),
        list_(sets.cols.size()),
        mask_(static_cast<std::size_t>(sets.columns), kNoMask) {
    for (const std::int32_t column : sets.cols) ++begin_[static_cast<std::size_t>(column) + 1];
    std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
    limit();
    std::vector<std::int32_t> next(begin_.begin(), begin_.end() - 1);
    for (std::int32_t row = 0; row < sets.rows(); ++row)
      for (const std::int32_t column : columns_of(sets, row))
        list_[static_cast<std::size_t>(next[static_cast<std::size_t>(column)]++)] = row;
    make_masks();
  }

  /// Rows in whole kMaskRows, as a mask has them.
  [[nodiscard]] std::size_t padded_rows() const { return padded_rows_; }

  /// Null for a column with a list.
  [[nodiscard]] const std::uint64_t* mask(std::int32_t column) const {
    const std::ptrdiff_t at = mask_[static_cast<std::size_t>(column)];
    return at == kNoMask ? nullptr : masks_.data() + at;
  }

  /// The rows of a column without a mask. Empty for a column that so many rows share that it distinguishes
  /// them the least, if there are too many such columns.
  [[nodiscard]] std::span<const std::int32_t> list(std::int32_t column) const {
    const std::int32_t length = this->length(static_cast<std::size_t>(column));
    if (length > longest_) return {};
    return std::span(list_).subspan(static_cast<std::size_t>(begin_[static_cast<std::size_t>(column)]),
                                    static_cast<std::size_t>(length));
  }

 private:
  static constexpr std::ptrdiff_t kNoMask = -1;

  [[nodiscard]] std::int32_t length(std::size_t column) const { return begin_[column + 1] - begin_[column]; }
  [[nodiscard]] bool is_mask(std::int32_t length) const { return length * kSparsestMask >= rows_; }

  /// The shorter columns, as many as can be visited once for each of their rows.
  void limit() {
    std::vector<std::int32_t> lengths;
    lengths.reserve(mask_.size());
    for (std::size_t column = 0; column < mask_.size(); ++column) lengths.push_back(length(column));
    std::sort(lengths.begin(), lengths.end());
    std::int64_t steps = 0;
    for (const std::int32_t length : lengths) {
      steps += std::int64_t{length} * (is_mask(length) ? rows_ / kMaskSpeed + 1 : length);
      if (steps > kMostSteps) {  // all of this length are left out: none distinguishes rows better
        longest_ = std::min(longest_, length - 1);
        return;
      }
      longest_ = length;
    }
  }

  void make_masks() {
    std::ptrdiff_t words = 0;
    for (std::size_t column = 0; column < mask_.size(); ++column) {
      if (length(column) == 0 || length(column) > longest_ || !is_mask(length(column))) continue;
      mask_[column] = words;
      words += static_cast<std::ptrdiff_t>(padded_rows_ / kWordRows);
    }
    masks_.assign(static_cast<std::size_t>(words), 0);
    for (std::size_t column = 0; column < mask_.size(); ++column)
      if (mask_[column] != kNoMask)
        for (const std::int32_t row : list(static_cast<std::int32_t>(column)))
          masks_[static_cast<std::size_t>(mask_[column]) + static_cast<std::size_t>(row) / kWordRows] |=
              std::uint64_t{1} << 8 * (static_cast<std::size_t>(row) % kWordRows);
  }

  std::int32_t rows_;
  std::size_t padded_rows_;
  std::vector<std::int32_t> begin_;
  std::vector<std::int32_t> list_;
  std::vector<std::ptrdiff_t> mask_;  ///< of each column: where in masks_
  std::vector<std::uint64_t> masks_;
  std::int32_t longest_ = 0;
};

/// Removes rows from those that are left, one row group after the other.
class Agglomeration {
 public:
  explicit Agglomeration(const RowSets& sets)
      : sets_(sets),
        rows_of_(sets),
        shared_(rows_of_.padded_rows(), 0),
        taken_(rows_of_.padded_rows(), 0),
        needed_(static_cast<std::size_t>(sets.columns), 0) {
    std::fill(taken_.begin() + sets.rows(), taken_.end(), 1);  // rows that do not exist
  }

  std::vector<std::int32_t> run(std::int32_t size) {
    const auto rows = static_cast<std::size_t>(sets_.rows());
    std::vector<std::int32_t> order;
    order.reserve(rows);
    for (std::int32_t seed = 0; seed < sets_.rows(); ++seed) {
      if (taken_[static_cast<std::size_t>(seed)]) continue;
      begin_row_group();
      take(seed, order);
      for (std::int32_t place = 1; place < size && order.size() < rows; ++place) {
        count_shared(order.back());
        take(best(seed), order);
      }
    }
    return order;
  }

 private:
  /// The score of a row that is taken; it stays below 0 whatever is added to it.
  static constexpr std::int32_t kTaken = std::numeric_limits<std::int32_t>::min();

  void begin_row_group() {
    if (any_mask_)
      for (std::size_t row = 0; row < shared_.size(); ++row) shared_[row] = taken_[row] ? kTaken : 0;
    else
      for (const std::int32_t row : touched_)
        shared_[static_cast<std::size_t>(row)] = taken_[static_cast<std::size_t>(row)] ? kTaken : 0;
    for (const std::int32_t column : columns_) needed_[static_cast<std::size_t>(column)] = 0;
    touched_.clear();
    columns_.clear();
    any_mask_ = false;
  }

  void take(std::int32_t row, std::vector<std::int32_t>& order) {
    order.push_back(row);
    taken_[static_cast<std::size_t>(row)] = 1;
    shared_[static_cast<std::size_t>(row)] = kTaken;
  }

  /// Counts what the other rows share with the columns that `row` brings into the row group.
  void count_shared(std::int32_t row) {
    for (const std::int32_t column : columns_of(sets_, row)) {
      if (needed_[static_cast<std::size_t>(column)]) continue;
      needed_[static_cast<std::size_t>(column)] = 1;
      columns_.push_back(column);
      if (const std::uint64_t* const mask = rows_of_.mask(column)) {
        masks_.push_back(mask);
        if (masks_.size() == kMostMasks) add_masks();
        continue;
      }
      for (const std::int32_t other : rows_of_.list(column)) {
        std::int32_t& shared = shared_[static_cast<std::size_t>(other)];
        if (shared < 0) continue;
        if (shared++ == 0) touched_.push_back(other);
      }
    }
    add_masks();
  }

  /// At most kMostMasks of them, so that the sum for each row still fits into a byte.
  void add_masks() {
    if (masks_.empty()) return;
    any_mask_ = true;
    for (std::size_t first = 0; first < shared_.size() / kWordRows; first += kMaskWords) {
      std::array<std::uint64_t, kMaskWords> sums{};
      for (const std::uint64_t* const mask : masks_)
        for (std::size_t word = 0; word < kMaskWords; ++word) sums[word] += mask[first + word];
      for (std::size_t row = 0; row < kMaskRows; ++row)
        shared_[first * kWordRows + row] +=
            static_cast<std::int32_t>(sums[row / kWordRows] >> 8 * (row % kWordRows) & 0xff);
    }
    masks_.clear();
  }

  /// The row that shares most columns with the row group, the lowest if there are several; if none shares
  /// any, the next row that is left.
  std::int32_t best(std::int32_t seed) {
    std::int32_t found = kNoRow;
    std::int32_t most = 0;
    if (any_mask_) {
      for (const std::int32_t shared : shared_) most = std::max(most, shared);
      if (most > 0)
        found = static_cast<std::int32_t>(std::find(shared_.begin(), shared_.end(), most) - shared_.begin());
    } else {
      for (const std::int32_t row : touched_) {
        const std::int32_t shared = shared_[static_cast<std::size_t>(row)];
        if (shared > most || (shared == most && row < found)) {
          most = shared;
          found = row;
        }
      }
    }
    if (found != kNoRow) return found;
    left_ = std::max(left_, seed);
    while (taken_[static_cast<std::size_t>(left_)]) ++left_;
    return left_;
  }

  static constexpr std::size_t kMostMasks = 255;

  const RowSets& sets_;
  RowsOfColumns rows_of_;
  std::vector<std::int32_t>
      shared_;  ///< of each row that is left, columns with the row group; below 0: taken
  std::vector<char> taken_;
  std::vector<char> needed_;                 ///< whether the row group needs a column
  std::vector<std::int32_t> touched_;        ///< rows that share a column of a list
  std::vector<const std::uint64_t*> masks_;  ///< to be added
  bool any_mask_ = false;                    ///< the row group has added some
  std::vector<std::int32_t> columns_;        ///< that it needs
  std::int32_t left_ = 0;                    ///< all rows below it are taken
};

/// The columns that each row group of an order needs.
struct Needed {
  std::int32_t count = 0;
  std::int64_t sum = 0;  ///< of their numbers
};
std::vector<Needed> needed_by(const RowSets& sets, const std::vector<std::int32_t>& order,
                              std::int32_t size) {
  std::vector<Needed> row_groups(order.size() / static_cast<std::size_t>(size));
  std::vector<std::int32_t> last(static_cast<std::size_t>(sets.columns), -1);  // that needed a column
  for (std::size_t place = 0; place < order.size(); ++place) {
    if (order[place] == kNoRow) continue;
    const std::size_t row_group = place / static_cast<std::size_t>(size);
    Needed needed = row_groups[row_group];
    for (const std::int32_t column : columns_of(sets, order[place])) {
      std::int32_t& by = last[static_cast<std::size_t>(column)];
      const bool is_new = by != static_cast<std::int32_t>(row_group);
      by = static_cast<std::int32_t>(row_group);
      needed.count += is_new;
      needed.sum += is_new ? column : 0;
    }
    row_groups[row_group] = needed;
  }
  return row_groups;
}

std::int64_t loads(const std::vector<Needed>& row_groups) {
  return std::accumulate(row_groups.begin(), row_groups.end(), std::int64_t{0},
                         [](std::int64_t sum, const Needed& needed) { return sum + needed.count; });
}

/// Row groups by the mean of their columns, those that need none last; rows ascend within each.
std::vector<std::int32_t> in_order_of_columns(const RowSets& sets, const std::vector<Needed>& row_groups,
                                              const std::vector<std::int32_t>& order, std::int32_t size) {
  std::vector<std::pair<std::int64_t, std::int32_t>> keys;  // mean column in 1/1024, row group
  keys.reserve(row_groups.size());
  for (const Needed& needed : row_groups)
    keys.emplace_back(
        needed.count == 0 ? std::int64_t{sets.columns} * 1024 : needed.sum * 1024 / needed.count,
        static_cast<std::int32_t>(keys.size()));
  std::sort(keys.begin(), keys.end());
  std::vector<std::int32_t> result;
  result.reserve(order.size());
  for (const auto& [key, row_group] : keys) {
    const auto begin = order.begin() + std::ptrdiff_t{row_group} * size;
    const auto rows = result.insert(result.end(), begin, begin + size);
    std::sort(rows, result.end(), [](std::int32_t a, std::int32_t b) {
      return static_cast<std::uint32_t>(a) < static_cast<std::uint32_t>(b);  // kNoRow last
    });
  }
  return result;
}

}  // namespace

std::vector<std::int32_t> group_rows(const RowSets& sets, std::int32_t size, bool searches) {
  std::vector<std::int32_t> as_they_are(static_cast<std::size_t>(sets.rows()));
  std::iota(as_they_are.begin(), as_they_are.end(), 0);
  if (size <= 1) return as_they_are;
  const auto filled = [&](std::vector<std::int32_t> order) {
    const auto whole = static_cast<std::size_t>(size);
    order.resize((order.size() + whole - 1) / whole * whole, kNoRow);
    return order;
  };
  as_they_are = filled(std::move(as_they_are));
  std::vector<std::int32_t> found = filled(Agglomeration(sets).run(size));
  if (searches) search_row_groups(sets, found, size);
  const std::vector<Needed> needed = needed_by(sets, found, size);
  const bool better = loads(needed) < loads(needed_by(sets, as_they_are, size));
  return better ? in_order_of_columns(sets, needed, found, size) : as_they_are;
}

RowSets unite(const RowSets& sets, const std::vector<std::int32_t>& order, std::int32_t size) {
  RowSets united;
  united.columns = sets.columns;
  united.cols.reserve(sets.cols.size());
  std::vector<std::int32_t> last(static_cast<std::size_t>(sets.columns), -1);  // that needed a column
  for (std::size_t begin = 0; begin < order.size(); begin += static_cast<std::size_t>(size)) {
    const std::size_t first = united.cols.size();
    const std::int32_t row_group = united.rows();
    for (std::size_t place = begin; place < begin + static_cast<std::size_t>(size); ++place) {
      if (order[place] == kNoRow) continue;
      for (const std::int32_t column : columns_of(sets, order[place]))
        if (std::exchange(last[static_cast<std::size_t>(column)], row_group) != row_group)
          united.cols.push_back(column);
    }
    const auto from = united.cols.begin() + static_cast<std::ptrdiff_t>(first);
    constexpr std::int32_t kDense = 8;  // of so many columns, one
    if (united.cols.end() - from < sets.columns / kDense) {
      std::sort(from, united.cols.end());
    } else {  // visiting every column costs less than sorting
      united.cols.resize(first);
      for (std::int32_t column = 0; column < sets.columns; ++column)
        if (last[static_cast<std::size_t>(column)] == row_group) united.cols.push_back(column);
    }
    united.begin.push_back(static_cast<std::int32_t>(united.cols.size()));
  }
  return united;
}

}  // namespace sparsekiln

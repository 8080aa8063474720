#include "compiler/cluster.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace sparsekiln {
namespace {

/// Steps of the inverted index that clustering may take: some tens of milliseconds.
constexpr std::int64_t kMostSteps = std::int64_t{1} << 25;

std::span<const std::int32_t> columns_of(const RowSets& sets, std::int32_t row) {
  const auto begin = static_cast<std::size_t>(sets.begin[static_cast<std::size_t>(row)]);
  const auto end = static_cast<std::size_t>(sets.begin[static_cast<std::size_t>(row) + 1]);
  return std::span(sets.cols).subspan(begin, end - begin);
}

/// Which rows need a column.
class RowsOfColumns {
 public:
  explicit RowsOfColumns(const RowSets& sets)
      : begin_(static_cast<std::size_t>(sets.columns) + 1, 0), rows_(sets.cols.size()) {
    for (const std::int32_t column : sets.cols) ++begin_[static_cast<std::size_t>(column) + 1];
    std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
    std::vector<std::int32_t> next(begin_.begin(), begin_.end() - 1);
    for (std::int32_t row = 0; row < sets.rows(); ++row)
      for (const std::int32_t column : columns_of(sets, row))
        rows_[static_cast<std::size_t>(next[static_cast<std::size_t>(column)]++)] = row;
    limit();
  }

  /// Empty for a column that so many rows share that it tells them apart the least, where there are too many
  /// such.
  [[nodiscard]] std::span<const std::int32_t> of(std::int32_t column) const {
    const std::int32_t length = this->length(static_cast<std::size_t>(column));
    if (length > longest_) return {};
    return std::span(rows_).subspan(static_cast<std::size_t>(begin_[static_cast<std::size_t>(column)]),
                                    static_cast<std::size_t>(length));
  }

 private:
  [[nodiscard]] std::int32_t length(std::size_t column) const { return begin_[column + 1] - begin_[column]; }

  /// The shorter columns, as many as can be gone through once for each of their rows.
  void limit() {
    std::vector<std::int32_t> lengths;
    for (std::size_t column = 0; column + 1 < begin_.size(); ++column) lengths.push_back(length(column));
    std::sort(lengths.begin(), lengths.end());
    std::int64_t steps = 0;
    for (const std::int32_t length : lengths) {
      steps += std::int64_t{length} * length;
      if (steps > kMostSteps) {  // all of this length are left out: none tells rows apart better
        longest_ = std::min(longest_, length - 1);
        return;
      }
      longest_ = length;
    }
  }

  std::vector<std::int32_t> begin_;
  std::vector<std::int32_t> rows_;
  std::int32_t longest_ = 0;
};

/// Takes rows out of those that are left, one cluster after the other.
class Agglomeration {
 public:
  explicit Agglomeration(const RowSets& sets)
      : sets_(sets),
        rows_of_(sets),
        shared_(static_cast<std::size_t>(sets.rows()), 0),
        taken_(static_cast<std::size_t>(sets.rows()), 0),
        needed_(static_cast<std::size_t>(sets.columns), 0) {}

  std::vector<std::int32_t> run(std::int32_t size) {
    std::vector<std::int32_t> order;
    order.reserve(taken_.size());
    for (std::int32_t seed = 0; seed < sets_.rows(); ++seed) {
      if (taken_[static_cast<std::size_t>(seed)]) continue;
      begin_cluster();
      take(seed, order);
      for (std::int32_t place = 1; place < size && order.size() < taken_.size(); ++place)
        take(best(seed), order);
    }
    return order;
  }

 private:
  void begin_cluster() {
    for (const std::int32_t row : touched_) shared_[static_cast<std::size_t>(row)] = 0;
    for (const std::int32_t column : columns_) needed_[static_cast<std::size_t>(column)] = 0;
    touched_.clear();
    columns_.clear();
  }

  void take(std::int32_t row, std::vector<std::int32_t>& order) {
    order.push_back(row);
    taken_[static_cast<std::size_t>(row)] = 1;
    for (const std::int32_t column : columns_of(sets_, row)) {
      if (needed_[static_cast<std::size_t>(column)]) continue;
      needed_[static_cast<std::size_t>(column)] = 1;
      columns_.push_back(column);
      for (const std::int32_t other : rows_of_.of(column)) {
        if (taken_[static_cast<std::size_t>(other)]) continue;
        if (shared_[static_cast<std::size_t>(other)]++ == 0) touched_.push_back(other);
      }
    }
  }

  /// The row that shares most columns with the cluster; of equals the lowest; where none shares any, the next
  /// one that is left.
  std::int32_t best(std::int32_t seed) {
    std::int32_t found = kNoRow;
    std::int32_t most = 0;
    for (const std::int32_t row : touched_) {
      if (taken_[static_cast<std::size_t>(row)]) continue;
      const std::int32_t shared = shared_[static_cast<std::size_t>(row)];
      if (shared > most || (shared == most && row < found)) {
        most = shared;
        found = row;
      }
    }
    if (found != kNoRow) return found;
    left_ = std::max(left_, seed);
    while (taken_[static_cast<std::size_t>(left_)]) ++left_;
    return left_;
  }

  const RowSets& sets_;
  RowsOfColumns rows_of_;
  std::vector<std::int32_t> shared_;  ///< of each row that is left, columns with the cluster
  std::vector<char> taken_;
  std::vector<char> needed_;  ///< whether the cluster needs a column
  std::vector<std::int32_t> touched_;
  std::vector<std::int32_t> columns_;  ///< that it needs
  std::int32_t left_ = 0;              ///< below, all are taken
};

std::int64_t loads(const RowSets& sets, const std::vector<std::int32_t>& order, std::int32_t size) {
  return static_cast<std::int64_t>(unite(sets, order, size).cols.size());
}

/// Clusters by the mean of their columns, those that need none last; rows ascend within each.
std::vector<std::int32_t> in_order_of_columns(const RowSets& sets, const std::vector<std::int32_t>& order,
                                              std::int32_t size) {
  const RowSets clusters = unite(sets, order, size);
  std::vector<std::pair<std::int64_t, std::int32_t>> keys;  // mean column in 1/1024, cluster
  for (std::int32_t cluster = 0; cluster < clusters.rows(); ++cluster) {
    const auto cols = columns_of(clusters, cluster);
    const std::int64_t sum = std::accumulate(cols.begin(), cols.end(), std::int64_t{0});
    keys.emplace_back(cols.empty() ? std::int64_t{sets.columns} * 1024
                                   : sum * 1024 / static_cast<std::int64_t>(cols.size()),
                      cluster);
  }
  std::sort(keys.begin(), keys.end());
  std::vector<std::int32_t> result;
  result.reserve(order.size());
  for (const auto& [key, cluster] : keys) {
    const auto begin = order.begin() + std::ptrdiff_t{cluster} * size;
    std::vector<std::int32_t> rows(begin, begin + size);
    std::sort(rows.begin(), rows.end(), [](std::int32_t a, std::int32_t b) {
      return static_cast<std::uint32_t>(a) < static_cast<std::uint32_t>(b);  // kNoRow last
    });
    result.insert(result.end(), rows.begin(), rows.end());
  }
  return result;
}

}  // namespace

RowSets RowSets::of(const Layout& layout) {
  RowSets sets;
  sets.columns = layout.cols();
  sets.begin.assign(layout.crow().begin(), layout.crow().end());
  if (sets.begin.empty()) sets.begin.push_back(0);
  sets.cols.assign(layout.col().begin(), layout.col().end());
  return sets;
}

std::vector<std::int32_t> cluster_rows(const RowSets& sets, std::int32_t size) {
  std::vector<std::int32_t> as_they_are(static_cast<std::size_t>(sets.rows()));
  std::iota(as_they_are.begin(), as_they_are.end(), 0);
  if (size <= 1) return as_they_are;
  const auto filled = [&](std::vector<std::int32_t> order) {
    const auto whole = static_cast<std::size_t>(size);
    order.resize((order.size() + whole - 1) / whole * whole, kNoRow);
    return order;
  };
  as_they_are = filled(std::move(as_they_are));
  const std::vector<std::int32_t> found = filled(Agglomeration(sets).run(size));
  const bool better = loads(sets, found, size) < loads(sets, as_they_are, size);
  return better ? in_order_of_columns(sets, found, size) : as_they_are;
}

RowSets unite(const RowSets& sets, const std::vector<std::int32_t>& order, std::int32_t size) {
  RowSets united;
  united.columns = sets.columns;
  for (std::size_t begin = 0; begin < order.size(); begin += static_cast<std::size_t>(size)) {
    const std::size_t first = united.cols.size();
    for (std::size_t place = begin; place < begin + static_cast<std::size_t>(size); ++place) {
      if (order[place] == kNoRow) continue;
      const auto cols = columns_of(sets, order[place]);
      united.cols.insert(united.cols.end(), cols.begin(), cols.end());
    }
    const auto from = united.cols.begin() + static_cast<std::ptrdiff_t>(first);
    std::sort(from, united.cols.end());
    united.cols.erase(std::unique(from, united.cols.end()), united.cols.end());
    united.begin.push_back(static_cast<std::int32_t>(united.cols.size()));
  }
  return united;
}

}  // namespace sparsekiln

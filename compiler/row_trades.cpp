#include "compiler/row_trades.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sparsekiln::patterns {
namespace {

Indices without(const Indices& columns, const Indices& excluded) {
  Indices rest;
  std::set_difference(columns.begin(), columns.end(), excluded.begin(), excluded.end(),
                      std::back_inserter(rest));
  return rest;
}

/// The free columns of one row that another one does not have.
Indices offered(const TradedRow& row, const TradedRow& other) {
  return without(without(row.free, other.free), other.fixed);
}

/// Gives a row the columns [first, last) in exchange for those that it offered.
void exchange_columns(Indices& columns, const Indices& given, Indices::const_iterator first,
                      Indices::const_iterator last) {
  const Indices kept = without(columns, given);
  columns.clear();
  std::merge(kept.begin(), kept.end(), first, last, std::back_inserter(columns));
}

/// One trade: what only one of two rows has is shuffled and distributed again.
void trade(TradedRow& a, TradedRow& b, SplitMix64& random) {
  const Indices of_a = offered(a, b);
  const Indices of_b = offered(b, a);
  Indices pool;
  std::merge(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), std::back_inserter(pool));
  shuffle(pool, random);
  const auto cut = pool.begin() + std::ssize(of_a);
  std::sort(pool.begin(), cut);
  std::sort(cut, pool.end());
  exchange_columns(a.free, of_a, pool.begin(), cut);
  exchange_columns(b.free, of_b, cut, pool.end());
}

}  // namespace

void trade_at_random(std::vector<TradedRow>& grid, const Indices& traders, SplitMix64& random) {
  constexpr int kRounds = 16;
  for (int round = 0; round < kRounds; ++round) {
    Indices order = traders;
    shuffle(order, random);
    for (std::size_t i = 0; i + 1 < order.size(); i += 2) trade(grid[order[i]], grid[order[i + 1]], random);
  }
}

Layout layout_of(const std::vector<TradedRow>& grid, std::int64_t cols) {
  RowList list;
  Indices columns;
  for (const TradedRow& row : grid) {
    columns = row.fixed;
    columns.insert(columns.end(), row.free.begin(), row.free.end());
    list.add(columns);
  }
  return std::move(list).layout(cols);
}

}  // namespace sparsekiln::patterns

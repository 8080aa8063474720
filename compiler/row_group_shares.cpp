#include "compiler/row_group_shares.h"

#include <numeric>

#include "compiler/even_shares.h"

namespace sparsekiln {
namespace {

std::int64_t cost_of(const Stretch& stretch) { return std::max(stretch.end - stretch.begin, 1); }

std::int64_t cost_of(const std::vector<Stretch>& share) {
  return std::accumulate(share.begin(), share.end(), std::int64_t{0},
                         [](std::int64_t sum, const Stretch& stretch) { return sum + cost_of(stretch); });
}

void put_most_first(RowGroupShares& shares) {
  std::stable_sort(shares.begin(), shares.end(),
                   [](const auto& a, const auto& b) { return cost_of(a) > cost_of(b); });
}

/// What a CTA has at most after so many rounds of shares, most first.
std::int64_t most_after_rounds(const RowGroupShares& shares, std::int64_t rounds) {
  std::vector<std::int64_t> costs;
  for (const auto& share : shares) costs.push_back(cost_of(share));
  return sparsekiln::most_after_rounds(costs, rounds);
}

/// Whole row groups in order: a worker's share ends at the boundary nearest to its multiple of the mean.
RowGroupShares contiguous(const RowGroupLengths& lengths, std::int32_t workers) {
  RowGroupShares shares(static_cast<std::size_t>(workers));
  std::int64_t done = 0;
  for (std::int32_t row_group = 0; row_group < lengths.row_groups(); ++row_group) {
    const std::int64_t cost = lengths.cost(row_group);
    const std::int64_t middle = 2 * done + cost;  // of the row group, doubled to stay whole
    const std::int64_t worker = std::min<std::int64_t>(middle * workers / (2 * lengths.total()), workers - 1);
    shares[static_cast<std::size_t>(worker)].push_back(lengths.whole(row_group));
    done += cost;
  }
  return shares;
}

/// Whole row groups in any order.
RowGroupShares evenly(const RowGroupLengths& lengths, std::int32_t workers) {
  std::vector<std::int64_t> costs;
  for (std::int32_t row_group = 0; row_group < lengths.row_groups(); ++row_group)
    costs.push_back(lengths.cost(row_group));
  RowGroupShares shares;
  for (const auto& row_groups : even_shares(costs, workers)) {
    auto& share = shares.emplace_back();
    for (const std::int32_t row_group : row_groups) share.push_back(lengths.whole(row_group));
  }
  return shares;
}

/// Row groups placed one after the other and split at the multiples of the mean, rounded to whole steps.
RowGroupShares split_evenly(const RowGroupLengths& lengths, std::int32_t workers) {
  RowGroupShares shares(static_cast<std::size_t>(workers));
  const auto split_after = [&](std::int64_t worker) { return lengths.total() * (worker + 1) / workers; };
  std::int64_t done = 0;
  std::int64_t worker = 0;
  for (std::int32_t row_group = 0; row_group < lengths.row_groups(); ++row_group) {
    const std::int64_t first = done;
    const std::int64_t end = first + lengths.cost(row_group);
    while (done < end) {
      while (split_after(worker) <= done) ++worker;
      const std::int64_t stop = std::min(end, split_after(worker));
      const bool empty = lengths.of(row_group) == 0;
      shares[static_cast<std::size_t>(worker)].push_back(
          {row_group, empty ? 0 : static_cast<std::int32_t>(done - first),
           empty ? 0 : static_cast<std::int32_t>(stop - first)});
      done = stop;
    }
  }
  return shares;
}

}  // namespace

RowGroupShares share_row_groups(const RowGroupLengths& lengths, std::int32_t workers, std::int64_t saves,
                                std::int64_t rounds) {
  if (lengths.total() == 0) return RowGroupShares(1);
  // At most 5 %, or so many steps in each round, above the mean after so many.
  const auto balanced = [&](const RowGroupShares& shares, std::int64_t above, std::int64_t after) {
    const auto count = static_cast<std::int64_t>(shares.size());
    const std::int64_t most = most_after_rounds(shares, after) * count;
    const std::int64_t all = lengths.total() * after;
    return 100 * most <= kBalanced * all || most <= all + above * after * count;
  };
  const std::int64_t useful =
      std::max<std::int64_t>(lengths.row_groups(), lengths.total() / kStepsWorthSplitting);
  workers = static_cast<std::int32_t>(std::min<std::int64_t>(workers, useful));
  RowGroupShares shares = contiguous(lengths, workers);
  if (!balanced(shares, 0, 1)) shares = evenly(lengths, workers);
  if (rounds > 1) put_most_first(shares);
  return balanced(shares, saves, rounds) ? shares : split_evenly(lengths, workers);
}

}  // namespace sparsekiln

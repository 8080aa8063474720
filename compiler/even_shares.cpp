#include "compiler/even_shares.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <utility>

namespace sparsekiln {
namespace {

using Shares = std::vector<std::vector<std::int32_t>>;

constexpr std::size_t kMostExchanged = 512;

std::int64_t cost_of(std::span<const std::int64_t> costs, std::int32_t piece) {
  return costs[static_cast<std::size_t>(piece)];
}

Shares longest_first(std::span<const std::int64_t> costs, std::int32_t workers) {
  std::vector<std::int32_t> order(costs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return cost_of(costs, a) > cost_of(costs, b); });
  using Load = std::pair<std::int64_t, std::int32_t>;  // cost so far, worker; the smallest on top
  std::vector<Load> heap;
  for (std::int32_t worker = 0; worker < workers; ++worker) heap.emplace_back(0, worker);
  Shares shares(static_cast<std::size_t>(workers));
  for (const std::int32_t piece : order) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>{});
    auto& [load, worker] = heap.back();
    shares[static_cast<std::size_t>(worker)].push_back(piece);
    load += cost_of(costs, piece);
    std::push_heap(heap.begin(), heap.end(), std::greater<>{});
  }
  return shares;
}

/// The exchange that leaves the greater share of the two least.
struct Exchange {
  std::int64_t greater;
  std::int32_t* given = nullptr;
  std::int32_t* taken = nullptr;
  std::size_t by = 0;  ///< the worker that gives `taken`
};

Exchange best_exchange(std::span<const std::int64_t> costs, Shares& shares,
                       const std::vector<std::int64_t>& loads, std::size_t most) {
  Exchange best{loads[most]};
  for (std::size_t other = 0; other < shares.size(); ++other)
    for (std::int32_t& given : shares[most])
      for (std::int32_t& taken : shares[other]) {
        const std::int64_t less = cost_of(costs, given) - cost_of(costs, taken);
        const std::int64_t greater = std::max(loads[most] - less, loads[other] + less);
        if (greater < best.greater) best = {greater, &given, &taken, other};
      }
  return best;
}

void exchange(std::span<const std::int64_t> costs, Shares& shares) {
  std::vector<std::int64_t> loads;
  for (const auto& share : shares)
    loads.push_back(
        std::accumulate(share.begin(), share.end(), std::int64_t{0},
                        [&](std::int64_t sum, std::int32_t piece) { return sum + cost_of(costs, piece); }));
  const std::int64_t total = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
  const auto workers = static_cast<std::int64_t>(shares.size());
  const std::int64_t least = (total + workers - 1) / workers;
  for (;;) {
    const auto most = static_cast<std::size_t>(std::max_element(loads.begin(), loads.end()) - loads.begin());
    if (loads[most] <= least) return;
    const Exchange best = best_exchange(costs, shares, loads, most);
    if (best.given == nullptr) return;
    const std::int64_t less = cost_of(costs, *best.given) - cost_of(costs, *best.taken);
    loads[most] -= less;
    loads[best.by] += less;
    std::swap(*best.given, *best.taken);
  }
}

}  // namespace

Shares even_shares(std::span<const std::int64_t> costs, std::int32_t workers) {
  Shares shares = longest_first(costs, workers);
  if (costs.size() <= kMostExchanged) exchange(costs, shares);
  for (auto& share : shares) std::sort(share.begin(), share.end());
  return shares;
}

std::int64_t most_after_rounds(std::span<const std::int64_t> costs, std::int64_t rounds) {
  std::int64_t most = 0;
  for (std::size_t cta = 0; cta < costs.size(); ++cta)
    most = std::max(most, (rounds + 1) / 2 * costs[cta] + rounds / 2 * costs[costs.size() - 1 - cta]);
  return most;
}

}  // namespace sparsekiln

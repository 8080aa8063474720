#include "compiler/even_shares.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <doctest/doctest.h>

namespace sparsekiln {
namespace {

using Costs = std::vector<std::int64_t>;

std::vector<std::int64_t> loads(const Costs& costs, const std::vector<std::vector<std::int32_t>>& shares) {
  std::vector<std::int64_t> sums;
  for (const auto& share : shares)
    sums.push_back(std::accumulate(
        share.begin(), share.end(), std::int64_t{0},
        [&](std::int64_t sum, std::int32_t piece) { return sum + costs[static_cast<std::size_t>(piece)]; }));
  return sums;
}

std::int64_t largest(const Costs& costs, std::int32_t workers) {
  return std::ranges::max(loads(costs, even_shares(costs, workers)));
}

TEST_CASE("even shares: exchanges better what longest first leaves uneven") {
  // Longest first gives 3 + 2 + 2 and 3 + 2.
  CHECK(largest({3, 3, 2, 2, 2}, 2) == 6);
  CHECK(even_shares(Costs{3, 3, 2, 2, 2}, 2) == std::vector<std::vector<std::int32_t>>{{2, 3, 4}, {0, 1}});
}

TEST_CASE("even shares: a piece is one worker's, and the largest share is at most that of longest first") {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    const auto count = 1 + random() % 90;
    const auto workers = static_cast<std::int32_t>(1 + random() % 20);
    Costs costs(count);
    for (std::int64_t& cost : costs) cost = 1 + random() % 30;
    const auto shares = even_shares(costs, workers);
    REQUIRE(std::ssize(shares) == workers);
    std::vector<std::int32_t> all;
    for (const auto& share : shares) {
      CHECK(std::ranges::is_sorted(share));
      all.insert(all.end(), share.begin(), share.end());
    }
    std::ranges::sort(all);
    std::vector<std::int32_t> pieces(count);
    std::iota(pieces.begin(), pieces.end(), 0);
    CHECK(all == pieces);

    Costs sorted = costs;
    std::ranges::sort(sorted, std::greater<>());
    std::vector<std::int64_t> longest_first(static_cast<std::size_t>(workers), 0);
    for (const std::int64_t cost : sorted) *std::ranges::min_element(longest_first) += cost;
    CHECK(std::ranges::max(loads(costs, shares)) <= std::ranges::max(longest_first));
  }
}

TEST_CASE("even shares: row groups of three block rows leave no worker 3 % above the mean") {
  // As of a layer with 75 row groups, which 16 workers share: longest first leaves one 6 % above it.
  std::mt19937 random(7);
  std::binomial_distribution<int> length(192, 0.1);
  for (int round = 0; round < 20; ++round) {
    Costs costs(75);
    for (std::int64_t& cost : costs) cost = std::max(length(random), 1);
    const std::int64_t total = std::accumulate(costs.begin(), costs.end(), std::int64_t{0});
    CHECK(100 * 16 * largest(costs, 16) <= 103 * total);
  }
}

TEST_CASE("after rounds in which CTAs change places, one with much of the first has little of the second") {
  const Costs costs{9, 6, 5, 4};
  CHECK(most_after_rounds(costs, 1) == 9);
  CHECK(most_after_rounds(costs, 2) == 9 + 4);
  CHECK(most_after_rounds(costs, 3) == 9 + 4 + 9);
  CHECK(most_after_rounds(Costs{7}, 3) == 21);
  CHECK(most_after_rounds({}, 2) == 0);
}

}  // namespace
}  // namespace sparsekiln

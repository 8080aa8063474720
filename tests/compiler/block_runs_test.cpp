#include "compiler/block_runs.h"

#include <doctest/doctest.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include <algorithm>
#include <set>
#include <vector>

#include "compiler/spmm.h"

using namespace sparsekiln;

namespace {

Problem a_problem(const Layout& layout, bool bias = false) {
  Problem problem;
  problem.operation = Operation::grad_weight;
  problem.layout = layout;
  problem.block = {16, 32};
  problem.bias_gradient = bias;
  return problem;
}

Sddmm problem_of(const Layout& layout, bool bias = false) { return Sddmm(a_problem(layout, bias)); }

Config width(std::int32_t rows) {
  Config config;
  config.rows = rows;
  return config;
}

Layout skewed() {
  std::vector<std::uint8_t> mask(40 * 30);
  for (std::size_t row = 0; row < 40; ++row)
    for (std::size_t col = 0; col < 30; ++col)
      mask[row * 30 + col] = row % 7 != 3 && (row < 2 || (row * 5 + col * 3) % 11 == 0) ? 1 : 0;
  return Layout::from_mask(40, 30, mask);
}

const Layout kEmptyRows = Layout::from_mask(3, 2, std::vector<std::uint8_t>{0, 0, 1, 1, 0, 0});

std::int64_t largest_cost(const BlockRuns& runs) {
  std::int64_t largest = 0;
  for (std::int32_t worker = 0; worker < runs.workers(); ++worker) {
    std::int64_t cost = 0;
    for (const BlockRun& run : runs.runs_of(worker)) cost += cost_of(run);
    largest = std::max(largest, cost);
  }
  return largest;
}

}  // namespace

TEST_CASE("every present block is in one run of its own block row") {
  const Layout layout = skewed();
  for (const std::int32_t rows : {1, 2, 4, 8}) {
    const BlockRuns runs = make_block_runs(problem_of(layout), Target::parse("sm_90:5"), width(rows));
    CHECK(static_cast<std::int64_t>(runs.runs.size()) <= run_bound(problem_of(layout), rows));
    std::set<std::int32_t> seen;
    for (const BlockRun& run : runs.runs) {
      CHECK(run.blocks >= 1);
      CHECK(run.blocks <= rows);
      const std::int32_t begin = layout.crow()[static_cast<std::size_t>(run.row)];
      CHECK(run.first >= begin);
      CHECK(run.first_of_row == (run.first == begin));
      CHECK(run.first + run.blocks <= layout.crow()[static_cast<std::size_t>(run.row) + 1]);
      for (std::int32_t block = run.first; block < run.first + run.blocks; ++block)
        CHECK(seen.insert(block).second);
    }
    CHECK(static_cast<std::int64_t>(seen.size()) == layout.blocks());
  }
}

TEST_CASE("no worker has more than a third above the mean and one run") {
  for (const std::int32_t workers : {1, 2, 3, 7, 30}) {
    Target target = Target::parse("sm_90:1");
    target.workers = workers;
    const BlockRuns runs = make_block_runs(problem_of(skewed()), target, width(4));
    CHECK(runs.workers() == std::min<std::int64_t>(workers, static_cast<std::int64_t>(runs.runs.size())));
    std::int64_t total = 0;
    for (const BlockRun& run : runs.runs) total += cost_of(run);
    CHECK(3 * largest_cost(runs) * runs.workers() <= 4 * (total + 5 * runs.workers()));
    for (std::int32_t worker = 0; worker < runs.workers(); ++worker) CHECK(!runs.runs_of(worker).empty());
  }
}

TEST_CASE("rows without blocks have a run only where a bias wants their sums") {
  const Target target = Target::parse("sm_90:1");
  CHECK(make_block_runs(problem_of(kEmptyRows), target, width(4)).runs ==
        std::vector<BlockRun>{{1, 0, 2, true}});
  CHECK(make_block_runs(problem_of(kEmptyRows, true), target, width(4)).runs ==
        std::vector<BlockRun>{{0, 0, 0, true}, {1, 0, 2, true}, {2, 2, 0, true}});
}

TEST_CASE("a layout without blocks has one worker, which has nothing to do") {
  const BlockRuns runs = make_block_runs(problem_of(Layout()), Target::parse("sm_90:8"), width(4));
  CHECK(runs.workers() == 1);
  CHECK(runs.runs_of(0).empty());
}

TEST_CASE("runs depend on nothing but the gradient, the workers and the config") {
  const Target target = Target::parse("sm_90:7");
  CHECK(make_block_runs(problem_of(skewed()), target, width(2)) ==
        make_block_runs(problem_of(skewed()), target, width(2)));
  CHECK_THROWS_AS(static_cast<void>(make_block_runs(problem_of(skewed()), target, width(0))), Error);
}

TEST_CASE("the gradient of the weight is no product with it, and products are no gradient of it") {
  Problem problem = a_problem(kEmptyRows);
  CHECK(Sddmm(problem).out_features() == 48);
  CHECK(Sddmm(problem).in_features() == 64);
  CHECK_THROWS_AS(Spmm{problem}, Error);
  problem.operation = Operation::grad_input;
  CHECK_THROWS_AS(Sddmm{problem}, Error);
}

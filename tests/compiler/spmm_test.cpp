#include "compiler/spmm.h"

#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "compiler/schedule.h"

namespace sparsekiln {
namespace {

Problem problem_of(Operation operation) {
  Problem problem;
  problem.operation = operation;
  problem.layout = patterns::random(7, 11, 0.4, 3);
  problem.block = {8, 32};
  problem.batch = 64;
  return problem;
}

TEST_CASE("the forward product does not transpose the weight") {
  const Problem problem = problem_of(Operation::forward);
  const Spmm product(problem);
  CHECK(product.layout == problem.layout);
  CHECK(product.block == problem.block);
  CHECK_FALSE(product.by_columns());
  CHECK(product.block_of_weight(5) == 5);
}

TEST_CASE("the gradient of the input is a product with the transposed weight, whose blocks stay in place") {
  const Problem problem = problem_of(Operation::grad_input);
  const Spmm product(problem);
  CHECK(product.by_columns());
  CHECK(product.block == BlockShape{32, 8});
  CHECK(product.in_features() == problem.out_features());
  CHECK(product.out_features() == problem.in_features());
  CHECK(product.layout.blocks() == problem.layout.blocks());
  std::int32_t block = 0;
  for (std::int32_t row = 0; row < product.layout.rows(); ++row)
    for (const std::int32_t col : product.layout.row(row)) {
      const std::int32_t number = product.block_of_weight(block++);
      CHECK(problem.layout.col()[static_cast<std::size_t>(number)] == row);
      CHECK(number >= problem.layout.crow()[static_cast<std::size_t>(col)]);
      CHECK(number < problem.layout.crow()[static_cast<std::size_t>(col) + 1]);
    }
}

TEST_CASE("the gradient of the weight is no product with a sparse matrix") {
  CHECK_THROWS_AS(Spmm(problem_of(Operation::grad_weight)), Error);
}

TEST_CASE("a schedule of the gradient of the input has every block of the weight once") {
  const Problem problem = problem_of(Operation::grad_input);
  const Target target = Target::parse("sm_90:5");
  for (const std::int32_t rows : {1, 2, 4}) {
    Config config;
    config.rows = rows;
    const Schedule schedule = make_schedule(problem, target, config, 64);
    std::vector<int> seen(static_cast<std::size_t>(problem.layout.blocks()), 0);
    for (const Step& step : schedule.steps)
      for (const std::int32_t block : step.block)
        if (block >= 0) {
          ++seen[static_cast<std::size_t>(block)];
          const std::int32_t column = schedule.rows_of_tile(step.output())[0];
          CHECK(problem.layout.col()[static_cast<std::size_t>(block)] == column);
        }
    for (const int times : seen) CHECK(times == 1);
  }
}

}  // namespace
}  // namespace sparsekiln

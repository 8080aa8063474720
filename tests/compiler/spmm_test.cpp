#include "compiler/spmm.h"

#include <string>
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

TEST_CASE("a product that is normalised ends in its sums, and has a residual where it is a gradient") {
  Problem problem = problem_of(Operation::forward);
  problem.layout = patterns::random(8, 11, 0.4, 3);
  problem.epilogue = parse_epilogue("layer_norm+multiply+lstm");
  const Spmm forward(problem);
  REQUIRE(forward.normalisation);
  CHECK(*forward.normalisation == problem.epilogue);
  CHECK(forward.epilogue == Epilogue{});
  CHECK(forward.weights() == 1);
  CHECK(forward.groups_of_sums() == 4);
  CHECK(forward.layout == problem.layout);
  CHECK(forward.y_features() == problem.out_features());
  problem.operation = Operation::grad_input;
  problem.epilogue.residual = true;
  const Spmm gradient(problem);
  CHECK(gradient.epilogue == Epilogue{.residual = true});
  CHECK(gradient.y_features() == problem.in_features());
  CHECK_FALSE(gradient.has_sums_in_workspace());
  problem.epilogue = parse_epilogue("layer_norm+relu");
  CHECK(Spmm(problem).groups_of_sums() == 1);
  problem.epilogue = parse_epilogue("scale");
  CHECK_FALSE(Spmm(problem).normalisation);
}

TEST_CASE("the gradient of a product that is normalised has sums of float32, whatever its result") {
  Problem problem = problem_of(Operation::forward);
  problem.dtype = problem.out_dtype = DType::bf16;
  problem.epilogue = parse_epilogue("layer_norm");
  CHECK(Spmm(problem).out_dtype == DType::bf16);
  problem.operation = Operation::grad_input;
  const Spmm gradient(problem);
  CHECK(gradient.out_dtype == DType::f32);
  CHECK(gradient.result_dtype == DType::bf16);
  CHECK(gradient.has_sums_in_workspace());
  const std::int64_t bytes = gradient.bytes_of_sums(4);
  CHECK(bytes >= 4 * 4 * problem.in_features());
  CHECK(bytes < 4 * 4 * problem.in_features() + 64);
  CHECK(bytes % 64 == 0);
  problem.out_dtype = DType::f32;
  CHECK_FALSE(Spmm(problem).has_sums_in_workspace());
  CHECK(Spmm(problem).bytes_of_sums(4) == 0);
}

/// 2 × 2 blocks, of which 3 are present.
Problem convolution_of(const std::string& text, Operation operation) {
  Problem problem;
  problem.operation = operation;
  problem.layout = Layout::from_mask(2, 2, std::vector<std::uint8_t>{1, 1, 0, 1});
  problem.block = {8, 32};
  problem.convolution = parse_convolution(text);
  validate(problem);
  return problem;
}

std::vector<std::int32_t> row_of(const Layout& layout, std::int32_t row) {
  return {layout.row(row).begin(), layout.row(row).end()};
}

TEST_CASE("a transposed convolution is by columns forward, and its gradient is not") {
  const std::string text = "kernel=2 stride=2 transposed input=5";
  const Problem problem = convolution_of(text, Operation::forward);
  CHECK(problem.in_features() == 16);
  CHECK(problem.out_features() == 64);
  const Spmm forward(problem);
  CHECK(forward.by_columns());
  CHECK(forward.block == BlockShape{32, 8});
  CHECK(forward.weight_block() == problem.block);
  CHECK(forward.in_features() == 16);
  CHECK(forward.out_features() == 64);
  CHECK(forward.x_rows(3) == 15);
  CHECK(forward.y_rows(3) == 30);
  const Spmm gradient(convolution_of(text, Operation::grad_input));
  CHECK_FALSE(gradient.by_columns());
  CHECK(gradient.block == problem.block);
  CHECK(gradient.in_features() == 64);
  CHECK(gradient.out_features() == 16);
  CHECK(gradient.layout == gradient.weight);
}

TEST_CASE("the weight of a convolution has a block for each tap that a block has, in their order") {
  const Spmm shared(convolution_of("kernel=3 input=5 taps=101", Operation::forward));
  CHECK(shared.layout.cols() == 6);
  CHECK(row_of(shared.layout, 0) == std::vector<std::int32_t>{0, 2, 3, 5});
  CHECK(row_of(shared.layout, 1) == std::vector<std::int32_t>{3, 5});
  const Spmm each(convolution_of("kernel=3 input=5 taps=100000011", Operation::forward));
  CHECK(row_of(each.layout, 0) == std::vector<std::int32_t>{0});
  CHECK(row_of(each.layout, 1) == std::vector<std::int32_t>{4, 5});
}

TEST_CASE("by columns each step names the block of the weight that its block and tap have") {
  const std::string masked = "kernel=3 input=5 taps=110001011";
  const Spmm product(convolution_of(masked, Operation::grad_input));
  // W's blocks: taps 0 and 1 of (0, 0), tap 2 of (0, 1), taps 1 and 2 of (1, 1).
  CHECK(product.weight.blocks() == 5);
  CHECK(row_of(product.layout, 0) == std::vector<std::int32_t>{0, 1});
  CHECK(row_of(product.layout, 1) == std::vector<std::int32_t>{2, 4, 5});
  CHECK(product.numbers == std::vector<std::int32_t>{0, 1, 2, 3, 4});
  const Spmm classes(convolution_of(masked + " stride=2", Operation::grad_input));
  // Taps 0 and 2 reach even positions, tap 1 odd ones.
  REQUIRE(classes.layout.rows() == 4);
  CHECK(row_of(classes.layout, 0) == std::vector<std::int32_t>{0});
  CHECK(row_of(classes.layout, 1) == std::vector<std::int32_t>{2, 5});
  CHECK(row_of(classes.layout, 2) == std::vector<std::int32_t>{1});
  CHECK(row_of(classes.layout, 3) == std::vector<std::int32_t>{4});
  CHECK(classes.numbers == std::vector<std::int32_t>{0, 2, 4, 1, 3});
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

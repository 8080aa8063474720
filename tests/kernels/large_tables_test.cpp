#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/patterns.h>

#include "autotune/default_plan.h"
#include "oracle/sddmm_check.h"
#include "runtime/resident_sddmm.h"
#include "tests/kernels/suite.h"
#include "tests/kernels/table.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

// Layouts whose tables are too large for the source of a kernel: they are data beside its code.

namespace {

bool on_cuda() { return Suite::current().device()->target().kind == Target::Kind::cuda; }

/// 8 × 8 blocks, 576 in each block row: 36 KB of steps.
Layout large_layout(std::uint64_t seed = 1) { return patterns::balanced_random(8, 640, 0.9, seed); }

/// Empty, or what is wrong.
std::string judge_gradient(const Kernel& kernel, const Problem& problem) {
  const Sddmm gradient(problem);
  const SddmmInputs inputs =
      make_inputs(gradient, {.n = problem.batch.bound(), .pairs = 1}, Inputs::small_integers, 1);
  SddmmOutputs outputs(gradient, inputs);
  ResidentSddmm operands(gradient, Suite::current().device(), inputs, outputs);
  kernel(operands[0]);
  Suite::current().device()->synchronize();
  operands.fetch(outputs);
  return check(gradient, inputs, outputs, adder_of(gradient.ieee(), kernel.binary().plan)).first_failure;
}

std::string judge(const Kernel& kernel, const Problem& problem) {
  if (kernel.binary().data.empty()) return "its tables are in the code";
  if (problem.operation == Operation::grad_weight) return judge_gradient(kernel, problem);
  for (const std::int64_t n : {problem.batch.bound(), std::int64_t{1}}) {
    if (n < problem.batch.bound() && !problem.batch.dynamic()) break;
    const CheckResult result =
        launch_and_check(kernel, problem, make_inputs(problem, n, Inputs::small_integers, 3));
    if (!result.ok) return result.first_failure;
  }
  return {};
}

struct Case {
  Operation operation;
  Precision precision;
  Batch batch;
  std::string config;  ///< empty: the default one, for a fixed batch with its table in global memory
};

std::vector<Case> cases() {
  const Batch up_to = Batch::up_to(17);
  const std::string rows = "simt tile_n=16 tile_out=2 stages=2 warps=1 split=2 rows=2 merge=1 table=global";
  const std::string merged = "mma tile_n=16 tile_out=0 stages=2 warps=2 split=2 rows=1 merge=2 table=global";
  return {{Operation::forward, {DType::f32}, 9, {}},        {Operation::forward, {DType::f16}, up_to, {}},
          {Operation::forward, {DType::f32}, 16, rows},     {Operation::forward, {DType::f16}, 16, merged},
          {Operation::grad_input, {DType::f32}, up_to, {}}, {Operation::grad_input, {DType::f16}, 16, {}},
          {Operation::grad_weight, {DType::f32}, 9, {}},    {Operation::grad_weight, {DType::f16}, 16, {}}};
}

Options options_of(const Case& one) {
  Options options = Suite::current().options({8, 8}, one.batch, one.precision);
  options.operation = one.operation;
  options.target = Suite::current().target_with(12);  // more than block rows: they are split
  if (!one.config.empty()) {
    options.config = parse_config(one.config);
  } else if (!one.batch.dynamic()) {
    const Problem problem = make_problem(large_layout(), options);
    options.config = choose_plan(problem, resolve_target(options.target)).front().config;
    options.config->table = TableForm::global;
  }
  return options;
}

}  // namespace

TEST_CASE("kernels with tables beside their code are right") {
  if (!on_cuda()) return;
  std::vector<Part> parts;
  for (const Case& one : cases()) {
    const Layout layout = large_layout();
    const Options options = options_of(one);
    const Problem problem = make_problem(layout, options);
    parts.push_back({fmt::format("{}, {}, batch {}, {}", name(one.operation), one.precision.to_string(),
                                 to_string(one.batch), one.config),
                     layout, options, [=] { return judge(compile(layout, options), problem); }});
  }
  run_table(parts);
}

TEST_CASE("a kernel with tables beside its code is right where the driver compiles its PTX") {
  if (!on_cuda()) return;
  for (const Operation operation : {Operation::forward, Operation::grad_weight}) {
    const Options options = options_of({operation, {DType::f32}, 9, {}});
    const Layout layout = large_layout();
    Binary binary = compile(layout, options).binary();
    binary.code.clear();
    const Kernel kernel = load(std::make_shared<const Binary>(binary), options.target);
    CHECK(judge(kernel, make_problem(layout, options)) == "");
  }
}

TEST_CASE("kernels of the same code, each with tables of its own, are right while both are loaded") {
  if (!on_cuda()) return;
  const Options options = options_of({Operation::forward, {DType::f32}, Batch::up_to(17), {}});
  const Kernel one = compile(large_layout(1), options);
  const Kernel other = compile(large_layout(2), options);
  CHECK(one.binary().code == other.binary().code);
  CHECK(one.binary().data != other.binary().data);
  CHECK(judge(one, make_problem(large_layout(1), options)) == "");
  CHECK(judge(other, make_problem(large_layout(2), options)) == "");
  CHECK(judge(one, make_problem(large_layout(1), options)) == "");
}

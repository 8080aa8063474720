#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "autotune/default_plan.h"
#include "tests/kernels/layouts.h"
#include "tests/kernels/suite.h"
#include "tests/kernels/table.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

// Forms of the table that the covering array leaves out: not every layout has them.

TEST_CASE("unrolled kernels with few chunks are right" * doctest::test_suite("tables")) {
  if (Suite::current().device()->target().kind != Target::Kind::cuda) return;
  int compiled = 0;
  std::vector<Part> parts;
  for (const Precision& precision : Suite::current().precisions())
    for (const NamedLayout& named : test_layouts())
      for (const std::int32_t workers : {1, 5}) {
        const Layout layout = named.make();
        Options options = Suite::current().options({32, 16}, 19, precision);
        options.target = Suite::current().target_with(workers);
        const Problem problem = make_problem(layout, options);
        options.config =
            parse_config(problem.ieee() ? "simt tile_n=32 tile_out=2 stages=2 warps=4 table=unrolled"
                                        : "mma tile_n=32 stages=2 warps=2 table=unrolled");
        const auto run = [&compiled, layout, options, problem]() -> std::string {
          try {
            const Kernel kernel = compile(layout, options);
            ++compiled;
            return launch_and_check(kernel, problem, make_inputs(problem, 19, Inputs::small_integers, 3))
                .first_failure;
          } catch (const Error& error) {
            const std::string said = error.what();
            return said.find("table=constant would work") == said.npos ? said : "";
          }
        };
        parts.push_back({fmt::format("{}, layout {}, {} workers", precision.to_string(), named.name, workers),
                         layout, options, run});
      }
  if (run_table(parts) == parts.size()) CHECK(compiled >= 6);
}

TEST_CASE("tensor-core kernels whose stages hold half a block are right by rows and by columns") {
  const Target target = Suite::current().device()->target();
  if (target.kind != Target::Kind::cuda || target.compute_capability() < 80) return;
  for (const Operation operation : {Operation::forward, Operation::grad_input})
    for (const ActivationOrder order : {ActivationOrder::batch_major, ActivationOrder::feature_major})
      for (const char* operand : {"x", "w"}) {
        const Layout layout = patterns::random(3, 4, 0.5, 5);
        Options options = Suite::current().options({128, 128}, 128, {DType::f16});
        options.operation = operation;
        options.order = order;
        // Eight stages of whole blocks are more than the shared memory of an SM.
        options.config = parse_config(fmt::format(
            "mma tile_n=128 tile_out=0 stages=8 warps=8 split=1 rows=1 merge=1 table=constant operand_a={}",
            operand));
        const Problem problem = make_problem(layout, options);
        const CheckResult check_result = launch_and_check(
            compile(layout, options), problem, make_inputs(problem, 128, Inputs::small_integers, 3));
        CAPTURE(name(operation));
        CAPTURE(name(order));
        CHECK_MESSAGE(check_result.ok, check_result.first_failure);
      }
}

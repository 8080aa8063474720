#include <doctest/doctest.h>

#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "autotune/cost_model.h"
#include "tests/kernels/layouts.h"
#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

// Forms of the table that the covering array leaves out: not every layout has them.

TEST_CASE("unrolled kernels of short work are right") {
  if (Suite::current().device()->target().kind != Target::Kind::cuda) return;
  int compiled = 0;
  for (const Precision& precision : Suite::current().precisions())
    for (const NamedLayout& named : test_layouts())
      for (const std::int32_t workers : {1, 5}) {
        const Layout layout = named.make();
        Options options = Suite::current().options({32, 16}, 19, precision);
        options.target = Suite::current().target_with(workers);
        const Problem problem = make_problem(layout, options);
        Config config = choose_plan(problem, resolve_target(options.target)).front().config;
        config.table = TableForm::unrolled;
        config.split = 1;
        options.config = config;
        CAPTURE(precision.to_string());
        CAPTURE(named.name);
        CAPTURE(workers);
        try {
          const Kernel kernel = compile(layout, options);
          const HostInputs inputs = make_inputs(problem, 19, Inputs::small_integers, 3);
          CHECK(launch_and_check(kernel, problem, inputs).ok);
          ++compiled;
        } catch (const Error& error) {
          REQUIRE(std::string_view(error.what()).find("table=constant would work") != std::string_view::npos);
        }
      }
  CHECK(compiled >= 8);
}

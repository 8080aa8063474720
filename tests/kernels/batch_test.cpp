#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <sparsekiln/patterns.h>

#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

Layout awkward() {
  const std::vector<std::uint8_t> mask = {0, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0};
  return Layout::from_mask(5, 4, mask);
}

}  // namespace

TEST_CASE("one kernel serves any batch up to its bound, a different one at each call, also an empty one") {
  // If pairs replace all combinations, a kernel has a third of the calls: any two of precision, block and
  // call occur together.
  constexpr std::array<std::int64_t, 13> kCalls{64, 1, 0, 129, 7, 33, 128, 2, 0, 17, 127, 65, 1};
  const std::size_t share = Suite::current().only_pairs() ? 3 : 1;
  std::size_t turn = 0;
  for (const Precision& precision : Suite::current().precisions()) {
    ++turn;
    for (const BlockShape block : {BlockShape{8, 8}, BlockShape{32, 32}, BlockShape{16, 64}}) {
      ++turn;
      const Options options = Suite::current().options(block, Batch::up_to(129), precision);
      const Kernel kernel = compile(awkward(), options);
      const Problem problem = make_problem(awkward(), options);
      std::uint64_t seed = 0;
      for (std::size_t call = turn % share; call < kCalls.size(); call += share) {
        const std::int64_t n = kCalls[call];
        const HostInputs inputs = make_inputs(problem, n, Inputs::small_integers, ++seed);
        const CheckResult check_result = launch_and_check(kernel, problem, inputs);
        CAPTURE(to_string(block));
        CAPTURE(precision.to_string());
        CAPTURE(n);
        CHECK_MESSAGE(check_result.ok, check_result.first_failure);
      }
    }
  }
}

TEST_CASE("a dynamic batch is right if rows are split, whatever batch came before") {
  for (const Precision& precision : Suite::current().precisions()) {
    if (!Suite::splits_rows(precision)) continue;
    Options options = Suite::current().options({32, 32}, Batch::up_to(100), precision);
    options.target = Suite::current().target_with(132);
    const Layout layout = patterns::random(3, 64, 0.6, 7);
    const Kernel kernel = compile(layout, options);
    const Problem problem = make_problem(layout, options);
    CAPTURE(precision.to_string());
    CHECK(kernel.workspace_bytes(100) > 0);  // otherwise no row is split, and this tests little
    for (const std::int64_t n : {100, 1, 33, 100, 8, 0, 64}) {
      const CheckResult check_result =
          launch_and_check(kernel, problem, make_inputs(problem, n, Inputs::small_integers, 3), 8);
      CAPTURE(n);
      CHECK_MESSAGE(check_result.ok, check_result.first_failure);
    }
  }
}

TEST_CASE("a fixed batch of zero compiles and does nothing") {
  for (const Precision& precision : Suite::current().precisions()) {
    const Options options = Suite::current().options({32, 32}, 0, precision);
    const Kernel kernel = compile(awkward(), options);
    const Problem problem = make_problem(awkward(), options);
    CAPTURE(precision.to_string());
    CHECK(launch_and_check(kernel, problem, make_inputs(problem, 0, Inputs::random, 1)).ok);
  }
}

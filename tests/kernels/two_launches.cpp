#include "tests/kernels/two_launches.h"

#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include "tests/kernels/suite.h"

namespace sparsekiln::test {

std::string failure_of_two(const Kernel& kernel, const Problem& problem, const TestLaunchShape& shape,
                           Inputs inputs) {
  const auto launch = make_test_launch(problem, shape, inputs, 5);
  std::vector<std::byte> first;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string seed = Suite::current().take_seed(i);
    const auto operands = launch->place(kernel, Suite::current().device());
    operands->launch(kernel);
    Suite::current().device()->synchronize();
    std::vector<std::byte> image;
    const CheckResult result = operands->judge(kernel.binary().plan, &image);
    if (!result.ok) return fmt::format("{} {}", result.first_failure, seed);
    if (i == 1 && image != first) return fmt::format("other bits than before {}", seed);
    first = image;
  }
  return "";
}
std::string failure_of_two(const Layout& layout, const Options& options, const TestLaunchShape& shape,
                           Inputs inputs) {
  return failure_of_two(compile(layout, options), make_problem(layout, options), shape, inputs);
}

}  // namespace sparsekiln::test

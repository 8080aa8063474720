#include "bench/check_kernel.h"

#include <fmt/format.h>

#include "runtime/open_device.h"
#include "runtime/test_launch.h"

namespace sparsekiln::bench {

void check_kernel(const Layout& layout, const Options& options, const Kernel& kernel) {
  const Problem problem = make_problem(layout, options);
  const auto test_launch = make_test_launch(problem, {.n = options.batch.bound()}, Inputs::random, 1);
  const auto launched = test_launch->place(kernel, open_device_for(kernel.binary().target, options.target));
  launched->launch(kernel);
  const CheckResult check_result = launched->judge(kernel.binary().plan, nullptr);
  if (!check_result.ok)
    throw Error(ErrorKind::internal,
                fmt::format("{} is wrong: {}", name(options.operation), check_result.first_failure));
}

}  // namespace sparsekiln::bench

#include "tests/kernels/attached_check.h"

#include "runtime/build_job.h"
#include "runtime/test_launch.h"
#include "tests/kernels/suite.h"

namespace sparsekiln::test {

CheckResult judged(const Kernel& kernel, const Problem& problem, std::int64_t n, Inputs kind,
                   std::vector<std::byte>* image) {
  const auto launch = make_test_launch(problem, {.n = n}, kind, 5);
  const auto operands = launch->place(kernel, Suite::current().device());
  operands->launch(kernel);
  Suite::current().device()->synchronize();
  return operands->judge(kernel.binary().plan, image);
}

std::string attached_failure(const Kernel& attached, const Layout& layout, Options options, std::int64_t n) {
  const Problem problem = make_problem(layout, options);
  if (const CheckResult exact = judged(attached, problem, n, Inputs::small_integers); !exact.ok)
    return exact.first_failure;
  std::vector<std::byte> image;
  if (const CheckResult result = judged(attached, problem, n, Inputs::random, &image); !result.ok)
    return result.first_failure;
  options.specialization = Specialization::tiered;
  const Kernel baked = compile(layout, options);
  baked.wait();
  std::vector<std::byte> of_baked;
  (void)judged(baked, problem, n, Inputs::random, &of_baked);
  if (baked.tier() != Tier::baked) return "no baked kernel";
  if (image != of_baked) return "other bits than baked";
  const bool same_workspace = baked.workspace_bytes(n) == attached.workspace_bytes(n);
  return same_workspace || Suite::current().on_cpu() ? "" : "another workspace than baked";
}

}  // namespace sparsekiln::test

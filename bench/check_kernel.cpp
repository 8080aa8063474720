#include "bench/check_kernel.h"

#include <fmt/format.h>

#include "runtime/device.h"
#include "runtime/trial.h"

namespace sparsekiln::bench {

void check_kernel(const Layout& layout, const Options& options, const Kernel& kernel) {
  const Problem problem = make_problem(layout, options);
  const auto trial = make_trial(problem, {.n = options.batch.bound()}, Inputs::random, 1);
  const bool on_cpu = kernel.binary().target.kind == Target::Kind::cpu;
  const auto launched = trial->place(kernel, open_device(on_cpu ? "cpu" : options.target));
  launched->launch(kernel);
  const Verdict verdict = launched->judge(kernel.binary().plan, nullptr);
  if (!verdict.ok)
    throw Error(ErrorKind::internal,
                fmt::format("{} is wrong: {}", name(options.operation), verdict.first_failure));
}

}  // namespace sparsekiln::bench

#include "tests/counters/default_launch.h"

#include <memory>
#include <utility>

#include <doctest/doctest.h>

#include "autotune/default_plan.h"
#include "runtime/build_job.h"
#include "runtime/open_device.h"
#include "runtime/test_launch.h"
#include "tests/temporary_folder.h"

namespace sparsekiln::test {

bool DefaultLaunch::feeds(bool simt, const cuda::CountedLine& line) {
  return line.kind == "matrix_load" || (line.kind == "copy" && !simt) ||
         (line.kind == "memory_shared" && line.instruction.starts_with("ld."));
}

DefaultLaunch launch_once(const Layout& layout, Options options) {
  const TemporaryFolder folder;
  options.cache_dir = folder.path();
  Problem problem = make_problem(layout, options);
  Kernel kernel = compile(layout, options);
  const auto launch = make_test_launch(problem, {.n = problem.batch.bound()}, Inputs::small_integers, 1);
  const std::shared_ptr<const Device> device = open_device(options.target);
  const auto operands = launch->place(kernel, device);
  const cuda::Emulator emulator;
  emulator.reset_counters();
  operands->launch(kernel);
  device->synchronize();
  const CheckResult result = operands->judge(kernel.binary().plan, nullptr);
  CHECK_MESSAGE(result.ok, result.first_failure);
  const Config config = kernel.binary().plan.front().config;
  return {std::move(problem), std::move(kernel), config, emulator.counters()};
}

DefaultLaunch launch_default(const Layout& layout, Options options) {
  Config config = choose_plan(make_problem(layout, options), resolve_target(options.target)).front().config;
  config.table = TableForm::constant;
  options.config = config;
  return launch_once(layout, std::move(options));
}

}  // namespace sparsekiln::test

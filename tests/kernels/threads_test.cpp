#include <doctest/doctest.h>

#include <future>
#include <string>
#include <utility>
#include <vector>

#include <sparsekiln/patterns.h>

#include "runtime/test_launch.h"
#include "tests/kernels/suite.h"

// Kernels on threads that never accessed the device: no context is current there.

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

template <typename Work>
auto on_new_thread(Work work) {
  return std::async(std::launch::async, std::move(work)).get();
}

Options threads_options() {
  Options options = Suite::current().options({16, 32}, 33);
  options.cache_dir = Suite::current().scratch() / "threads";
  // More workers than rows, so that some rows are split and a workspace is needed.
  options.target = Suite::current().target_with(Suite::current().on_cpu() ? 7 : 132);
  return options;
}

Layout wide() { return patterns::random(4, 48, 0.7, 5); }

}  // namespace

TEST_CASE("a new thread launches a kernel that another one compiled, and creates the workspace") {
  const Options options = Suite::current().with_splits(threads_options(), wide());
  const Problem problem = make_problem(wide(), options);
  const HostInputs inputs = make_inputs(problem, 33, Inputs::small_integers, 4);
  const Kernel kernel = compile(wide(), options);
  CHECK(kernel.workspace_bytes(33) > 0);  // otherwise no row is split, and this tests little
  const CheckResult check_result = on_new_thread([&] { return launch_and_check(kernel, problem, inputs); });
  CHECK_MESSAGE(check_result.ok, check_result.first_failure);
}

TEST_CASE("a new thread compiles, launches and drops the last handle") {
  const Options options = threads_options();
  const Problem problem = make_problem(wide(), options);
  const HostInputs inputs = make_inputs(problem, 33, Inputs::small_integers, 4);
  Kernel kernel;
  on_new_thread([&] { kernel = compile(wide(), options); });
  const CheckResult check_result = on_new_thread([&] { return launch_and_check(kernel, problem, inputs); });
  CHECK_MESSAGE(check_result.ok, check_result.first_failure);
  on_new_thread([&] { kernel = Kernel(); });
  CHECK(on_new_thread([&] { return compile(wide(), options).from(); }) == From::store);
}

TEST_CASE("a new thread gives a kernel another layout and launches it") {
  Options options = threads_options();
  options.specialization = Specialization::attached;
  Kernel kernel = compile(wide(), options);
  const Layout next = patterns::random(4, 48, 0.4, 6);
  on_new_thread([&] { kernel.relayout(next); });
  const Problem problem = make_problem(next, options);
  const HostInputs inputs = make_inputs(problem, 33, Inputs::small_integers, 4);
  const CheckResult check_result = on_new_thread([&] { return launch_and_check(kernel, problem, inputs); });
  CHECK_MESSAGE(check_result.ok, check_result.first_failure);
}

TEST_CASE("a new thread waits for the baked kernel of a tiered one and launches it") {
  Options options = threads_options();
  options.cache_dir = Suite::current().scratch() / "threads-tiered";
  options.specialization = Specialization::tiered;
  const Problem problem = make_problem(wide(), options);
  const HostInputs inputs = make_inputs(problem, 33, Inputs::small_integers, 4);
  const Kernel kernel = compile(wide(), options);
  const CheckResult check_result = on_new_thread([&] {
    kernel.wait();
    return launch_and_check(kernel, problem, inputs);
  });
  CHECK(kernel.tier() == Tier::baked);
  CHECK_MESSAGE(check_result.ok, check_result.first_failure);
}

TEST_CASE("gradients are computed on a thread that did nothing before, like that of PyTorch's backward") {
  // Forward on this thread, then both gradients on a thread of the framework, with operands in place.
  const Options forward = threads_options();
  const Kernel kernel = compile(wide(), forward);
  const Problem problem = make_problem(wide(), forward);
  CHECK(launch_and_check(kernel, problem, make_inputs(problem, 33, Inputs::small_integers, 4)).ok);
  const auto& device = Suite::current().device();
  std::vector<Kernel> gradients;
  std::vector<std::unique_ptr<const TestLaunch>> trials;
  std::vector<std::unique_ptr<PlacedOperands>> layers;
  for (const Operation operation : {Operation::grad_input, Operation::grad_weight}) {
    Options options = forward;
    options.operation = operation;
    gradients.push_back(compile(wide(), options));
    trials.push_back(make_test_launch(make_problem(wide(), options), {.n = 33}, Inputs::small_integers, 7));
    layers.push_back(trials.back()->place(gradients.back(), device));
  }
  on_new_thread([&] {
    for (std::size_t i = 0; i < gradients.size(); ++i) layers[i]->launch(gradients[i]);
  });
  device->synchronize();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const CheckResult check_result = layers[i]->judge(gradients[i].binary().plan, nullptr);
    CHECK_MESSAGE(check_result.ok, check_result.first_failure);
  }
}

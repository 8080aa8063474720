#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include <sparsekiln/patterns.h>

#include "runtime/test_launch.h"
#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

TEST_CASE("repeated runs give the same bits, split rows included") {
  for (const Precision& precision : Suite::current().precisions())
    for (const std::int32_t workers : {1, 7, 132}) {
      Options options = Suite::current().options({16, 32}, 33, precision);
      options.target = Suite::current().target_with(workers);
      const Layout layout = patterns::random(4, 48, 0.7, 5);
      options = Suite::current().with_splits(options, layout);
      const Kernel kernel = compile(layout, options);
      const Problem problem = make_problem(layout, options);
      CAPTURE(precision.to_string());
      CAPTURE(workers);
      if (workers == 132 && Suite::splits_rows(precision))
        CHECK(kernel.workspace_bytes(33) > 0);  // otherwise no row is split, and this tests little
      const HostInputs inputs = make_inputs(problem, 33, Inputs::random, 21);
      const std::vector<std::byte> first = image_of_run(kernel, problem, inputs);
      for (std::size_t i = 1; i < Suite::current().repeats(); ++i) {
        CAPTURE(i);
        (void)Suite::current().take_seed(i);  // another order
        REQUIRE(image_of_run(kernel, problem, inputs) == first);
      }
    }
}

TEST_CASE("repeated runs of every operation give the same bits, in both orders of activations") {
  const Layout layout = patterns::random(4, 12, 0.7, 5);
  int turn = 0;  // the order alternates, so that every pair of precision, operation and order occurs
  for (const Precision& precision : Suite::current().precisions())
    for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight}) {
      ++turn;
      for (const ActivationOrder order : {ActivationOrder::batch_major, ActivationOrder::feature_major}) {
        const bool first_order = order == ActivationOrder::batch_major;
        if (Suite::current().only_pairs() && first_order != (turn % 2 == 0)) continue;
        CAPTURE(precision.to_string());
        CAPTURE(name(operation));
        CAPTURE(name(order));
        Options options = Suite::current().options({16, 32}, 33, precision);
        options.target = Suite::current().target_with(7);
        options.operation = operation;
        options.order = order;
        options.epilogue.scale = true;
        const Kernel kernel = compile(layout, options);
        const auto test_launch = make_test_launch(
            make_problem(layout, options), {.n = 33, .pairs = operation == Operation::grad_weight ? 3 : 1},
            Inputs::random, 21);
        std::vector<std::byte> first;
        for (std::size_t i = 0; i < Suite::current().repeats(); ++i) {
          CAPTURE(i);
          (void)Suite::current().take_seed(i);
          const auto layer = test_launch->place(kernel, Suite::current().device());
          layer->launch(kernel);
          Suite::current().device()->synchronize();
          std::vector<std::byte> image;
          CHECK(layer->judge(kernel.binary().plan, &image).ok);
          if (i == 0) first = image;
          REQUIRE(image == first);
        }
      }
    }
}

TEST_CASE("values between the rows of x never reach y") {
  // make_inputs fills the gaps between x's rows with NaN: one of them in y would be detected.
  for (const Precision& precision : Suite::current().precisions()) {
    const Options options = Suite::current().options({32, 16}, 17, precision);
    const Layout layout = patterns::banded(6, 6, 1);
    const Kernel kernel = compile(layout, options);
    const Problem problem = make_problem(layout, options);
    const HostInputs inputs = make_inputs(problem, 17, Inputs::small_integers, 2, problem.in_features() + 64);
    CAPTURE(precision.to_string());
    CHECK(launch_and_check(kernel, problem, inputs, 64).ok);
  }
}

TEST_CASE("a workspace that the caller gives is used, and is ready for the next launch afterwards") {
  for (const Precision& precision : Suite::current().precisions()) {
    if (!Suite::splits_rows(precision)) continue;  // its kernels take no workspace
    Options options = Suite::current().options({16, 32}, 33, precision);
    options.target = Suite::current().target_with(132);
    const Layout layout = patterns::random(4, 48, 0.7, 5);
    options = Suite::current().with_splits(options, layout);
    const Kernel kernel = compile(layout, options);
    const Problem problem = make_problem(layout, options);
    const HostInputs inputs = make_inputs(problem, 33, Inputs::small_integers, 4);
    const auto& device = Suite::current().device();
    const std::vector<std::byte> zeros(static_cast<std::size_t>(kernel.workspace_bytes(33)));
    CAPTURE(precision.to_string());
    CHECK(!zeros.empty());
    DeviceMemory workspace(device, zeros.size());
    workspace.copy_in(zeros.data());
    for (int i = 0; i < 3; ++i) {
      PoisonedOutput output(problem, 33);
      launch(kernel, problem, inputs, output, {static_cast<std::byte*>(workspace.data()), workspace.bytes()});
      const CheckResult check_result =
          check(problem, inputs, output, adder_of(problem, kernel.binary().plan));
      CHECK_MESSAGE(check_result.ok, check_result.first_failure);
    }
  }
}

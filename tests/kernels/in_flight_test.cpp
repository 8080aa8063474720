#include <doctest/doctest.h>

#include <string>

#include <fmt/format.h>
#include <sparsekiln/patterns.h>

#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

// Kernels whose CTAs compute several batch tiles, one after the other, because the config bounds how many
// there are at once.

namespace {

constexpr std::int64_t kBatch = 100;  // seven tiles of 16, the last partial

bool on_tensor_cores_of(int capability) {
  const Target& target = Suite::current().device()->target();
  return target.kind == Target::Kind::cuda && target.compute_capability() >= capability;
}

Options bounded(const char* numbers, Precision precision) {
  Options options = Suite::current().options({16, 32}, kBatch, precision);
  options.target = Suite::current().target_with(16);  // more than block rows: they are split
  options.config = parse_config(fmt::format("{} split=2 in_flight=2", numbers));
  return options;
}

void check_right(const Options& options) {
  const Layout layout = patterns::random(5, 24, 0.6, 3);
  const Kernel kernel = compile(layout, options);
  CAPTURE(to_string(*options.config));
  CHECK(kernel.binary().entries.front().tiles_in_flight == 2);
  CHECK(kernel.workspace_bytes(kBatch) > 0);  // else no row is split, and this tests less
  const Problem problem = make_problem(layout, options);
  for (int i = 0; i < 2; ++i) {  // the second launch finds the counters as the first one left them
    const CheckResult result =
        launch_and_check(kernel, problem, make_inputs(problem, kBatch, Inputs::small_integers, 5));
    CHECK_MESSAGE(result.ok, result.first_failure);
  }
}

}  // namespace

TEST_CASE("kernels that bound the batch tiles at once are right, split rows included") {
  if (!on_tensor_cores_of(80)) return;
  check_right(bounded("simt tile_n=16 tile_out=4 stages=2 warps=2", {DType::f32}));
  check_right(bounded("mma tile_n=16 stages=3 warps=1", {DType::f16}));
  check_right(bounded("mma tile_n=16 stages=3 warps=1 table=attached", {DType::f16}));
  check_right(bounded("stream tile_n=16 stages=3 warps=4", {DType::f16}));
  check_right(bounded("direct tile_n=16 stages=2 warps=4", {DType::f16}));
}

TEST_CASE("a batch tile after another of a CTA meets nothing that is still on its way for that") {
  if (!on_tensor_cores_of(80)) return;
  // Several small blocks make a chunk, and there are fewer chunks than stages.
  for (const char* const numbers : {"mma tile_n=16 stages=6 warps=1", "stream tile_n=16 stages=8 warps=2",
                                    "direct tile_n=16 stages=2 warps=2"}) {
    Options options = bounded(numbers, {DType::f16});
    options.block = {16, 8};
    check_right(options);
  }
}

TEST_CASE("bounded batch tiles read and write their own activations") {
  if (!on_tensor_cores_of(80)) return;
  Options options = bounded("mma tile_n=16 stages=3 warps=1", {DType::f16});
  options.epilogue = {.scale = true, .bias = true, .residual = true};
  check_right(options);
  options.epilogue = {};
  options.order = ActivationOrder::feature_major;
  check_right(options);
  options.order = ActivationOrder::batch_major;
  options.operation = Operation::grad_input;
  options.derivative = Activation::relu;
  options.block = {32, 16};
  check_right(options);
}

TEST_CASE("a result too large for L2 is written past it") {
  if (!on_tensor_cores_of(80)) return;
  const Layout layout = Layout::from_mask(1, 1, std::vector<std::uint8_t>{1});
  constexpr std::int64_t kRows = 1 << 16;
  Options options = Suite::current().options({128, 16}, kRows, {DType::f16});
  options.out_dtype = DType::f32;
  options.config = parse_config("mma tile_n=256 stages=2 warps=8 in_flight=8");
  const Kernel kernel = compile(layout, options);
  CHECK(kernel.binary().ptx.find("st.global.cs.v4.b32") != std::string::npos);
  const Problem problem = make_problem(layout, options);
  const CheckResult result =
      launch_and_check(kernel, problem, make_inputs(problem, kRows, Inputs::small_integers, 5));
  CHECK_MESSAGE(result.ok, result.first_failure);
}

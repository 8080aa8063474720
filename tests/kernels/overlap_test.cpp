#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include <sparsekiln/patterns.h>

#include "oracle/sddmm_inputs.h"
#include "oracle/spmm_inputs.h"
#include "runtime/resident_sddmm.h"
#include "runtime/resident_spmm.h"
#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

constexpr std::int64_t kBatch = 33;

/// A kernel to chain, with a config for CUDA devices.
struct Chained {
  std::string config;
  DType dtype = DType::f16;
  Options options;
};

/// As many features of x as of y, so that a launch can read what another has computed.
Layout square() { return patterns::random(12, 12, 0.4, 5); }

bool on_cuda_of(int compute_capability) {
  const Suite& suite = Suite::current();
  return !suite.on_cpu() && suite.device()->target().compute_capability() >= compute_capability;
}

/// Many workers, so that rows are split and some workers may have nothing to do.
Options options_of(const Chained& chained) {
  const Suite& suite = Suite::current();
  Options options = chained.options;
  const Options usual = suite.options({32, 32}, kBatch, {chained.dtype});
  options.block = usual.block;
  options.batch = usual.batch;
  options.dtype = usual.dtype;
  options.cache_dir = usual.cache_dir;
  options.target = suite.target_with(suite.on_cpu() ? 7 : 132);
  if (on_cuda_of(80)) options.config = parse_config(chained.config);
  return options;
}

bool may_overlap(const Kernel& kernel) {
  const Entry& entry = kernel.binary().entries.front();
  return entry.attributes.overlaps_previous;
}

/// y after four launches in a row, of which each reads what the one before it writes, or overwrites what that
/// one reads.
std::vector<std::byte> chain_products(const Options& options) {
  const Layout layout = square();
  const Kernel kernel = compile(layout, options);
  CHECK(may_overlap(kernel) == (options.overlap_launches && on_cuda_of(90)));
  const Problem problem = make_problem(layout, options);
  const HostInputs inputs = make_inputs(problem, kBatch, Inputs::random, 3);
  PoisonedOutput output(problem, kBatch);
  if (problem.epilogue.scale) output.set(inputs.y);
  const auto& device = Suite::current().device();
  ResidentSpmm operands(kernel, problem, device, inputs, output, 2);
  const bool gradient = options.operation == Operation::grad_input;
  (gradient ? operands[0].dy : operands[0].x) = gradient ? operands[1].dx : operands[1].y;
  for (const std::size_t next : {1, 0, 1, 0}) kernel(operands[next]);
  device->synchronize();
  operands.fetch(output);
  return {output.image().begin(), output.image().end()};
}

/// The gradients after three launches in a row that add to what they find.
std::vector<std::byte> chain_gradients(const Options& options) {
  const Layout layout = square();
  const Kernel kernel = compile(layout, options);
  CHECK(may_overlap(kernel) == (options.overlap_launches && on_cuda_of(90)));
  const Sddmm gradient(make_problem(layout, options));
  const SddmmInputs inputs =
      make_inputs(gradient, {.n = kBatch, .pairs = 2, .beta = 1}, Inputs::small_integers, 3);
  SddmmOutputs outputs(gradient, inputs);
  const auto& device = Suite::current().device();
  ResidentSddmm operands(gradient, device, inputs, outputs);
  for (int i = 0; i < 3; ++i) kernel(operands[0]);
  device->synchronize();
  operands.fetch(outputs);
  std::vector<std::byte> image(outputs.dw.image().begin(), outputs.dw.image().end());
  image.insert(image.end(), outputs.dbias.image().begin(), outputs.dbias.image().end());
  return image;
}

}  // namespace

TEST_CASE("products that overlap give the bits of products that follow one another") {
  const std::vector<Chained> all = {
      {"simt tile_n=16 tile_out=4 stages=1 warps=2 split=3",
       DType::f32,
       {.epilogue = {.scale = true, .residual = true}}},
      {"simt tile_n=16 tile_out=4 stages=3 warps=2 split=3 table=global", DType::f32, {}},
      {"mma tile_n=16 stages=3 warps=2 split=3", DType::f16, {.block_scales = true}},
      {"mma tile_n=16 stages=1 warps=2 split=1 merge=2 table=attached", DType::f16, {}},
      {"mma tile_n=16 stages=3 warps=2 split=3",
       DType::f16,
       {.epilogue = {.activation = Activation::silu, .glu = true}}},
      {"mma tile_n=16 stages=2 warps=2 split=1 rows=2",
       DType::f16,
       {.operation = Operation::grad_input, .derivative = Activation::relu}},
      {"mma tile_n=16 stages=3 warps=2 split=3",
       DType::bf16,
       {.order = ActivationOrder::feature_major, .epilogue = {.bias = true}}},
      {"stream tile_n=16 stages=4 warps=4 split=3", DType::f16, {}},
  };
  for (const Chained& chained : all) {
    CAPTURE(chained.config);
    if (chained.dtype == DType::bf16 && !Suite::current().on_cpu() && !on_cuda_of(80)) continue;
    Options options = options_of(chained);
    const std::vector<std::byte> expected = chain_products(options);
    options.overlap_launches = true;
    CHECK(chain_products(options) == expected);
  }
}

TEST_CASE("gradients of the weight that overlap give the bits of those that follow one another") {
  const std::vector<Chained> all = {
      {"mma tile_n=32 tile_out=0 stages=3 warps=4 rows=2",
       DType::f16,
       {.operation = Operation::grad_weight, .epilogue = {.scale = true}, .bias_gradient = true}},
      {"simt tile_n=16 tile_out=4 stages=3 warps=4 rows=2",
       DType::f32,
       {.operation = Operation::grad_weight, .epilogue = {.scale = true}, .bias_gradient = true}},
  };
  for (const Chained& chained : all) {
    CAPTURE(chained.config);
    Options options = options_of(chained);
    const std::vector<std::byte> expected = chain_gradients(options);
    options.overlap_launches = true;
    CHECK(chain_gradients(options) == expected);
  }
}

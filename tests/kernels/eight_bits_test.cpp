#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "compiler/element.h"
#include "tests/kernels/suite.h"
#include "tests/kernels/table.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

// Operands of 8 bits, which have products, but no gradients.

namespace {

constexpr std::array kTypes{DType::e4m3, DType::e5m2, DType::i8};

bool on_cuda_before(int compute_capability) {
  const Target target = Suite::current().device()->target();
  return target.kind == Target::Kind::cuda && target.compute_capability() < compute_capability;
}
bool has_wgmma() {
  const Target target = Suite::current().device()->target();
  return target.kind == Target::Kind::cuda && target.compute_capability() == 90;
}

/// How a product is computed, and with what.
struct Form {
  BlockShape block;
  std::int64_t batch;
  Epilogue epilogue = {};
  std::int32_t result = 0;       ///< of the types that results can be of
  std::string_view config = "";  ///< of CUDA targets; empty: the default
  std::int32_t cut_in = 0, cut_out = 0;
  std::int32_t alignment = 16;
  std::int32_t workers = 3;
  std::int64_t padding = 0;  ///< elements between rows
};

// On tensor cores each of both operands as A, chunks of several blocks and of parts of one, split rows,
// merged rows, several tiles, stages; the same on CUDA cores, which take any block; those of wgmma with
// chunks of 64 and of 128 inputs, one and several tiles, CTAs that share W; and everything that an epilogue
// may have.
const std::vector<Form> kForms = {
    {.block = {16, 32}, .batch = 9},
    {.block = {32, 32},
     .batch = 17,
     .epilogue = {.scale = true, .bias = true},
     .result = 1,
     .config = "mma tile_n=16 tile_out=0 stages=2 warps=2 split=1 rows=1 merge=1 table=constant operand_a=x"},
    {.block = {64, 64},
     .batch = 33,
     .epilogue = {.bias = true, .activation = Activation::gelu, .residual = true, .row_scale = true},
     .result = 2,
     .config = "mma tile_n=48 tile_out=0 stages=3 warps=4 split=3 rows=1 merge=1 table=global operand_a=w"},
    {.block = {16, 16},
     .batch = 8,
     .config = "mma tile_n=16 tile_out=0 stages=4 warps=1 split=3 rows=1 merge=1 table=global operand_a=x",
     .workers = 7},
    {.block = {8, 16},
     .batch = 24,
     .result = 2,
     .config = "mma tile_n=24 tile_out=0 stages=2 warps=1 split=1 rows=1 merge=2 table=constant operand_a=w",
     .cut_in = 3,
     .cut_out = 5},
    {.block = {128, 128},
     .batch = 40,
     .epilogue = {.row_scale = true},
     .result = 1,
     .config = "mma tile_n=64 tile_out=0 stages=2 warps=8 split=1 rows=1 merge=1 table=attached operand_a=w"},
    {.block = {32, 64},
     .batch = 13,
     .epilogue = {.activation = Activation::relu},
     .result = 1,
     .config = "mma tile_n=16 tile_out=0 stages=3 warps=2 split=3 rows=2 merge=1 table=global operand_a=x",
     .workers = 7,
     .padding = 16},
    {.block = {16, 32},
     .batch = 20,
     .epilogue =
         {.scale = true, .bias = true, .activation = Activation::silu, .glu = true, .row_scale = true},
     .result = 1,
     .config = "mma tile_n=16 tile_out=0 stages=3 warps=1 split=1 rows=1 merge=1 table=constant operand_a=x"},
    {.block = {16, 64},
     .batch = 16,
     .epilogue = {.scale = true, .row_scale = true},
     .result = 2,
     .config = "mma tile_n=16 tile_out=0 stages=2 warps=1 split=1 rows=1 merge=1 table=constant operand_a=x",
     .cut_in = 5,
     .cut_out = 3,
     .alignment = 8,
     .workers = 1,
     .padding = 8},
    {.block = {32, 128},
     .batch = 7,
     .epilogue = {.bias = true, .row_scale = true},
     .result = 2,
     .cut_in = 33,
     .cut_out = 1,
     .alignment = 4,
     .padding = 12},
    {.block = {8, 8}, .batch = 9, .result = 2},
    {.block = {16, 8},
     .batch = 12,
     .epilogue = {.row_scale = true},
     .result = 1,
     .cut_in = 3,
     .cut_out = 2,
     .alignment = 2},
    {.block = {16, 32},
     .batch = 19,
     .epilogue = {.scale = true, .bias = true, .activation = Activation::relu, .row_scale = true},
     .result = 1,
     .config = "simt tile_n=16 tile_out=2 stages=2 warps=2 split=3 rows=1 merge=1 table=global",
     .workers = 7,
     .padding = 16},
    {.block = {16, 16},
     .batch = 8,
     .config = "simt tile_n=8 tile_out=4 stages=2 warps=1 split=3 rows=2 merge=1 table=attached",
     .workers = 7},
    {.block = {32, 64},
     .batch = 21,
     .epilogue = {.activation = Activation::silu, .glu = true, .row_scale = true},
     .result = 1,
     .config = "simt tile_n=8 tile_out=4 stages=1 warps=2 split=1 rows=1 merge=1 table=constant",
     .cut_in = 5,
     .cut_out = 3,
     .alignment = 8},
    {.block = {16, 16}, .batch = 9, .epilogue = {.activation = Activation::silu, .glu = true}, .result = 2},
    {.block = {32, 32},
     .batch = 13,
     .epilogue = {.bias = true, .row_scale = true},
     .result = 1,
     .config = "direct tile_n=16 tile_out=0 stages=2 warps=4 split=3 table=global operand_a=x",
     .workers = 7},
    {.block = {64, 128},
     .batch = 9,
     .result = 0,
     .config = "direct tile_n=8 tile_out=16 stages=1 warps=8 split=1 table=attached operand_a=w"},
    {.block = {16, 16},
     .batch = 40,
     .epilogue = {.scale = true, .row_scale = true},
     .result = 2,
     .config = "direct tile_n=32 tile_out=0 stages=1 warps=4 split=2 table=global operand_a=x panels=1",
     .cut_out = 3},
    {.block = {16, 32},
     .batch = 20,
     .epilogue =
         {.scale = true, .bias = true, .activation = Activation::silu, .glu = true, .row_scale = true},
     .result = 1,
     .config = "direct tile_n=16 tile_out=0 stages=2 warps=4 split=1 table=global operand_a=w",
     .cut_in = 16,
     .padding = 16},
    {.block = {32, 64},
     .batch = 7,
     .epilogue = {.activation = Activation::silu, .glu = true, .row_scale = true},
     .result = 2,
     .config = "stream tile_n=8 tile_out=16 stages=3 warps=4 split=3 table=global operand_a=w",
     .workers = 7},
    {.block = {16, 16}, .batch = 8, .config = "stream tile_n=16 tile_out=0 stages=4 warps=2 operand_a=x"},
    {.block = {64, 64}, .batch = 130, .config = "wgmma warps=12 tile_n=128 stages=3"},
    {.block = {128, 128},
     .batch = 200,
     .epilogue = {.bias = true, .activation = Activation::gelu, .residual = true, .row_scale = true},
     .result = 1,
     .config = "wgmma warps=12 tile_n=128 stages=3 split=3",
     .workers = 7},
    {.block = {64, 128},
     .batch = 290,
     .epilogue =
         {.scale = true, .bias = true, .activation = Activation::silu, .glu = true, .row_scale = true},
     .result = 2,
     .config = "wgmma warps=12 tile_n=128 stages=2 cluster=2 in_flight=2",
     .padding = 16},
    {.block = {128, 64},
     .batch = 300,
     .epilogue = {.scale = true, .row_scale = true},
     .result = 2,
     .config = "wgmma warps=12 tile_n=128 stages=4 rows=2 table=global"},
    {.block = {64, 128}, .batch = 257, .result = 1, .config = "wgmma warps=12 tile_n=128 stages=3 merge=2"},
    {.block = {64, 128}, .batch = 256, .config = "wgmma warps=12 tile_n=256 stages=3"},
};

/// Whether the device has it: tensor cores that multiply the type, and rounding to bf16.
bool has(const Form& form, DType dtype, DType result) {
  if (form.config.starts_with("wgmma") && !Suite::current().on_cpu() && !has_wgmma()) return false;
  if (result == DType::bf16 && on_cuda_before(80)) return false;
  const bool on_tensor_cores = !form.config.empty() && !form.config.starts_with("simt");
  return !on_tensor_cores || !on_cuda_before(element(dtype).cuda.least_capability);
}

Options options_of(const Form& form, DType dtype, const Layout& layout) {
  Options options = Suite::current().options(form.block, form.batch, {dtype});
  const auto results = element(dtype).results;
  options.out_dtype = results[static_cast<std::size_t>(form.result)];
  options.epilogue = form.epilogue;
  options.alignment = form.alignment;
  if (form.cut_in != 0) options.in_features = layout.cols() * form.block.in - form.cut_in;
  if (form.cut_out != 0) options.out_features = layout.rows() * form.block.out - form.cut_out;
  options.target = Suite::current().target_with(form.workers);
  if (!Suite::current().on_cpu() && !form.config.empty())
    options.config = parse_config(std::string(form.config));
  return options;
}

std::string run_inputs(const Kernel& kernel, const Problem& problem, const Form& form, Inputs kind,
                       bool planted) {
  const std::int64_t unit = std::max<std::int64_t>(1, form.alignment);
  const std::int64_t width = (problem.in_features() + unit - 1) / unit * unit;
  HostInputs inputs = make_inputs(problem, form.batch, kind, 3, width + form.padding);
  if (planted) plant_non_finite(problem, inputs, 3);
  const CheckResult result = launch_and_check(kernel, problem, inputs, form.padding);
  return result.ok ? ""
                   : fmt::format("{}{}: {}", kind == Inputs::random ? "random" : "integers",
                                 planted ? " with planted Inf and NaN" : "", result.first_failure);
}

/// 2048 products of -128 and -128 or 127, whose sums are about 2^25.
void check_large_sums(const Layout& layout, BlockShape block, DType out,
                      const std::optional<Config>& config) {
  Options options = Suite::current().options(block, 16, {DType::i8});
  options.out_dtype = out;
  options.config = config;
  const Problem problem = make_problem(layout, options);
  HostInputs inputs = make_inputs(problem, 16, Inputs::random, 1);
  std::memset(inputs.x.data(), 0x80, inputs.x.size());
  for (std::size_t i = 0; i < inputs.w.size(); ++i) inputs.w[i] = std::byte(i % 7 == 0 ? 0x7f : 0x80);
  const CheckResult result = launch_and_check(compile(layout, options), problem, inputs);
  CAPTURE(name(out));
  CHECK_MESSAGE(result.ok, result.first_failure);
}

}  // namespace

TEST_CASE("products of 8-bit types are right with every form of kernel and epilogue") {
  std::vector<Part> parts;
  for (const DType dtype : kTypes)
    for (const Form& form : kForms) {
      const Layout layout = patterns::random(4, 5, 0.6, 7);
      Options options = options_of(form, dtype, layout);
      if (!has(form, dtype, *options.out_dtype)) continue;
      if (form.result == 0) options.out_dtype.reset();
      const auto run = [layout, options, form]() -> std::string {
        const Kernel kernel = compile(layout, options);
        const Problem problem = make_problem(layout, options);
        const bool merged = form.config.find("merge=2") != std::string_view::npos;
        for (const Inputs kind : {Inputs::small_integers, Inputs::random})
          if (std::string wrong = run_inputs(kernel, problem, form, kind, false); !wrong.empty())
            return wrong;
        return merged ? "" : run_inputs(kernel, problem, form, Inputs::small_integers, true);
      };
      parts.push_back({fmt::format("{} to {}, block {}, epilogue {}, {}", name(dtype),
                                   name(make_problem(layout, options).out_dtype), to_string(form.block),
                                   to_string(form.epilogue), form.config),
                       layout, options, run});
    }
  run_table(parts);
}

TEST_CASE("convolutions of 8-bit types are right") {
  std::vector<Part> parts;
  for (const DType dtype : kTypes) {
    const Layout layout = patterns::random(2, 3, 0.7, 5);
    Options options = Suite::current().options({16, 32}, 2, {dtype});
    options.convolution = parse_convolution("kernel=3x3 stride=2 padding=1 input=5x6");
    options.out_dtype = DType::f32;
    options.epilogue = {.bias = true, .activation = Activation::relu, .row_scale = true};
    const auto run = [layout, options]() -> std::string {
      const Kernel kernel = compile(layout, options);
      const Problem problem = make_problem(layout, options);
      for (const Inputs kind : {Inputs::small_integers, Inputs::random}) {
        const CheckResult result = launch_and_check(kernel, problem, make_inputs(problem, 2, kind, 3));
        if (!result.ok) return result.first_failure;
      }
      return "";
    };
    parts.push_back({std::string(name(dtype)), layout, options, run});
  }
  run_table(parts);
}

TEST_CASE("every element of 8 bits is what its format says, in every variant") {
  constexpr BlockShape kBlock{64, 128};
  const Layout layout = patterns::block_diagonal(1, 1, 1);
  for (const DType dtype : kTypes)
    for (const char* const config : {"", "simt tile_n=16 tile_out=2 stages=2 warps=4 table=global",
                                     "mma tile_n=64 stages=2 warps=4 operand_a=w table=global",
                                     "direct tile_n=32 tile_out=32 stages=1 warps=4 operand_a=w table=global",
                                     "wgmma warps=12 tile_n=128 stages=2"}) {
      const Form form{
          .block = kBlock, .batch = 256, .result = element(dtype).integer ? 0 : 2, .config = config};
      const Options options = options_of(form, dtype, layout);
      if (!has(form, dtype, *options.out_dtype)) continue;
      CAPTURE(name(dtype));
      CAPTURE(config);
      const Problem problem = make_problem(layout, options);
      // A batch row has one of all elements, in turn at each input that W takes unchanged, and is 0
      // elsewhere.
      HostInputs inputs = make_inputs(problem, form.batch, Inputs::small_integers, 1);
      std::ranges::fill(inputs.x, std::byte{0});
      std::ranges::fill(inputs.w, std::byte{0});
      for (std::int64_t n = 0; n < form.batch; ++n)
        inputs.x[static_cast<std::size_t>(n * inputs.x_stride + n % kBlock.out)] = static_cast<std::byte>(n);
      for (std::int64_t i = 0; i < kBlock.out; ++i) store(dtype, 1.0, inputs.w.data(), i * kBlock.in + i);
      const CheckResult result = launch_and_check(compile(layout, options), problem, inputs);
      CHECK_MESSAGE(result.ok, result.first_failure);
    }
}

TEST_CASE("a kernel of 8-bit types serves all batches up to a bound") {
  const Layout layout = patterns::random(4, 5, 0.6, 7);
  for (const DType dtype : kTypes) {
    CAPTURE(name(dtype));
    Options options = Suite::current().options({32, 32}, Batch::up_to(100), {dtype});
    options.out_dtype = element(dtype).integer ? DType::i32 : DType::f32;
    const Kernel kernel = compile(layout, options);
    const Problem problem = make_problem(layout, options);
    for (const std::int64_t n : {0, 1, 31, 100}) {
      CAPTURE(n);
      const CheckResult result =
          launch_and_check(kernel, problem, make_inputs(problem, n, Inputs::small_integers, 3));
      CHECK_MESSAGE(result.ok, result.first_failure);
    }
  }
}

TEST_CASE("sums of 8-bit integers are exact where no float32 holds them, and converted once") {
  const Layout layout = patterns::block_diagonal(1, 16, 1);
  for (const DType out : {DType::i32, DType::f32}) check_large_sums(layout, {16, 128}, out, {});
  if (!has_wgmma()) return;
  for (const DType out : {DType::i32, DType::f32})
    check_large_sums(layout, {64, 128}, out, parse_config("wgmma warps=12 tile_n=128 stages=3"));
}

TEST_CASE("what 8-bit types do not have is refused with what would work") {
  const Layout layout = patterns::random(4, 5, 0.6, 7);
  const auto refusal = [&](DType dtype, const auto& change) -> std::string {
    Options options = Suite::current().options({32, 32}, 8, {dtype});
    change(options);
    try {
      static_cast<void>(compile(layout, options));
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::invalid_argument);
      return error.what();
    }
    return "";
  };
  for (const DType dtype : kTypes) {
    CAPTURE(name(dtype));
    CHECK(refusal(dtype, [](Options& o) { o.operation = Operation::grad_input; }).find("forward, or f16") !=
          std::string::npos);
    CHECK(refusal(dtype, [](Options& o) { o.operation = Operation::grad_weight; }).find("forward, or f16") !=
          std::string::npos);
    CHECK(refusal(dtype, [](Options& o) { o.order = ActivationOrder::feature_major; }).find("batch-major") !=
          std::string::npos);
    CHECK(refusal(dtype, [](Options& o) { o.block_scales = true; }).find("row_scale") != std::string::npos);
    CHECK(refusal(dtype, [&](Options& o) { o.out_dtype = o.dtype; }).find("output type") !=
          std::string::npos);
  }
  CHECK(refusal(DType::i8, [](Options& o) { o.epilogue.bias = true; }).find("these are the sums") !=
        std::string::npos);
  CHECK(refusal(DType::f32, [](Options& o) { o.epilogue.row_scale = true; }).find("e4m3, e5m2 and i8") !=
        std::string::npos);
}

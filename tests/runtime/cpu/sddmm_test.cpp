#include "tests/runtime/cpu/sddmm_fixture.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "tests/runtime/cpu/product_fixture.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::array<std::int64_t, 8> kBatches = {0, 1, 2, 7, 8, 9, 33, 100};
/// The types of x and dy, and of dw.
constexpr std::array kTypes = {std::pair{DType::f32, DType::f32}, std::pair{DType::bf16, DType::f32},
                               std::pair{DType::bf16, DType::bf16}, std::pair{DType::f16, DType::f32},
                               std::pair{DType::f16, DType::f16}};
constexpr std::array kKinds = {Inputs::small_integers, Inputs::random};

constexpr std::array<BlockShape, 8> kBlocks = {
    {{8, 8}, {16, 32}, {32, 16}, {64, 128}, {128, 32}, {16, 128}, {8, 64}, {64, 8}}};

/// Empty first, middle and last rows, an empty column, a full row, a row of one block.
const char* const kAwkward = "000000/101101/000000/111111/000001/010100/000000";

Target host(std::int32_t workers = 2) { return {Target::Kind::cpu, host_level(), workers}; }

/// The most blocks of a run that a config may ask for.
std::int32_t longest_run(BlockShape block) { return std::clamp(64 / block.in, 1, 4); }

TEST_CASE("every block shape, type, batch and number of pairs is right, however rows lie apart") {
  constexpr std::array<std::int32_t, 5> kSides = {8, 16, 32, 64, 128};
  std::size_t turn = 0;
  for (const std::int32_t out : kSides)
    for (const std::int32_t in : kSides)
      for (const char* layout : {kAwkward, "1", "111/111"}) {
        const BlockShape block{out, in};
        const auto [dtype, out_dtype] = kTypes[turn % kTypes.size()];
        const Problem problem = gradient_of(grid(layout), block, 100, dtype, out_dtype);
        // Longer ones are covered by blocks that are narrow enough for them.
        const std::int32_t rows = 1 + static_cast<std::int32_t>(turn / 2) % longest_run(block);
        const Config config =
            sddmm_config(turn % 3 == 0 ? 16 : 64, turn % 2 == 0 ? kEachForItself : kPackedOnce, rows);
        const Kernel kernel = sddmm_kernel(problem, host(), config);
        const bool large = std::int64_t{out} * in > 2048;
        for (const std::int64_t n : kBatches)
          for (const std::int64_t pairs : {1, 3, 8}) {
            if (large && n * pairs > 100) continue;
            const std::size_t draw = turn++;
            check_gradient(kernel, problem, {.n = n, .pairs = pairs, .padding = draw % 2 == 0 ? 0 : 8},
                           kKinds[draw / 2 % 2]);
          }
      }
}

TEST_CASE("gradients of the weight are right on every level and type of this host") {
  std::size_t turn = 0;
  for (const std::string& level : runnable_levels())
    for (const auto& [dtype, out_dtype] : kTypes)
      for (const std::int32_t stages : {kEachForItself, kPackedOnce}) {
        const BlockShape block = kBlocks[turn++ % kBlocks.size()];
        const Problem problem = gradient_of(grid(kAwkward), block, 40, dtype, out_dtype);
        const Kernel kernel = sddmm_kernel(problem, {Target::Kind::cpu, level, 2},
                                           sddmm_config(32, stages, longest_run(block)));
        for (const std::int64_t n : {1, 5, 37})
          check_gradient(kernel, problem, {.n = n, .pairs = 2, .padding = 8}, Inputs::small_integers);
      }
}

TEST_CASE("gradients emitted for AVX-512 are right, assembled for the vectors that this host has") {
  for (const auto& [dtype, out_dtype] : kTypes)
    for (const BlockShape block : {BlockShape{8, 8}, {16, 16}, {32, 32}, {128, 64}})
      for (const std::int32_t rows : {1, longest_run(block)}) {
        const Problem problem = gradient_of(grid(kAwkward), block, 40, dtype, out_dtype);
        const Kernel kernel = sddmm_kernel(problem, {Target::Kind::cpu, "x86-64-v4", 2},
                                           sddmm_config(32, kPackedOnce, rows), host());
        for (const std::int64_t n : {1, 5, 37})
          check_gradient(kernel, problem, {.n = n}, Inputs::small_integers);
      }
}

TEST_CASE(
    "the gradient of the weight has the same bits for any number of workers, chunk and form, in 20 runs") {
  const Layout layout = patterns::random(13, 11, 0.4, 3);
  for (const auto& [dtype, out_dtype] : kTypes) {
    const Problem problem = gradient_of(layout, {16, 8}, 100, dtype, out_dtype);
    const SddmmInputs inputs =
        make_inputs(Sddmm(problem), {.n = 77, .pairs = 3, .padding = 8}, Inputs::random, 9);
    const std::vector<std::byte> first =
        bytes_of(launched(sddmm_kernel(problem, host(1), sddmm_config(64, kEachForItself)), problem, inputs));
    for (const std::int32_t workers : {1, 2, 7})
      for (const Config& config : {sddmm_config(16, kPackedOnce, 3), sddmm_config(100, kPackedOnce, 1, 4),
                                   sddmm_config(7, kEachForItself, 2)}) {
        const Kernel kernel = sddmm_kernel(problem, host(workers), config);
        for (int i = 0; i < 20; ++i) REQUIRE(bytes_of(launched(kernel, problem, inputs)) == first);
      }
  }
}

TEST_CASE("the gradient of the weight is scaled, and added to beta times what was there") {
  for (const auto& [dtype, out_dtype] : kTypes)
    for (const BlockShape block : {BlockShape{8, 8}, {32, 64}}) {
      Problem problem = gradient_of(grid(kAwkward), block, 70, dtype, out_dtype);
      problem.epilogue.scale = true;
      const Kernel kernel = sddmm_kernel(problem, host(), sddmm_config(32, kPackedOnce));
      // PoisonedOutput's poison is NaN: with beta = 0 none of it may be read.
      for (const float beta : {0.F, 1.F, -1.F})
        for (const std::int64_t n : {0, 3, 70})
          for (const Inputs kind : kKinds)
            check_gradient(kernel, problem, {.n = n, .pairs = 2, .alpha = 2, .beta = beta}, kind);
    }
}

TEST_CASE("gradients of biases and block scales come with that of the weight, glu and derived or not") {
  std::size_t turn = 0;
  for (const auto& [dtype, out_dtype] : kTypes)
    for (const std::int32_t stages : {kEachForItself, kPackedOnce})
      for (const bool glu : {false, true})
        for (const BlockShape block : {kBlocks[turn % 4], kBlocks[4 + turn % 4]}) {
          Problem problem = gradient_of(grid(kAwkward), block, 70, dtype, out_dtype);
          problem.bias_gradient = true;
          problem.block_scales = turn % 3 != 0;
          problem.block_scale_gradient = problem.block_scales && glu;
          problem.epilogue.scale = turn % 2 == 0;
          problem.derivative =
              std::array{Activation::none, Activation::relu, Activation::gelu, Activation::silu}[turn++ % 4];
          const Kernel kernel = sddmm_kernel(problem, host(3), sddmm_config(32, stages, longest_run(block)));
          for (const float beta : {0.F, -1.F})
            for (const std::int64_t n : {0, 1, 13, 33})
              for (const Inputs kind : kKinds)
                check_gradient(kernel, problem, {.n = n, .pairs = 2, .padding = 8, .beta = beta}, kind);
        }
}

TEST_CASE(
    "feature-major activations, partial edge blocks and any alignment give the gradient of the weight") {
  std::size_t turn = 0;
  for (const std::string& level : runnable_levels())
    for (const ActivationOrder order : {ActivationOrder::batch_major, ActivationOrder::feature_major})
      for (const auto& [dtype, out_dtype] : kTypes)
        for (const BlockShape block : {kBlocks[turn % 4], kBlocks[4 + turn % 4]}) {
          Problem problem = gradient_of(grid(kAwkward), block, 70, dtype, out_dtype);
          problem.order = order;
          problem.alignment = std::array{16, 8, 4}[turn % 3];
          problem.bias_gradient = problem.block_scales = problem.block_scale_gradient =
              problem.epilogue.scale = turn % 2 == 0;
          if (turn % 4 < 2) {
            problem.cut_in_features = problem.in_features() - block.in + 1 + 5 * (block.in / 8 - 1);
            problem.cut_out_features = problem.out_features() - block.out + 3;
          }
          problem.derivative = turn % 5 == 0 ? Activation::relu : Activation::none;
          const std::int32_t stages = turn % 3 == 0 ? kEachForItself : kPackedOnce;
          const Kernel kernel = sddmm_kernel(
              problem, {Target::Kind::cpu, level, 2},
              sddmm_config(20, stages, 1 + static_cast<std::int32_t>(turn++) % longest_run(block)));
          // Rows lie on no greater multiple of bytes than what is promised.
          const std::int64_t padding = problem.alignment / static_cast<std::int64_t>(size_of(dtype));
          for (const std::int64_t n : {0, 1, 7, 33})
            check_gradient(kernel, problem,
                           {.n = n, .pairs = 2, .padding = padding, .beta = turn % 3 == 0 ? 1.F : 0.F},
                           kKinds[turn / 2 % 2]);
        }
}

TEST_CASE("what is infinite within the edges leaves zeros beyond them, and in blocks whose scale is 0") {
  Problem problem = gradient_of(grid("11/11"), {16, 16}, 8);
  problem.cut_in_features = 20;
  problem.cut_out_features = 19;
  problem.block_scales = true;
  problem.epilogue.scale = true;
  const Sddmm gradient(problem);
  const Kernel kernel = sddmm_kernel(problem, host(), sddmm_config(16, kPackedOnce, 2));
  SddmmInputs inputs = make_inputs(gradient, {.n = 4, .beta = 1}, Inputs::small_integers, 1);
  const float infinity = std::numeric_limits<float>::infinity();
  for (auto* side : {&inputs.pairs[0].x, &inputs.pairs[0].dy})
    for (std::size_t i = 0; i < side->size() / 4; ++i)
      if (!std::isnan(to_float(DType::f32, side->data(), static_cast<std::int64_t>(i))))
        store(DType::f32, infinity, side->data(), static_cast<std::int64_t>(i));
  for (std::int64_t block = 0; block < 4; ++block)
    store(DType::f32, block == 0 ? 0.F : 1.F, inputs.block_scales.data(), block);
  SddmmOutputs outputs = launched(kernel, problem, inputs);
  std::int64_t at = 0;
  for (std::int64_t block = 0; block < 4; ++block)
    for (std::int64_t out = block / 2 * 16; out < block / 2 * 16 + 16; ++out)
      for (std::int64_t in = block % 2 * 16; in < block % 2 * 16 + 16; ++in, ++at) {
        const float value = to_float(DType::f32, outputs.dw.y(), at);
        const bool within = out < 19 && in < 20;
        const float want = !within      ? 0
                           : block == 0 ? to_float(DType::f32, inputs.old_dw.data(), at)
                                        : infinity;
        REQUIRE(value == want);
      }
}

TEST_CASE("what is beyond the edges is zeros, whatever scales the gradient") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [dtype, out_dtype] : kTypes)
    for (const std::int64_t n : {0, 1, 4})
      for (const bool scale : {false, true})
        for (const bool block_scale_gradient : {false, true}) {
          Problem problem = gradient_of(grid("11/11"), {16, 16}, 8, dtype, out_dtype);
          problem.cut_in_features = 20;
          problem.cut_out_features = 19;
          problem.block_scales = true;
          problem.block_scale_gradient = block_scale_gradient;
          problem.epilogue.scale = scale;
          const Sddmm gradient(problem);
          const Kernel kernel = sddmm_kernel(problem, host(), sddmm_config(16, kEachForItself));
          for (const float factor : {kInf, kNan}) {
            SddmmInputs inputs = make_inputs(gradient, {.n = n}, Inputs::small_integers, 1);
            for (std::int64_t block = 0; block < 4; ++block)
              store(DType::f32, block == 1 ? 1 : factor, inputs.block_scales.data(), block);
            if (scale) inputs.alpha = factor;
            const SddmmOutputs outputs = launched(kernel, problem, inputs);
            std::int64_t at = 0;
            std::int64_t not_zero = 0;
            for (std::int64_t block = 0; block < 4; ++block)
              for (std::int64_t out = block / 2 * 16; out < block / 2 * 16 + 16; ++out)
                for (std::int64_t in = block % 2 * 16; in < block % 2 * 16 + 16; ++in, ++at)
                  if ((out >= 19 || in >= 20) && to_float(out_dtype, outputs.dw.y(), at) != 0) ++not_zero;
            CAPTURE(name(dtype));
            CAPTURE(n);
            CAPTURE(scale);
            CAPTURE(block_scale_gradient);
            CAPTURE(factor);
            CHECK(not_zero == 0);
          }
        }
}

TEST_CASE("a gradient larger than the caches is right, scaled and added to what was there") {
  const Layout layout = patterns::random(96, 96, 0.95, 1);
  for (const auto& [dtype, out_dtype] :
       {std::pair{DType::f32, DType::f32}, std::pair{DType::bf16, DType::bf16}}) {
    Problem problem = gradient_of(layout, {32, 32}, 3, dtype, out_dtype);
    problem.epilogue.scale = true;
    const Kernel kernel = sddmm_kernel(problem, host(), sddmm_config(64, kEachForItself, 1, 4));
    for (const float beta : {0.F, 1.F})
      check_gradient(kernel, problem, {.n = 3, .beta = beta}, Inputs::small_integers);
  }
}

TEST_CASE("an outer product larger than the caches is right") {
  const Layout layout = patterns::random(48, 48, 0.95, 1);
  for (const auto& [dtype, out_dtype] : kTypes) {
    const Problem problem = gradient_of(layout, {64, 64}, 1, dtype, out_dtype);
    const Kernel kernel = sddmm_kernel(problem, host(), sddmm_config(64, kEachForItself, 1, 4));
    check_gradient(kernel, problem, {.n = 1}, Inputs::small_integers);
  }
}

/// Replaces what is not poison in an operand of one batch row by bf16 of all significands, sizes and signs.
std::vector<float> spread_bf16(std::vector<std::byte>& side, std::int32_t turn) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(side.size() / 2); ++i) {
    if (std::isnan(to_float(DType::bf16, side.data(), i))) continue;
    const auto number = static_cast<std::int32_t>(values.size());
    const float significand = static_cast<float>(128 + number % 128) * (number % 3 == 0 ? -1.F : 1.F);
    float value = std::ldexp(significand, (number * 37 + turn) % 113 - 68);
    if (number % 17 == 5) value = number % 2 == 0 ? 0.F : -0.F;
    store(DType::bf16, value, side.data(), i);
    values.push_back(value);
  }
  return values;
}

TEST_CASE("products of one batch row of bf16 are rounded to nearest even, whatever their size") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const std::string& level : runnable_levels())
    for (const BlockShape block : {BlockShape{8, 8}, {8, 32}, {16, 16}, {64, 32}, {32, 64}, {128, 128}}) {
      const Layout layout = patterns::random(256 / block.out, 256 / block.in, 1, 1);
      const Problem problem = gradient_of(layout, block, 1, DType::bf16, DType::bf16);
      const Kernel kernel = sddmm_kernel(problem, {Target::Kind::cpu, level, 2},
                                         sddmm_config(64, kEachForItself, longest_run(block)));
      // 1 changes nothing; with each of the others not all products are exact.
      for (const float odd_one : {1.F, 0x1p-64F, 0x1p55F, 0x1p-130F, kInf, kNan}) {
        CAPTURE(level);
        CAPTURE(to_string(block));
        CAPTURE(odd_one);
        const Sddmm gradient(problem);
        SddmmInputs inputs = make_inputs(gradient, {.n = 1}, Inputs::small_integers, 1);
        std::vector<float> x = spread_bf16(inputs.pairs[0].x, 0);
        const std::vector<float> dy = spread_bf16(inputs.pairs[0].dy, 29);
        REQUIRE(x.size() == 256);
        REQUIRE(dy.size() == 256);
        std::int64_t last = 0;
        while (to_float(DType::bf16, inputs.pairs[0].x.data(), last) != x[255]) ++last;
        store(DType::bf16, x[255] = odd_one, inputs.pairs[0].x.data(), last);
        SddmmOutputs outputs = launched(kernel, problem, inputs);
        std::int64_t at = 0;
        std::int64_t wrong = 0;
        for (std::int64_t number = 0; number < layout.blocks(); ++number)
          for (std::int64_t out = 0; out < block.out; ++out)
            for (std::int64_t in = 0; in < block.in; ++in, ++at) {
              const std::int64_t row = number / layout.cols() * block.out + out;
              const std::int64_t column = number % layout.cols() * block.in + in;
              const float a = dy[static_cast<std::size_t>(row)];
              const float b = x[static_cast<std::size_t>(column)];
              std::uint16_t want = 0;
              store(DType::bf16, a * b + 0.F, &want, 0);
              std::uint16_t got = 0;
              std::memcpy(&got, outputs.dw.y() + 2 * at, 2);
              // What vanishes in float32 keeps its sign where a multiply-add is one operation.
              const bool vanishes = a * b == 0 && a != 0 && b != 0;
              const bool same = ((got ^ want) & (vanishes ? 0x7fff : 0xffff)) == 0;
              const bool is_nan = std::isnan(to_float(DType::bf16, &got, 0));
              if (std::isnan(a * b) ? !is_nan : !same) ++wrong;
            }
        CHECK(wrong == 0);
      }
    }
}

TEST_CASE("the gradient of an empty layout is nothing, and launches") {
  const Problem problem = gradient_of(grid("000/000"), {16, 16}, 8);
  const Kernel kernel = sddmm_kernel(problem, host(), sddmm_config(64, kPackedOnce));
  check_gradient(kernel, problem, {.n = 5}, Inputs::small_integers);
}

TEST_CASE("configs that the gradient of the weight cannot take are refused") {
  const Sddmm gradient(gradient_of(grid("11/11"), {16, 16}, 8));
  CHECK_NOTHROW(validate(gradient, host(), sddmm_config(64, kPackedOnce, 4)));
  const auto refused = [&](auto change) {
    Config config = sddmm_config(64, kPackedOnce);
    change(config);
    CHECK_THROWS_AS(validate(gradient, host(), config), Error);
  };
  refused([](Config& config) { config.variant = Variant::simt; });
  refused([](Config& config) { config.tile_n = 0; });
  refused([](Config& config) { config.tile_n = 257; });
  refused([](Config& config) { config.stages = 3; });
  refused([](Config& config) { config.split = 0; });
  refused([](Config& config) { config.rows = 5; });
  refused([](Config& config) { config.tile_out = 4; });
  refused([](Config& config) { config.merge = 2; });
  refused([](Config& config) { config.packed = true; });
  refused([](Config& config) { config.table = TableForm::unrolled; });
  refused([](Config& config) { config.operand_a = OperandA::w; });
  refused([](Config& config) { config.knobs[0] = 1; });
}

}  // namespace
}  // namespace sparsekiln::cpu

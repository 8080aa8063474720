#include "autotune/cuda_defaults.h"

#include <array>
#include <cstdint>
#include <string>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "compiler/cuda/emit.h"

#include "compiler/cuda/mma_shape.h"
#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/sddmm.h"
#include "compiler/cuda/simt_shape.h"
#include "compiler/cuda/stream_shape.h"

namespace sparsekiln::cuda {
namespace {

const Target kH100 = Target::parse("h100");

Problem half_problem(BlockShape block) {
  Problem problem;
  problem.layout = Layout::from_mask(1, 1, std::vector<std::uint8_t>{1});
  problem.block = block;
  problem.dtype = problem.out_dtype = DType::f16;
  return problem;
}

TEST_CASE("float32 with ieee math runs on CUDA cores, everything else on tensor cores") {
  Problem problem = half_problem({32, 32});
  CHECK(default_config(problem, kH100, 64).variant == Variant::mma);
  problem.dtype = problem.out_dtype = DType::f32;
  CHECK(default_config(problem, kH100, 64).variant == Variant::simt);
  problem.math = Math::tf32;
  CHECK(default_config(problem, kH100, 64).variant == Variant::mma);
}

TEST_CASE("batches that 16 rows do not suit make W the operand A, where a block fills it") {
  CHECK(default_config(half_problem({32, 32}), kH100, 1).operand_a == OperandA::w);
  CHECK(default_config(half_problem({32, 32}), kH100, 1).tile_n == 8);
  CHECK(default_config(half_problem({32, 32}), kH100, 9).tile_n == 16);
  CHECK(default_config(half_problem({32, 32}), kH100, 24).operand_a == OperandA::w);
  CHECK(default_config(half_problem({32, 32}), kH100, 24).tile_n == 24);
  CHECK(default_config(half_problem({32, 32}), kH100, 32).operand_a == OperandA::x);
  CHECK(default_config(half_problem({8, 32}), kH100, 1).operand_a == OperandA::x);
  CHECK(default_config(half_problem({8, 32}), kH100, 1).tile_n == 16);
}

TEST_CASE("large batches get larger tiles, and small ones more CTAs") {
  CHECK(default_config(half_problem({32, 32}), kH100, 65).tile_n == 64);
  CHECK(default_config(half_problem({32, 32}), kH100, 8192).tile_n == 128);
  CHECK(default_config(half_problem({32, 32}), kH100, 17).split >
        default_config(half_problem({32, 32}), kH100, 64).split);
}

TEST_CASE("up to 16 batch rows stream the weight, where one tile holds them") {
  for (const std::int32_t out : {8, 16, 32, 64, 128})
    for (const std::int64_t n : {0, 1, 8, 9, 16, 17}) {
      CAPTURE(out);
      CAPTURE(n);
      Problem problem = half_problem({out, 64});
      const Config half = default_config(problem, kH100, n);
      CHECK((half.variant == Variant::stream) == (n <= 16));
      problem.dtype = problem.out_dtype = DType::f32;
      const Config ieee = default_config(problem, kH100, n);
      CHECK((ieee.variant == Variant::stream) == (n <= 8 || (n <= 16 && out <= 32)));
      for (const Config& config : {half, ieee})
        if (config.variant == Variant::stream) CHECK(config.tile_n >= n);
    }
}

TEST_CASE("the gradient of the input does not stream: that main loop reads blocks by rows") {
  Problem problem = half_problem({32, 32});
  problem.dtype = problem.out_dtype = DType::f32;
  problem.operation = Operation::grad_input;
  CHECK(default_config(problem, kH100, 1).variant == Variant::simt);
  problem.math = Math::tf32;
  CHECK(default_config(problem, kH100, 1).variant == Variant::mma);
  problem.dtype = problem.out_dtype = DType::f16;
  CHECK(default_config(problem, kH100, 1).variant == Variant::mma);
}

TEST_CASE("a kernel that streams has 64 KB in flight where shared memory is large enough") {
  for (const std::int32_t out : {8, 16, 32, 64, 128})
    for (const char* name : {"sm_80", "sm_86", "sm_90", "sm_100", "sm_120"}) {
      CAPTURE(out);
      CAPTURE(name);
      const Problem problem = half_problem({out, 64});
      const Target target = Target::parse(name);
      Config config = default_config(problem, target, 8);
      const bool enough = (config.stages - 1) * config.warps * out * 64 >= 64 * 1024;  // of the weight
      ++config.stages;
      const bool full = stream_shared_bytes(problem, config) > multiprocessor(target).shared_per_cta - 128;
      CHECK((enough || full || config.stages > kMostStreamStages));
    }
}

TEST_CASE("the stages of the CTAs that share a multiprocessor fit its shared memory") {
  for (const std::int32_t out : {8, 16, 32, 64, 128})
    for (const std::int64_t n : {17, 24, 64, 100, 4096}) {
      const Problem problem = half_problem({out, 64});
      for (const char* name : {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}) {
        const Target target = Target::parse(name);
        const Config config = default_config(problem, target, n);
        const MmaShape shape = mma_shape(problem, target, config);
        CAPTURE(out);
        CAPTURE(n);
        CAPTURE(name);
        CHECK(config.split <= resident_ctas(target, shape.threads, shape.shared_bytes + kMmaStaticShared));
        CHECK(config.split >= 1);
        CHECK(config.stages >= 2);
      }
    }
}

TEST_CASE("as many CTAs are planned as fit a multiprocessor, and no more") {
  const auto planned = [](const char* name, BlockShape block, std::int64_t n) {
    return default_config(half_problem(block), Target::parse(name), n);
  };
  // Two stages of 128 + 64 rows of 128 bytes, and of 64 + 32.
  CHECK(planned("sm_75", {64, 64}, 4096).split == 1);  // 48 KB
  CHECK(planned("sm_75", {32, 64}, 100).split == 2);   // 24 KB
  // 128 + 64 rows of 128 bytes: 24 KB a stage.
  for (const char* name : {"sm_86", "sm_89", "sm_120"}) {
    CAPTURE(name);
    CHECK(planned(name, {64, 64}, 4096).stages ==
          2);  // 2 × (48 KB + 1 KB + flag) of 100 KB; three take 146 KB
    CHECK(planned(name, {64, 64}, 4096).split == 2);
    CHECK(planned(name, {128, 64}, 4096).stages == 2);
    CHECK(planned(name, {128, 64}, 4096).split == 1);  // 64 KB
  }
  CHECK(planned("sm_90", {64, 64}, 4096).stages == 4);  // 2 × 97 KB of 228 KB
  CHECK(planned("sm_90", {64, 64}, 4096).split == 2);
}

TEST_CASE("the CTAs of CUDA cores that share a multiprocessor fit beside each other") {
  for (const std::int32_t out : {8, 16, 32, 64, 128})
    for (const std::int64_t n : {16, 17, 64})
      for (const char* name : {"sm_75", "sm_86", "sm_120"}) {
        Problem problem = half_problem({out, 128});
        problem.dtype = problem.out_dtype = DType::f32;
        const Target target = Target::parse(name);
        const Config config = default_config(problem, target, n);
        if (config.variant == Variant::stream) continue;
        const SimtShape shape = simt_shape(problem, target, config);
        CHECK(config.split <= resident_ctas(target, shape.threads, shape.shared_bytes + kSimtFlagBytes));
        const bool alone = 2 * shape.shared_bytes > 64 * 1024 - 512;  // sm_75's, less two flags rounded up
        CHECK(config.split == (alone && target.compute_capability() == 75 ? 1 : 2));
      }
}

/// Every problem that `validate` lets pass, in as many forms as decide a config.
template <class Use>
void for_each_problem(Use use) {
  struct Types {
    DType dtype;
    Math math;
  };
  constexpr std::array kTypes{Types{DType::f32, Math::ieee}, Types{DType::f32, Math::tf32},
                              Types{DType::f16, Math::ieee}, Types{DType::bf16, Math::ieee}};
  const std::array<Epilogue, 3> epilogues{
      Epilogue{}, Epilogue{.activation = Activation::silu, .glu = true},
      Epilogue{.scale = true, .bias = true, .activation = Activation::gelu, .glu = true, .residual = true}};
  constexpr std::array kSides{8, 16, 32, 64, 128};
  Problem problem;
  problem.layout = patterns::random(6, 6, 0.5, 1);
  for (const std::int32_t out : kSides)
    for (const std::int32_t in : kSides)
      for (const Types& types : kTypes)
        for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight})
          for (const ActivationOrder order : {ActivationOrder::batch_major, ActivationOrder::feature_major})
            for (int form = 0; form < 6; ++form) {
              const bool forward = operation == Operation::forward;
              problem.block = {out, in};
              problem.dtype = problem.out_dtype = types.dtype;
              problem.math = types.math;
              problem.operation = operation;
              problem.order = order;
              problem.epilogue = forward ? epilogues[static_cast<std::size_t>(form % 3)] : Epilogue{};
              problem.derivative = !forward && form % 3 == 1 ? Activation::relu : Activation::none;
              problem.bias_gradient = operation == Operation::grad_weight && form % 3 == 2;
              problem.gates = form >= 3;
              problem.cut_in_features = form >= 3 ? 6 * in - 3 : 0;
              problem.alignment = form >= 3 ? static_cast<std::int32_t>(size_of(types.dtype)) : 16;
              validate(problem);
              use(problem);
            }
}

/// What no config computes.
bool is_beyond(const Problem& problem, const Target& target) {
  const bool old = target.compute_capability() < 80;
  const bool half = problem.dtype == DType::f16 || problem.dtype == DType::bf16;
  if (old && (problem.dtype == DType::bf16 || problem.math == Math::tf32)) return true;
  // A glu pair is multiplied block by block, and 8 inputs of 16 bits do not fill the tensor core's k.
  if (problem.epilogue.glu && half && problem.block.in == 8) return true;
  // The sums of a block pass through shared memory, which has not quite 64 KB.
  return old && problem.operation == Operation::grad_weight && problem.block.out == 128 &&
         problem.block.in == 128;
}

TEST_CASE("the default of every problem and batch is a config that computes it") {
  for (const char* name : {"sm_75", "sm_80", "sm_90", "sm_100"}) {
    const Target target = Target::parse(name);
    std::size_t computed = 0;
    for_each_problem([&](const Problem& problem) {
      if (is_beyond(problem, target)) return;
      for (const std::int64_t n : {0, 1, 9, 16, 17, 64, 100, 5000}) {
        std::string what;
        try {
          if (problem.operation == Operation::grad_weight)
            validate(Sddmm(problem), target, default_config(Sddmm(problem), target, n));
          else
            validate(Spmm(problem), target, default_config(Spmm(problem), target, n));
          ++computed;
        } catch (const Error& error) {
          what = error.what();
        }
        if (what.empty()) continue;
        FAIL_CHECK(name, " ", sparsekiln::name(problem.operation), " ", sparsekiln::name(problem.dtype), " ",
                   sparsekiln::name(problem.order), " block ", to_string(problem.block), " epilogue ",
                   to_string(problem.epilogue), " n ", n, ": ", what);
      }
    });
    CHECK(computed > 10000);
  }
}

}  // namespace
}  // namespace sparsekiln::cuda

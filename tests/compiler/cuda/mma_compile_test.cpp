// Emitted tensor-core kernels through NVRTC.

#include <algorithm>
#include <set>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "autotune/cuda/defaults.h"
#include "compiler/cuda/families.h"
#include "compiler/cuda/nvrtc.h"
#include "compiler/cuda/nvrtc_choice.h"
#include "compiler/cuda/resources.h"
#include "tests/compiler/cuda/mma_cases.h"
#include "tests/compiler/cuda/need_nvrtc.h"

namespace sparsekiln::cuda {
namespace {

std::size_t count(const std::string& text, std::string_view wanted) {
  std::size_t found = 0;
  for (std::size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1)) ++found;
  return found;
}

/// Compiles one entry and holds it to what every kernel must keep: no spills, no message of the compilers.
NvrtcOutput compile_clean(const Problem& problem, const Target& target, const Config& config) {
  const Plan plan{{problem.batch.bound(), config}};
  const Source source = emit_plan(problem, target, plan);
  const NvrtcOutput output = find_nvrtc()->compile(source.text, code_arch(target, plan));
  const Resources resources = read_resources(output.cubin, source.entries.front().passes.front(), output.log);
  CHECK(resources.spill_load_bytes == 0);
  CHECK(resources.spill_store_bytes == 0);
  CHECK(resources.stack_bytes == 0);
  CHECK(output.log.find("warning") == std::string::npos);
  return output;
}

/// The default config of a problem.
void compile_default(const Problem& problem, const Target& target, std::int64_t n) {
  const Config config = default_config(problem, target, n);
  CAPTURE(target.arch);
  CAPTURE(n);
  CAPTURE(to_string(problem.block));
  CAPTURE(to_string(config));
  CHECK(config.variant != Variant::simt);
  (void)compile_clean(problem, target, config);
}

TEST_CASE("default tensor-core kernels of every block side and size of batch compile without spills" *
          need_nvrtc()) {
  const Types types[] = {kHalf, kBrain, kTf32, kHalfToFloat};
  std::size_t turn = 0;
  for (const char* arch : {"sm_80", "sm_90"})
    for (const std::int32_t side : kSides)
      for (const std::int64_t n : {1, 20, 64, 1000}) {
        const Target target{Target::Kind::cuda, arch, 6};
        const Problem problem = mma_problem({side, kSides.begin()[turn % 5]}, n, types[turn % 4]);
        ++turn;
        compile_default(problem, target, n);
      }
}

TEST_CASE("default tensor-core kernels of the gradient of the input compile without spills" * need_nvrtc()) {
  const Types types[] = {kHalf, kBrain, kTf32, kHalfToFloat};
  std::size_t turn = 0;
  for (const char* arch : {"sm_80", "sm_90", "sm_75"})
    for (const std::int32_t side : kSides)
      for (const std::int64_t n : {1, 64, 1000}) {
        const Target target{Target::Kind::cuda, arch, 6};
        const Types chosen = target.compute_capability() < 80 ? kHalf : types[turn % 4];
        Problem problem = mma_problem({kSides.begin()[turn % 5], side}, n, chosen);
        problem.operation = Operation::grad_input;
        ++turn;
        compile_default(problem, target, n);
      }
}

TEST_CASE("default tensor-core kernels of feature-major activations compile without spills" * need_nvrtc()) {
  const Types types[] = {kHalf, kBrain, kTf32, kHalfToFloat};
  std::size_t turn = 0;
  for (const char* arch : {"sm_80", "sm_90", "sm_75"})
    for (const std::int32_t side : kSides) {
      const Target target{Target::Kind::cuda, arch, 6};
      const std::int64_t n = turn % 3 == 0 ? 64 : turn % 3 == 1 ? 1001 : 7;
      const Types chosen = target.compute_capability() < 80 ? kHalf : types[turn % 4];
      Problem problem = mma_problem({kSides.begin()[turn * 3 % 5], side}, n, chosen);
      problem.operation = turn % 2 == 0 ? Operation::forward : Operation::grad_input;
      problem.order = ActivationOrder::feature_major;
      ++turn;
      compile_default(problem, target, n);
    }
}

TEST_CASE("default tensor-core kernels of other architectures compile without spills" * need_nvrtc()) {
  const Types types[] = {kHalf, kBrain, kTf32, kHalfToFloat};
  std::size_t turn = 0;
  for (const char* arch : {"sm_75", "sm_86", "sm_89", "sm_100", "sm_120"})
    for (const std::int32_t side : {8, 32, 128})
      for (const std::int64_t n : {1, 64, 1000}) {
        const Target target{Target::Kind::cuda, arch, 6};
        const Types chosen = target.compute_capability() < 80 ? kHalf : types[turn % 4];
        const Problem problem = mma_problem({side, kSides.begin()[turn % 5]}, n, chosen);
        ++turn;
        compile_default(problem, target, n);
      }
}

/// Edges, block scales, and a derivative where there is one: what the default kernels of any layer may have
/// to do beside the products, all at once.
Problem with_all_loads(Problem problem, std::size_t turn) {
  problem.cut_in_features = problem.in_features() - 3;
  problem.cut_out_features = problem.out_features() - 5;
  problem.block_scales = true;
  problem.alignment = turn % 3 == 0 ? 16 : turn % 3 == 1 ? 8 : problem.out_dtype == DType::f32 ? 4 : 2;
  if (turn % 2 == 0) return problem;
  problem.operation = Operation::grad_input;
  problem.derivative = turn % 4 == 1 ? Activation::gelu : Activation::gelu_tanh;
  return problem;
}

TEST_CASE("default tensor-core kernels with edges, block scales and a derivative compile without spills" *
          need_nvrtc()) {
  const Types types[] = {kHalf, kBrain, kTf32, kHalfToFloat};
  std::size_t turn = 0;
  for (const char* arch : {"sm_80", "sm_90", "sm_75"})
    for (const std::int32_t side : kSides) {
      const Target target{Target::Kind::cuda, arch, 6};
      const std::int64_t n = turn % 3 == 0 ? 64 : turn % 3 == 1 ? 1001 : 7;
      const Types chosen = target.compute_capability() < 80 ? kHalf : types[turn % 4];
      Problem problem = with_all_loads(mma_problem({kSides.begin()[turn * 3 % 5], side}, n, chosen), turn);
      if (turn % 5 < 2) problem.order = ActivationOrder::feature_major;
      ++turn;
      compile_default(problem, target, n);
    }
}

TEST_CASE("what is not refused for sm_75, whose chunks pass through registers, compiles without spills" *
          need_nvrtc()) {
  const Target target{Target::Kind::cuda, "sm_75", 6};
  std::size_t compiled = 0;
  for (const std::int32_t side : {16, 64, 128})
    for (const std::int32_t tile_n : {64, 128, 256})
      for (const std::int32_t warps : {1, 2, 4}) {
        const OperandA operand_a = (side / 16 + warps) % 2 == 0 ? OperandA::x : OperandA::w;
        const Config config = mma_config(tile_n, operand_a, 2, warps);
        const Problem problem = mma_problem({side, 64}, 256, kHalf);
        CAPTURE(to_string(problem.block));
        CAPTURE(to_string(config));
        try {
          validate(problem, target, config);
        } catch (const Error&) {
          continue;
        }
        ++compiled;
        (void)compile_clean(problem, target, config);
      }
  CHECK(compiled >= 8);
}

TEST_CASE("tiles of 64 sums a thread compile without spills" * need_nvrtc()) {
  const Target target{Target::Kind::cuda, "sm_90", 6};
  for (const Types types : {kHalf, kTf32}) {
    (void)compile_clean(mma_problem({128, 64}, 256, types), target, mma_config(128, OperandA::x, 3, 8));
    (void)compile_clean(mma_problem({64, 64}, 256, types), target, mma_config(128, OperandA::w, 3, 4));
  }
}

TEST_CASE("tensor-core kernels compile for every architecture that has the instructions" * need_nvrtc()) {
  const auto nvrtc = find_nvrtc();
  for (const int arch : nvrtc->architectures()) {
    if (arch < 75) continue;
    CAPTURE(arch);
    const Target target{Target::Kind::cuda, fmt::format("sm_{}", arch), 6};
    for (const Types types : {kHalf, kBrain, kTf32}) {
      if (arch < 80 && types.dtype != DType::f16) continue;
      const NvrtcOutput output =
          compile_clean(mma_problem({32, 32}, 64, types), target, mma_config(64, OperandA::x, 2, 4));
      const char* const instruction = arch < 80                    ? "m16n8k8.row.col.f32.f16"
                                      : types.dtype == DType::f16  ? "m16n8k16.row.col.f32.f16"
                                      : types.dtype == DType::bf16 ? "m16n8k16.row.col.f32.bf16"
                                                                   : "m16n8k8.row.col.f32.tf32";
      CHECK(count(output.ptx, instruction) > 0);
      CHECK((count(output.ptx, "cp.async") > 0) == (arch >= 80));
    }
  }
}

TEST_CASE("the main loop has one copy of the products, fed by loads of four matrices" * need_nvrtc()) {
  const Target target{Target::Kind::cuda, "sm_80", 6};
  const NvrtcOutput output =
      compile_clean(mma_problem({32, 64}, 64, kHalf), target, mma_config(64, OperandA::x, 3, 4));
  CHECK(count(output.ptx, "mma.sync") == 16);  // 16 × 32 sums a warp, 64 of k
  CHECK(count(output.ptx, "ldmatrix.sync.aligned.m8n8.x4") == 12);
  CHECK(count(output.ptx, "ldmatrix") == 12);
}

TEST_CASE("products of 8-bit floats are added to sums after each instruction" * need_nvrtc()) {
  const Target target{Target::Kind::cuda, "sm_89", 6};
  const auto compiled = [&](Types types) {
    return compile_clean(mma_problem({32, 64}, 64, types), target, mma_config(64, OperandA::x, 3, 4)).ptx;
  };
  const auto additions = [](const std::string& ptx) {
    return count(ptx, "add.f32") + count(ptx, "add.rn.f32");
  };
  const auto others = additions(compiled(kHalfToFloat));  // of parts
  for (const Types types : {kE4m3, kE5m2}) {
    const std::string ptx = compiled(types);
    CHECK(count(ptx, "mma.sync") == 16);
    CHECK(additions(ptx) == others + 4 * 16);
  }
  const std::string integers = compiled(kI8);
  CHECK(count(integers, "m16n8k32.row.col.s32.s8.s8.s32") == 16);
  CHECK(additions(integers) == 0);
}

TEST_CASE("two compiles of a tensor-core kernel agree byte for byte" * need_nvrtc()) {
  const Target target{Target::Kind::cuda, "sm_90", 6};
  const Problem problem = mma_problem({16, 32}, 40, kBrain);
  const Config config = mma_config(40, OperandA::w, 4, 1);
  const NvrtcOutput first = compile_clean(problem, target, config);
  const NvrtcOutput second = compile_clean(problem, target, config);
  CHECK(first.cubin == second.cubin);
  CHECK(first.ptx == second.ptx);
}

}  // namespace
}  // namespace sparsekiln::cuda

// The kernels that multiply what they load into registers: their shapes, and their code through NVRTC.

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/direct_shape.h"
#include "compiler/cuda/emit.h"
#include "compiler/cuda/families.h"
#include "compiler/cuda/nvrtc.h"
#include "compiler/cuda/nvrtc_choice.h"
#include "compiler/cuda/resources.h"
#include "tests/compiler/cuda/mma_cases.h"
#include "tests/compiler/cuda/need_nvrtc.h"

namespace sparsekiln::cuda {
namespace {

constexpr Types kIeee{DType::f32, DType::f32, Math::ieee};
const Target kHopper{Target::Kind::cuda, "sm_90", 6};

Config direct_config(std::int32_t tile_n, OperandA operand_a, std::int32_t stages, std::int32_t warps) {
  Config config;
  config.variant = Variant::direct;
  config.tile_n = tile_n;
  config.operand_a = operand_a;
  config.stages = stages;
  config.warps = warps;
  return config;
}

std::string refusal(const Problem& problem, const Config& config) {
  try {
    validate(problem, kHopper, config);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  return {};
}

TEST_CASE("a chunk in registers is 64 bytes of k: a part of a block, a block, or several") {
  const auto chunk = [](std::int32_t in, const Types& types) {
    return direct_shape(mma_problem({32, in}, 8, types), kHopper, direct_config(16, OperandA::x, 1, 4)).chunk;
  };
  CHECK(chunk(8, kHalf) == ChunkShape{4, 1});
  CHECK(chunk(16, kHalf) == ChunkShape{2, 1});
  CHECK(chunk(32, kHalf) == ChunkShape{1, 1});
  CHECK(chunk(128, kHalf) == ChunkShape{1, 4});
  CHECK(chunk(128, kTf32) == ChunkShape{1, 8});
}

TEST_CASE(
    "what does not go together in a kernel with operands in registers is refused, with what would work") {
  const auto refused = [](const Types& types, std::int32_t side, const Config& config,
                          std::string_view wanted) {
    const std::string why = refusal(mma_problem({side, 32}, 8, types), config);
    CAPTURE(why);
    CHECK(why.find(wanted) != std::string::npos);
  };
  const Config config = direct_config(16, OperandA::x, 2, 4);
  CHECK(refusal(mma_problem({32, 32}, 8, kHalf), config).empty());
  refused(kIeee, 32, config, "variant simt would work");
  refused(kHalf, 32, direct_config(8, OperandA::x, 2, 4), "a power of two from 16 to 64");
  refused(kHalf, 32, direct_config(24, OperandA::w, 2, 4), "a power of two from 8 to 64");
  refused(kHalf, 8, direct_config(8, OperandA::w, 2, 4), "operand_a=x with tile_n=16 would work");
  refused(kHalf, 128, direct_config(64, OperandA::x, 1, 2), "a smaller tile_n or tile_out would work");
  refused(kHalf, 32, direct_config(16, OperandA::x, 3, 4), "is 1 or 2");
  refused(kHalf, 32, direct_config(16, OperandA::x, 2, 3), "warps is a power of two");
  Config other = config;
  other.rows = 2;
  refused(kHalf, 32, other, "rows=1 would work");
  other = config;
  other.table = TableForm::unrolled;
  refused(kHalf, 32, other, "table=constant would work");
  Problem other_problem = mma_problem({32, 32}, 8, kHalf);
  other_problem.operation = Operation::grad_input;
  CHECK(refusal(other_problem, config).empty());
  other_problem.derivative = Activation::relu;
  CHECK(refusal(other_problem, config).empty());
  other = config;
  other.knobs[0] = 1;
  CHECK(refusal(other_problem, other).find("panels=0 would work") != std::string::npos);
  other_problem = mma_problem({32, 32}, 8, kHalf);
  other_problem.cut_in_features = other_problem.in_features() - 8;
  CHECK(refusal(other_problem, config).empty());
  other_problem.cut_in_features = other_problem.in_features() - 3;
  CHECK(refusal(other_problem, config).find("pieces of 16 bytes") != std::string::npos);
  other_problem = mma_problem({32, 32}, 8, kHalf);
  other_problem.epilogue.glu = true;
  CHECK(refusal(other_problem, config).empty());
  other = config;
  other.tile_out = 8;
  CHECK(refusal(other_problem, other).find("warps=8 would work") != std::string::npos);
}

TEST_CASE("panels have a pass before the product and a place after the sums of a batch tile") {
  Problem problem = mma_problem({16, 8}, 100, kHalf);
  Config config = direct_config(32, OperandA::x, 1, 4);
  config.knobs[0] = 1;
  const Source source = emit_plan(problem, kHopper, {{100, config}});
  const Entry& entry = source.entries.front();
  CHECK(entry.passes == std::vector<std::string>{"sparsekiln_panels_0", "sparsekiln_forward_0"});
  CHECK(entry.attributes.passes_overlap);
  CHECK_FALSE(entry.attributes.overlaps_previous);
  const std::int64_t panels = std::int64_t{32} * 8 * 2 * problem.layout.cols();
  CHECK(entry.workspace.bytes_per_tile >= panels);
  CHECK((entry.workspace.bytes_per_tile - panels) % 128 == 0);
  CHECK_FALSE(emit_plan(problem, {Target::Kind::cuda, "sm_80", 6}, {{100, config}})
                  .entries.front()
                  .attributes.passes_overlap);
  config.knobs[0] = 2;
  CHECK(refusal(problem, config).find("panels is 0 or 1") != std::string::npos);
  config = {.variant = Variant::mma, .tile_n = 32, .knobs = {1}};
  CHECK(refusal(problem, config).find("variant mma with a knob") != std::string::npos);
}

/// With as many CTAs of a multiprocessor as there are registers for.
Config crowded(const Problem& problem, const Target& target, Config config) {
  config.split = 1;
  const auto fits = [&](std::int32_t split) {
    Config more = config;
    more.split = split;
    return direct_fits(problem, target, more);
  };
  while (config.split < 8 && fits(config.split + 1)) ++config.split;
  return config;
}

void check_crowded(const Problem& problem, const Target& target, const Config& config) {
  const Plan plan{{problem.batch.bound(), crowded(problem, target, config)}};
  const Source source = emit_plan(problem, target, plan);
  const NvrtcOutput output = find_nvrtc()->compile(source.text, code_arch(target, plan));
  const Resources resources = read_resources(output.cubin, source.entries.front().passes.back(), output.log);
  CAPTURE(target.arch);
  CAPTURE(to_string(problem.block));
  CAPTURE(to_string(plan));
  CHECK(resources.spill_load_bytes + resources.spill_store_bytes + resources.stack_bytes == 0);
  CHECK(resources.registers * 32 * config.warps * plan[0].config.split <= 65536);
  // A quarter of a row, or of 64 bytes of it.
  // By columns, a lane has a word of each eight outputs.
  const Spmm product(problem);
  const auto row = product.by_columns()
                       ? 2 * product.block.out
                       : product.block.in * static_cast<std::int32_t>(size_of(problem.dtype));
  const std::string wanted = fmt::format("no_allocate.L2::128B.{}u32", row == 16   ? ""
                                                                       : row == 32 ? "v2."
                                                                                   : "v4.");
  std::size_t loads = 0;
  for (std::size_t at = output.ptx.find("no_allocate"); at != std::string::npos;
       at = output.ptx.find("no_allocate", at + 1)) {
    CHECK(output.ptx.compare(at, wanted.size(), wanted) == 0);
    ++loads;
  }
  CHECK(loads > 0);
  CHECK(output.ptx.find("cp.async") == std::string::npos);
}

TEST_CASE(
    "a direct kernel loads a quarter of a row for each lane, and does not spill with the fewest registers "
    "that it is given" *
    need_nvrtc()) {
  for (const char* const arch : {"sm_80", "sm_90"})
    for (const Types& types : {kHalf, kBrain, kTf32})
      for (const std::int32_t side : {8, 16, 32, 64})
        for (const std::int32_t stages : {1, 2}) {
          if (types.dtype == DType::bf16 && stages == 1) continue;  // as f16
          const Target target{Target::Kind::cuda, arch, 6};
          check_crowded(mma_problem({side, side}, 32, types), target,
                        direct_config(side < 64 ? 32 : 16, OperandA::x, stages, 4));
        }
  check_crowded(mma_problem({16, 16}, 64, kHalf), kHopper, direct_config(64, OperandA::x, 1, 4));
  for (const std::int32_t side : {8, 16}) {
    Config panels = direct_config(64, OperandA::x, 1, 8);
    panels.knobs[0] = 1;
    check_crowded(mma_problem({side, side}, 60, kHalf), kHopper, panels);
  }
  Problem ends = mma_problem({32, 32}, 32, kHalf);
  ends.epilogue = {.scale = true, .bias = true, .activation = Activation::gelu, .residual = true};
  check_crowded(ends, kHopper, direct_config(32, OperandA::x, 2, 4));
  ends.overlap_launches = true;
  check_crowded(ends, kHopper, direct_config(32, OperandA::x, 2, 8));
  check_crowded(mma_problem({64, 64}, 8, kHalf), kHopper, direct_config(8, OperandA::w, 2, 8));
  check_crowded(mma_problem({32, 32}, 8, kTf32), kHopper, direct_config(8, OperandA::w, 2, 16));
  check_crowded(mma_problem({32, 32}, 30, kHalf), kHopper, direct_config(32, OperandA::x, 2, 4));
}

TEST_CASE(
    "a direct kernel does not spill where it has block scales, edges, pairs, cells, columns, derivatives, "
    "slices or "
    "8-bit types" *
    need_nvrtc()) {
  const auto check = [](std::int32_t side, const Types& types, const auto& change) {
    Problem problem = mma_problem({side, side}, 32, types);
    change(problem);
    for (const std::int32_t stages : {1, 2}) {
      Config config = direct_config(32, OperandA::x, stages, 8);
      config.table = TableForm::global;  // as the tuner takes it
      if (side == 64) config.tile_out = 32;
      if (stages == 1 || direct_fits(problem, kHopper, config)) check_crowded(problem, kHopper, config);
    }
  };
  for (const std::int32_t side : {16, 32, 64}) {
    check(side, kHalf, [](Problem&) {});
    check(side, kHalf, [](Problem& problem) { problem.block_scales = true; });
    check(side, kHalf, [](Problem& problem) { problem.cut_in_features = problem.in_features() - 8; });
    check(side, kHalf, [](Problem& problem) { problem.epilogue = {.bias = true, .glu = true}; });
    check(side, kBrain, [](Problem& problem) { problem.epilogue = {.lstm = true}; });
    check(side, kBrain, [](Problem& problem) { problem.operation = Operation::grad_input; });
    check(side, kTf32, [](Problem& problem) { problem.operation = Operation::grad_input; });
    check(side, {DType::e4m3, DType::bf16}, [](Problem&) {});
    for (const Activation activation :
         {Activation::relu, Activation::gelu, Activation::silu, Activation::mish})
      for (const Types& types : {kHalf, kTf32})
        check(side, types, [=](Problem& problem) {
          problem.operation = Operation::grad_input;
          problem.derivative = activation;
        });
    check(side, kBrain, [](Problem& problem) {
      problem.operation = Operation::grad_input;
      problem.derivative = Activation::gelu;
      problem.block_scales = true;
      problem.cut_out_features = problem.out_features() - 8;
    });
    check(side, kBrain, [](Problem& problem) {
      problem.operation = Operation::grad_input;
      problem.epilogue = {.residual = true, .lstm = true};
    });
  }
}

}  // namespace
}  // namespace sparsekiln::cuda

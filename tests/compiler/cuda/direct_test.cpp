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
  refused(kHalf, 8, direct_config(8, OperandA::w, 2, 4), "operand_a=x would work");
  refused(kHalf, 128, direct_config(64, OperandA::x, 1, 2), "a smaller tile_n would work");
  refused(kHalf, 32, direct_config(16, OperandA::x, 3, 4), "is 1 or 2");
  refused(kHalf, 32, direct_config(16, OperandA::x, 2, 3), "warps is a power of two");
  Config other = config;
  other.rows = 2;
  refused(kHalf, 32, other, "rows=1 would work");
  other = config;
  other.table = TableForm::unrolled;
  refused(kHalf, 32, other, "table=constant would work");
  Problem backward = mma_problem({32, 32}, 8, kHalf);
  backward.operation = Operation::grad_input;
  CHECK(refusal(backward, config).find("variant direct computes forward") != std::string::npos);
}

TEST_CASE(
    "the operands of a direct kernel are loaded by 16 bytes, its loop has no barrier, and nothing spills" *
    need_nvrtc()) {
  for (const char* const arch : {"sm_80", "sm_90"})
    for (const Types& types : {kHalf, kBrain, kTf32})
      for (const std::int32_t side : {8, 16, 32, 64}) {
        const Target target{Target::Kind::cuda, arch, 6};
        const Problem problem = mma_problem({side, side}, 32, types);
        const Config config = direct_config(32, OperandA::x, side < 64 ? 2 : 1, 4);
        const Plan plan{{32, config}};
        const Source source = emit_plan(problem, target, plan);
        const NvrtcOutput output = find_nvrtc()->compile(source.text, code_arch(target, plan));
        const Resources resources =
            read_resources(output.cubin, source.entries.front().passes.front(), output.log);
        CAPTURE(arch);
        CAPTURE(side);
        CHECK(resources.spill_load_bytes + resources.spill_store_bytes + resources.stack_bytes == 0);
        // The estimate decides how many CTAs a multiprocessor is taken to hold.
        CHECK(resources.registers <= direct_shape(problem, target, config).registers + 24);
        std::size_t loads = 0;
        for (std::size_t at = output.ptx.find("no_allocate"); at != std::string::npos;
             at = output.ptx.find("no_allocate", at + 1)) {
          CHECK(output.ptx.compare(at, 24, "no_allocate.L2::128B.v4.") == 0);
          ++loads;
        }
        CHECK(loads > 0);
        CHECK(output.ptx.find("cp.async") == std::string::npos);
      }
}

TEST_CASE("direct kernels of sixteen warps, which have half of the registers, do not spill" * need_nvrtc()) {
  struct Case {
    Types types;
    std::int32_t side;
    Config config;
  };
  for (const auto& [types, side, config] : {Case{kHalf, 16, direct_config(64, OperandA::x, 1, 16)},
                                            Case{kHalf, 64, direct_config(16, OperandA::x, 1, 16)},
                                            Case{kTf32, 32, direct_config(8, OperandA::w, 2, 16)}}) {
    const Problem problem = mma_problem({side, side}, 64, types);
    const Plan plan{{64, config}};
    const Source source = emit_plan(problem, kHopper, plan);
    const NvrtcOutput output = find_nvrtc()->compile(source.text, code_arch(kHopper, plan));
    const Resources resources =
        read_resources(output.cubin, source.entries.front().passes.front(), output.log);
    CAPTURE(to_string(config));
    CHECK(resources.spill_load_bytes + resources.spill_store_bytes + resources.stack_bytes == 0);
  }
}

}  // namespace
}  // namespace sparsekiln::cuda

// The kernels that stream the weight: their shapes, and their code through NVRTC.

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/emit.h"
#include "compiler/cuda/nvrtc.h"
#include "compiler/cuda/nvrtc_choice.h"
#include "compiler/cuda/resources.h"
#include "compiler/cuda/stream_shape.h"
#include "tests/compiler/cuda/mma_cases.h"
#include "tests/compiler/cuda/need_nvrtc.h"

namespace sparsekiln::cuda {
namespace {

constexpr Types kIeee{DType::f32, DType::f32, Math::ieee};

Config stream_config(std::int32_t tile_n, OperandA operand_a, std::int32_t stages, std::int32_t warps) {
  Config config;
  config.variant = Variant::stream;
  config.tile_out = 0;
  config.tile_n = tile_n;
  config.operand_a = operand_a;
  config.stages = stages;
  config.warps = warps;
  return config;
}

std::string refusal(const Problem& problem, const Target& target, const Config& config) {
  try {
    validate(problem, target, config);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  return {};
}

const Target kHopper{Target::Kind::cuda, "sm_90", 6};

TEST_CASE("a chunk is 64 bytes of k: a part of a block, a block, or several") {
  const auto chunk = [](std::int32_t in, const Types& types) {
    return stream_shape(mma_problem({32, in}, 8, types), kHopper, stream_config(16, OperandA::x, 3, 4)).chunk;
  };
  CHECK(chunk(8, kHalf) == ChunkShape{4, 1});
  CHECK(chunk(16, kHalf) == ChunkShape{2, 1});
  CHECK(chunk(32, kHalf) == ChunkShape{1, 1});
  CHECK(chunk(128, kHalf) == ChunkShape{1, 4});
  CHECK(chunk(8, kTf32) == ChunkShape{2, 1});
  CHECK(chunk(128, kIeee) == ChunkShape{1, 8});
}

TEST_CASE("what does not go together in a kernel that streams is refused, with what would work") {
  const auto refused = [](const Types& types, std::int32_t side, const Config& config,
                          std::string_view wanted) {
    const std::string why = refusal(mma_problem({side, 32}, 8, types), kHopper, config);
    CAPTURE(why);
    CHECK(why.find(wanted) != std::string::npos);
  };
  Config config = stream_config(16, OperandA::x, 3, 4);
  CHECK(refusal(mma_problem({32, 32}, 8, kHalf), kHopper, config).empty());
  refused(kHalf, 32, stream_config(8, OperandA::x, 3, 4), "a power of two from 16 to 32");
  refused(kHalf, 32, stream_config(24, OperandA::w, 3, 4), "a power of two from 8 to 32");
  refused(kHalf, 8, stream_config(8, OperandA::w, 3, 4), "operand_a=x with tile_n=16 would work");
  refused(kIeee, 32, stream_config(8, OperandA::w, 3, 4), "leave operand_a out");
  refused(kIeee, 128, stream_config(16, OperandA::x, 3, 4), "smaller tile_n would work");
  refused(kHalf, 32, stream_config(16, OperandA::x, 1, 4), "stages is 2 to 8");
  refused(kHalf, 32, stream_config(16, OperandA::x, 3, 3), "warps is a power of two");
  refused(kHalf, 128, stream_config(16, OperandA::w, 8, 8), "bytes of shared memory");
  const std::pair<const char*, const char*> others[] = {
      {"rows=2", "rows=1 would work"},
      {"merge=2", "merge=1 would work"},
      {"tile_out=12", "tile_out, the outputs of a warp, is 0 or a power of two"},
      {"tile_out=4", "from 8 to 32"},
      {"table=unrolled", "table=constant would work"},
      {"packed=1", "packed=0 would work"}};
  for (const auto& [text, wanted] : others)
    refused(kHalf, 32, parse_config(fmt::format("stream tile_n=16 tile_out=0 stages=3 warps=4 {}", text)),
            wanted);
  const Target turing{Target::Kind::cuda, "sm_75", 6};
  CHECK(refusal(mma_problem({32, 32}, 8, kBrain), turing, config).find("bf16 is for sm_80 and later") !=
        std::string::npos);
}

TEST_CASE("what is not refused compiles without spills, at the edge of the registers too" * need_nvrtc()) {
  struct Edge {
    std::string arch;
    std::int32_t side;
    Types types;
    Config config;
  };
  const Edge edges[] = {
      {"sm_90", 128, kHalf, stream_config(32, OperandA::w, 2, 4)},
      {"sm_80", 128, kTf32, stream_config(16, OperandA::x, 2, 4)},
      {"sm_90", 128, kIeee, stream_config(8, OperandA::x, 2, 8)},
      {"sm_80", 64, kIeee, stream_config(8, OperandA::x, 3, 8)},
      {"sm_90", 32, kIeee, stream_config(16, OperandA::x, 3, 8)},
      {"sm_90", 8, kBrain, stream_config(32, OperandA::x, 4, 16)},
      {"sm_75", 64, kHalf, stream_config(16, OperandA::w, 2, 4)},
      {"sm_75", 64, kIeee, stream_config(8, OperandA::x, 2, 4)},
      {"sm_75", 32, kIeee, stream_config(16, OperandA::x, 2, 4)},
      {"sm_120", 128, kTf32, stream_config(8, OperandA::w, 2, 4)},
  };
  for (const Edge& edge : edges) {
    const Target target{Target::Kind::cuda, edge.arch, 6};
    const Problem problem = mma_problem({edge.side, 32}, 40, edge.types);
    CAPTURE(edge.arch);
    CAPTURE(edge.side);
    CAPTURE(to_string(edge.config));
    const Source source = emit_plan(problem, target, {{40, edge.config}});
    const NvrtcOutput output = find_nvrtc()->compile(source.text, target.arch);
    const Resources resources =
        read_resources(output.cubin, source.entries.front().passes.front(), output.log);
    CHECK(resources.spill_load_bytes == 0);
    CHECK(resources.spill_store_bytes == 0);
    CHECK(resources.stack_bytes == 0);
    CHECK_MESSAGE(output.log.find("warning") == std::string::npos, output.log);
  }
}

}  // namespace
}  // namespace sparsekiln::cuda

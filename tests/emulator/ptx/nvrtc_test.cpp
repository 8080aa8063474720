#include <algorithm>
#include <cctype>

#include "compiler/cuda/nvrtc_choice.h"
#include "emulator/ptx/parse.h"

#include "tests/compiler/cuda/need_nvrtc.h"
#include "tests/emulator/ptx/text.h"

using namespace sparsekiln::ptx;
using sparsekiln::cuda::find_nvrtc;
using sparsekiln::cuda::need_nvrtc;

namespace {

/// Constant data, static and dynamic shared memory, a parameter passed by value, inline assembly with a scope
/// and labels, a loop, predicates.
constexpr const char* kSource = R"(
struct Pair { float a; char b; };
__constant__ unsigned short table[5] = {1, 2, 515};
extern "C" __global__ void __launch_bounds__(64) kernel(const float* __restrict__ x, float* y, Pair pair, int n) {
  extern __shared__ float dynamic[];
  __shared__ float tile[64];
  const int i = threadIdx.x;
  tile[i] = i < n ? x[i] : pair.a;
  dynamic[i] = table[i % 5];
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += tile[(i + k) % 64] * dynamic[k % 64];
  float twice;
  asm volatile("{\n.reg .f32 t;\n.reg .pred P;\nmov.f32 t, %1;\nLOOP:\nsetp.lt.f32 P, t, 0f3F800000;\n@P bra DONE;\n"
               "mul.f32 t, t, 0f3F000000;\nbra LOOP;\nDONE:\nadd.f32 %0, t, t;\n}" : "=f"(twice) : "f"(sum));
  y[i] = twice;
}
)";

/// Lines that are an instruction: each has one of its own.
std::size_t instructions_in(std::string_view ptx) {
  std::size_t count = 0;
  ptx.remove_prefix(ptx.find(".entry"));
  while (!ptx.empty()) {
    const std::string_view line = ptx.substr(0, ptx.find('\n'));
    ptx.remove_prefix(std::min(ptx.size(), line.size() + 1));
    const std::size_t first = line.find_first_not_of("\t ");
    if (first == std::string_view::npos || line.back() != ';') continue;
    if (line[first] == '@' || std::islower(static_cast<unsigned char>(line[first])) != 0) ++count;
  }
  return count;
}

}  // namespace

TEST_SUITE_BEGIN("emulator/ptx what NVRTC writes");

TEST_CASE("each architecture's PTX is read whole" * need_nvrtc()) {
  for (const char* arch : {"sm_75", "sm_80", "sm_90", "sm_90a"}) {
    CAPTURE(arch);
    const std::string ptx = find_nvrtc()->compile(kSource, arch).ptx;
    const Module module = parse(ptx);
    CHECK("sm_" + std::to_string(module.compute_capability) + (module.architecture_specific ? "a" : "") ==
          arch);
    REQUIRE(module.functions.size() == 1);
    const Function& function = module.functions[0];
    CHECK(function.name == "kernel");
    CHECK(function.max_threads == 64);
    REQUIRE(function.parameters.size() == 4);
    CHECK(function.parameters[2].bytes == 8);
    CHECK(function.parameters[3].offset == 24);
    CHECK(function.statements.size() == instructions_in(ptx));
    CHECK(function.statements.back().opcode == "ret");
  }
}

TEST_CASE("module data comes with its bytes" * need_nvrtc()) {
  const Module module = parse(find_nvrtc()->compile(kSource, "sm_80").ptx);
  const auto named = [&](std::string_view name) {
    const auto found =
        std::find_if(module.variables.begin(), module.variables.end(),
                     [&](const Variable& variable) { return variable.name.find(name) != std::string::npos; });
    REQUIRE(found != module.variables.end());
    return *found;
  };
  const Variable table = named("table");
  CHECK(table.space == Space::constant);
  CHECK(table.bytes == 10);
  REQUIRE(table.initial.size() >= 6);
  CHECK(table.initial[2] == 2);
  CHECK(table.initial[4] == 3);
  CHECK(table.initial[5] == 2);
  CHECK(named("dynamic").external);
  REQUIRE(module.functions[0].variables.size() == 1);
  CHECK(module.functions[0].variables[0].bytes == 256);
}

TEST_SUITE_END();

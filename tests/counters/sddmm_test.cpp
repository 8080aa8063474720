#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/patterns.h>

#include "compiler/block_runs.h"
#include "oracle/sddmm_check.h"
#include "runtime/cuda/emulator.h"
#include "runtime/open_device.h"
#include "runtime/resident_sddmm.h"
#include "tests/temporary_folder.h"

// What the emulator counts of the default kernels of grad_weight.

namespace sparsekiln::test {
namespace {

struct Types {
  DType dtype;
  DType out;
  Math math;
};

struct Counted {
  std::string what;
  Resources resources;
  std::uint64_t bytes_to_move = 0;
  std::vector<cuda::CountedLine> lines;
};

/// dy once for each run, x once for each block, dw once.
std::uint64_t bytes_to_move(const Sddmm& gradient, const BlockRuns& schedule, std::int64_t entries) {
  const auto element = static_cast<std::int64_t>(size_of(gradient.dtype));
  const auto runs = static_cast<std::int64_t>(schedule.runs.size());
  const std::int64_t blocks = gradient.layout.blocks();
  return static_cast<std::uint64_t>(
      entries * element * (runs * gradient.block.out + blocks * gradient.block.in) +
      blocks * gradient.block_elements() * static_cast<std::int64_t>(size_of(gradient.out_dtype)));
}

Counted count(BlockShape block, Types types, const std::string& target) {
  const TemporaryFolder folder;
  constexpr std::int64_t kBatch = 70;
  const Layout layout = patterns::random(8, 16, 0.4, 3);
  const Options options = {.block = block,
                           .batch = kBatch,
                           .dtype = types.dtype,
                           .out_dtype = types.out,
                           .operation = Operation::grad_weight,
                           .math = types.math,
                           .target = "emulated:" + target,
                           .cache_dir = folder.path()};
  const Sddmm gradient(make_problem(layout, options));
  const Kernel kernel = compile(layout, options);
  const std::shared_ptr<const Device> device = open_device(options.target);
  const SddmmInputs inputs = make_inputs(gradient, {.n = kBatch, .pairs = 2}, Inputs::small_integers, 1);
  SddmmOutputs outputs(gradient, inputs);
  ResidentSddmm operands(gradient, device, inputs, outputs);
  const cuda::Emulator emulator;
  emulator.reset_counters();
  kernel(operands[0]);
  device->synchronize();
  operands.fetch(outputs);
  CHECK(check(gradient, inputs, outputs, adder_of(gradient.ieee(), kernel.binary().plan)).ok);
  const Config& config = kernel.binary().plan.front().config;
  return {fmt::format("{}, block {}, {} to {} {}, '{}'", target, to_string(block), name(types.dtype),
                      name(types.out), name(types.math), to_string(config)),
          kernel.binary().entries.front().resources,
          bytes_to_move(gradient, make_block_runs(gradient, kernel.binary().target, config), 2 * kBatch),
          emulator.counters()};
}

const std::vector<Counted>& defaults() {
  static const std::vector<Counted> all = [] {
    std::vector<Counted> result;
    for (const Types& types :
         {Types{DType::f32, DType::f32, Math::ieee}, Types{DType::f32, DType::f32, Math::tf32},
          Types{DType::f16, DType::f16, Math::ieee}, Types{DType::bf16, DType::f32, Math::ieee}})
      for (const BlockShape block :
           {BlockShape{8, 8}, {16, 16}, {32, 32}, {64, 64}, {128, 128}, {16, 64}, {64, 16}})
        for (const char* const target : {"sm_90:132", "sm_90:4"})
          result.push_back(count(block, types, target));
    result.push_back(count({32, 32}, {DType::f16, DType::f16, Math::ieee}, "sm_75:4"));
    return result;
  }();
  return all;
}

}  // namespace

TEST_CASE("no default gradient of the weight meets a bank conflict, or spills a register") {
  for (const Counted& run : defaults()) {
    CHECK_MESSAGE(run.resources.spill_store_bytes + run.resources.stack_bytes == 0, run.what);
    for (const cuda::CountedLine& line : run.lines)
      CHECK_MESSAGE(line.shared_wavefronts == line.shared_ideal, run.what << ": " << line.instruction);
  }
}

TEST_CASE("a default gradient of the weight moves what its schedule names, and no more") {
  for (const Counted& run : defaults()) {
    std::uint64_t moved = 0;
    for (const cuda::CountedLine& line : run.lines) moved += line.global_bytes;
    CHECK_MESSAGE(moved == run.bytes_to_move, run.what);
  }
}

TEST_CASE("a default gradient of blocks 32 bytes wide reads and writes whole sectors") {
  for (const Counted& run : defaults()) {
    if (run.what.find("block 8x8") != std::string::npos) continue;
    for (const cuda::CountedLine& line : run.lines)
      CHECK_MESSAGE(line.global_sectors * 32 == line.global_bytes, run.what << ": " << line.instruction);
  }
}

}  // namespace sparsekiln::test

#include "autotune/prediction.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/patterns.h>

#include "autotune/cuda/work.h"
#include "autotune/default_plan.h"
#include "compiler/schedule.h"
#include "oracle/sddmm_check.h"
#include "oracle/spmm_check.h"
#include "oracle/spmm_inputs.h"
#include "runtime/cuda/emulator.h"
#include "runtime/open_device.h"
#include "runtime/operands.h"
#include "runtime/resident_sddmm.h"
#include "tests/temporary_folder.h"

// What the cost model says that a launch does, compared with what the emulator counts.

namespace sparsekiln::test {
namespace {

struct Types {
  DType dtype;
  Math math;
};

constexpr Types kHalf{DType::f16, Math::ieee};
constexpr Types kTf32{DType::f32, Math::tf32};
constexpr Types kIeee{DType::f32, Math::ieee};

/// One launch. An empty config: the default.
struct Launch {
  Operation operation;
  BlockShape block;
  std::int64_t n;
  Types types;
  std::string target;
  std::string config;
  Activation derivative = Activation::none;
};

std::vector<Launch> launches() {
  std::vector<Launch> result;
  constexpr BlockShape kBlocks[] = {{16, 16}, {32, 32}, {64, 64}, {128, 128}, {16, 64}, {64, 16}};
  constexpr std::int64_t kBatches[] = {1, 16, 64, 130};
  const char* const targets[] = {"sm_90:4", "sm_90:132"};  // of which the second has more workers than rows
  std::size_t at = 0;
  for (const Types& types : {kHalf, kTf32, kIeee})
    for (const BlockShape block : kBlocks) {
      // Each of these with each operation, and a batch and a target in turn.
      result.push_back({Operation::forward, block, kBatches[at % 4], types, targets[at / 4 % 2], ""});
      result.push_back(
          {Operation::grad_input, block, kBatches[(at + 2) % 4], types, targets[at / 2 % 2], ""});
      if (at % 2 == 0) result.push_back({Operation::grad_weight, block, 70, types, targets[at / 2 % 2], ""});
      ++at;
    }
  const auto forward = [&](BlockShape block, std::int64_t n, Types types, const char* target,
                           const char* config) {
    result.push_back({Operation::forward, block, n, types, target, config});
  };
  forward({32, 32}, 64, {DType::bf16, Math::ieee}, "sm_80:4", "");
  forward({64, 64}, 130, kHalf, "sm_75:4", "");
  forward({32, 32}, 64, kHalf, "sm_90:4", "mma tile_n=64 warps=2 stages=4 rows=2");
  forward({64, 64}, 64, kTf32, "sm_90:4", "mma tile_n=64 warps=8 stages=3 rows=4");
  forward({32, 32}, 100, kHalf, "sm_90:4", "mma tile_n=32 warps=2 stages=4 rows=3 split=2");
  forward({32, 32}, 64, kHalf, "sm_90:4", "mma tile_n=32 warps=2 stages=3 merge=2");
  forward({32, 32}, 64, kHalf, "sm_90:4", "mma tile_n=8 warps=1 stages=3 merge=4 operand_a=w");
  forward({64, 64}, 100, kHalf, "sm_90:16", "mma tile_n=64 warps=4 stages=3 split=2");
  forward({32, 32}, 64, kIeee, "sm_90:16", "simt tile_n=64 tile_out=4 warps=4 stages=2 split=4");
  forward({32, 32}, 64, kIeee, "sm_90:4", "simt tile_n=32 tile_out=4 warps=4 stages=2 rows=2");
  forward({32, 32}, 8, kHalf, "sm_90:16", "stream tile_n=8 warps=4 stages=4 operand_a=w split=3");
  forward({8, 8}, 61, kHalf, "sm_90:16", "direct tile_n=32 warps=2 stages=1 split=2");
  forward({16, 16}, 33, kHalf, "sm_80:16", "direct tile_n=64 warps=4 stages=1");
  forward({32, 32}, 8, kHalf, "sm_90:16", "direct tile_n=8 warps=4 stages=2 operand_a=w split=3");
  forward({64, 64}, 16, kHalf, "sm_90:16", "direct tile_n=16 warps=8 stages=1 operand_a=w");
  forward({128, 64}, 40, kTf32, "sm_90:16", "direct tile_n=16 tile_out=32 warps=4 stages=1 operand_a=w");
  forward({64, 64}, 8, kHalf, "sm_90:16", "direct tile_n=8 tile_out=16 warps=8 stages=2 operand_a=w");
  forward({32, 16}, 16, kHalf, "sm_90:16", "direct tile_n=16 tile_out=16 warps=4 stages=1");
  forward({32, 32}, 20, {DType::e4m3, Math::ieee}, "sm_90:16", "direct tile_n=16 warps=4 stages=2");
  for (const BlockShape block : {BlockShape{32, 32}, {16, 64}, {64, 16}})
    for (const Types types : {kHalf, kTf32})
      result.push_back(
          {Operation::grad_input, block, 24, types, "sm_90:16", "direct tile_n=16 warps=4 stages=1"});
  for (const Activation derivative : {Activation::relu, Activation::gelu})
    result.push_back({Operation::grad_input,
                      {32, 32},
                      24,
                      kHalf,
                      "sm_90:16",
                      "direct tile_n=16 warps=4 stages=1",
                      derivative});
  forward({32, 32}, 64, kHalf, "sm_90:4", "mma tile_n=64 warps=2 stages=4 table=global");
  forward({64, 64}, 64, kHalf, "sm_90:4", "mma tile_n=64 warps=4 stages=4 rows=2 table=global");
  forward({64, 64}, 100, kHalf, "sm_90:16", "mma tile_n=64 warps=4 stages=3 split=2 table=global");
  forward({32, 32}, 64, kIeee, "sm_90:4", "simt tile_n=64 tile_out=4 warps=4 stages=2 table=global");
  forward({64, 64}, 130, kHalf, "sm_90:4", "wgmma tile_n=128 stages=4 warps=12");
  const auto of_rows = [&](Operation operation, BlockShape block, std::int64_t n, const char* numbers) {
    const std::int32_t outputs = operation == Operation::forward ? block.out : block.in;
    result.push_back({operation, block, n, kHalf, "sm_90:8",
                      fmt::format("wgmma_rows operand_a=w merge={} {}", 64 / outputs, numbers)});
  };
  for (const Operation operation : {Operation::forward, Operation::grad_input})
    for (const BlockShape block : {BlockShape{64, 64}, {32, 32}, {16, 16}, {16, 64}, {64, 16}}) {
      of_rows(operation, block, 256, "tile_n=128 stages=4 warps=12 rows=2");
      of_rows(operation, block, 700, "tile_n=256 stages=3 warps=16 rows=3 cluster=2");
    }
  forward({64, 64}, 256, kHalf, "sm_90:4", "wgmma tile_n=128 stages=3 warps=12 rows=2 cluster=2");
  forward({64, 128}, 300, kTf32, "sm_90:4", "wgmma tile_n=128 stages=3 warps=12 merge=2");
  forward({128, 64}, 256, {DType::bf16, Math::ieee}, "sm_90:4", "wgmma tile_n=256 stages=3 warps=12");
  forward({128, 128}, 512, kHalf, "sm_90:16", "wgmma tile_n=128 stages=4 warps=12 cluster=2");
  forward({64, 64}, 256, kHalf, "sm_90:4", "wgmma tile_n=128 stages=3 warps=12 cluster_rows=2");
  forward({64, 64}, 300, kHalf, "sm_90:16", "wgmma tile_n=128 stages=3 warps=12 cluster_rows=2 cluster=2");
  forward({64, 64}, 256, kHalf, "sm_90:4", "wgmma tile_n=128 stages=3 warps=12 rows=2 cluster_rows=2");
  forward({128, 128}, 512, kHalf, "sm_90:8", "wgmma tile_n=256 stages=3 warps=12 split=3 cluster_rows=2");
  forward({64, 64}, 130, kHalf, "sm_90:4", "wgmma tile_n=128 stages=3 warps=12 rows=4");
  forward({64, 64}, 512, kHalf, "sm_90:4", "wgmma tile_n=256 stages=3 warps=12 rows=2");
  result.push_back(
      {Operation::grad_input, {64, 64}, 256, kHalf, "sm_90:4", "wgmma tile_n=128 stages=4 warps=12 rows=2"});
  forward({64, 64}, 300, kHalf, "sm_90:4", "wgmma tile_n=128 stages=3 warps=12 cluster=2");  // three tiles
  result.push_back({Operation::grad_input,
                    {128, 64},
                    300,
                    kHalf,
                    "sm_90:16",
                    "wgmma tile_n=256 stages=3 warps=12 merge=2"});
  result.push_back({Operation::grad_weight,
                    {32, 32},
                    70,
                    kHalf,
                    "sm_90:4",
                    "mma tile_n=64 warps=4 stages=3 rows=4 table=global"});
  constexpr Types kE4m3{DType::e4m3, Math::ieee};
  constexpr Types kI8{DType::i8, Math::ieee};
  forward({64, 128}, 256, kE4m3, "sm_90:4", "wgmma tile_n=128 stages=4 warps=12");
  forward({128, 64}, 300, kE4m3, "sm_90:4", "wgmma tile_n=128 stages=3 warps=12 rows=2");
  forward({64, 128}, 256, kI8, "sm_90:4", "wgmma tile_n=256 stages=4 warps=12");
  forward({64, 64}, 64, kE4m3, "sm_89:4", "mma tile_n=64 warps=4 stages=3");
  forward({32, 32}, 64, kI8, "sm_80:4", "mma tile_n=32 warps=2 stages=4");
  const auto grad_weight = [&](BlockShape block, std::int64_t n, DType dtype, const char* config) {
    result.push_back({Operation::grad_weight, block, n, {dtype, Math::ieee}, "sm_90:4", config});
  };
  grad_weight({128, 128}, 512, DType::f16, "wgmma tile_n=64 stages=4 warps=12 rows=2");
  grad_weight({128, 64}, 300, DType::bf16, "wgmma tile_n=128 stages=3 warps=12 rows=1");
  grad_weight({64, 64}, 200, DType::f16, "wgmma tile_n=64 stages=3 warps=12 rows=2");
  grad_weight({64, 64}, 70, DType::f16, "wgmma tile_n=64 stages=4 warps=12 rows=4");
  grad_weight({64, 128}, 1000, DType::bf16, "wgmma tile_n=128 stages=2 warps=12 rows=2");
  grad_weight({64, 64}, 200, DType::bf16, "grouped tile_n=32 stages=4 warps=16 rows=12");
  grad_weight({64, 128}, 300, DType::f16, "grouped tile_n=32 stages=5 warps=16 rows=12");
  grad_weight({128, 128}, 64, DType::bf16, "grouped tile_n=32 stages=6 warps=16 rows=6");
  // Four CTAs share a group, a slice of the batch each.
  result.push_back({Operation::grad_weight,
                    {64, 64},
                    1100,
                    kHalf,
                    "sm_90:132",
                    "grouped tile_n=32 stages=5 warps=16 rows=12"});
  return result;
}

struct Counted {
  std::string what;
  cuda::Work expected;
  bool splits = false;
  std::int64_t bytes = 0;
  std::int64_t products = 0;
  std::int64_t others = 0;
};

void run_product(const Problem& problem, const Kernel& kernel, const std::shared_ptr<const Device>& device,
                 std::int64_t n, const cuda::Emulator& emulator) {
  const HostInputs inputs = make_inputs(problem, n, Inputs::small_integers, 1);
  PoisonedOutput output(problem, n);
  DeviceMemory x(device, inputs.x.size());
  DeviceMemory w(device, inputs.w.size());
  DeviceMemory y(device, output.image().size());
  DeviceMemory z(device, inputs.x.size());
  x.copy_in(inputs.x.data());
  w.copy_in(inputs.w.data());
  y.copy_in(output.image().data());
  const std::int64_t features = Spmm(problem).in_features();
  Operands operands =
      operands_of(problem.operation, view(x.data(), problem.dtype, n, features),
                  view(w.data(), problem.dtype, problem.layout.blocks(), problem.block.out, problem.block.in),
                  output.view(y.data()));
  if (problem.derivative != Activation::none) {
    z.copy_in(inputs.of("z").bytes.data());
    operands.z = view(z.data(), problem.dtype, n, features);
  }
  emulator.reset_counters();
  kernel(operands);
  device->synchronize();
}

void run_gradient(const Sddmm& gradient, const Kernel& kernel, const std::shared_ptr<const Device>& device,
                  std::int64_t n, const cuda::Emulator& emulator) {
  const SddmmInputs inputs = make_inputs(gradient, {.n = n, .pairs = 1}, Inputs::small_integers, 1);
  SddmmOutputs outputs(gradient, inputs);
  ResidentSddmm operands(gradient, device, inputs, outputs);
  emulator.reset_counters();
  kernel(operands[0]);
  device->synchronize();
}

Counted count(const Launch& launch) {
  const TemporaryFolder folder;
  const Layout layout =
      launch.config.empty() ? patterns::random(8, 16, 0.4, 3) : patterns::watts_strogatz(24, 24, 0.3, 0.3, 1);
  Options options = {.block = launch.block,
                     .batch = launch.n,
                     .dtype = launch.types.dtype,
                     .operation = launch.operation,
                     .math = launch.types.math,
                     .derivative = launch.derivative,
                     .target = "emulated:" + launch.target,
                     .cache_dir = folder.path()};
  const Problem problem = make_problem(layout, options);
  if (launch.config.empty()) {
    options.config = choose_plan(problem, resolve_target(options.target)).front().config;
    options.config->table = TableForm::constant;  // of others, what is read is known approximately
  } else {
    options.config = parse_config(launch.config);
  }
  const Kernel kernel = compile(layout, options);
  const Target& target = kernel.binary().target;
  const Config& config = kernel.binary().plan.front().config;
  const std::shared_ptr<const Device> device = open_device(options.target);
  const cuda::Emulator emulator;

  Counted counted;
  counted.what = fmt::format("{} on {}, block {}, batch {}, {} {}, '{}'", name(launch.operation),
                             launch.target, to_string(launch.block), launch.n, name(launch.types.dtype),
                             name(launch.types.math), to_string(config));
  if (launch.operation == Operation::grad_weight) {
    const Sddmm gradient(problem);
    run_gradient(gradient, kernel, device, launch.n, emulator);
    counted.expected =
        cuda::work_of(gradient, target, config, make_block_runs(gradient, target, config), launch.n);
  } else {
    run_product(problem, kernel, device, launch.n, emulator);
    const Schedule schedule = make_schedule(problem, target, config, launch.n);
    counted.splits = schedule.counters > 0;
    counted.expected = cuda::work_of(problem, target, config, schedule, launch.n);
  }
  for (const cuda::CountedLine& line : emulator.counters()) {
    counted.bytes += static_cast<std::int64_t>(line.global_bytes);
    // What fences products of wgmma and waits for them is counted with the others.
    (line.tensor_operations > 0 ? counted.products : counted.others) +=
        static_cast<std::int64_t>(line.executed);
  }
  return counted;
}

const std::vector<Counted>& all() {
  static const std::vector<Counted> counted = [] {
    std::vector<Counted> result;
    for (const Launch& launch : launches()) result.push_back(count(launch));
    return result;
  }();
  return counted;
}

}  // namespace

TEST_CASE("the cost model knows each byte of global memory that a kernel moves") {
  int split = 0;
  for (const Counted& run : all()) {
    CHECK_MESSAGE(run.expected.global_bytes == run.bytes, run.what);
    split += run.splits;
  }
  CHECK(split > 5);
}

TEST_CASE("the cost model knows each tensor-core instruction that a kernel executes") {
  std::int64_t products = 0;
  for (const Counted& run : all()) {
    CHECK_MESSAGE(run.expected.products == run.products, run.what);
    products += run.products;
  }
  CHECK(products > 0);
}

TEST_CASE("the cost model knows all other instructions of a kernel within 20 %") {
  for (const Counted& run : all()) {
    REQUIRE(run.others > 0);
    const double ratio = static_cast<double>(run.expected.instructions) / static_cast<double>(run.others);
    CHECK_MESSAGE(ratio > 0.8, run.what << ": " << ratio << " of " << run.others);
    CHECK_MESSAGE(ratio < 1.2, run.what << ": " << ratio << " of " << run.others);
  }
}

TEST_CASE("bytes that come from memory once are part of those that are moved, and what an operand has") {
  for (const Counted& run : all()) {
    CHECK_MESSAGE(run.expected.memory_bytes <= run.bytes, run.what);
    CHECK_MESSAGE(run.expected.memory_bytes > 0, run.what);
  }
}

}  // namespace sparsekiln::test

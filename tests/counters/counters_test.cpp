#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/patterns.h>

#include "autotune/default_plan.h"
#include "compiler/cuda/emit.h"
#include "compiler/schedule.h"
#include "compiler/spmm.h"
#include "oracle/spmm_check.h"
#include "oracle/spmm_inputs.h"
#include "runtime/cuda/emulator.h"
#include "runtime/open_device.h"
#include "runtime/operands.h"
#include "tests/temporary_folder.h"

// What the emulator counts of the kernels that a user gets without asking for a config: exact figures, so
// that waste in how they reach memory is a failure, not a slow kernel found later.

namespace sparsekiln::test {
namespace {

struct Types {
  DType dtype;
  Math math;
};

/// What a kernel must move through global memory, and no more: for each batch tile the tiles of x that its
/// schedule loads, once for each of the warps that share a chunk, and each block, and each part of a split
/// row to the workspace and back, with 4 bytes for the arrival and 4 to take the row's counter back; y once.
/// The tables of the schedule are in constant memory.
std::uint64_t bytes_to_move(const Spmm& problem, const Target& target, const Config& config,
                            const Schedule& schedule, std::int64_t n) {
  REQUIRE(config.table == TableForm::constant);
  const std::int64_t tiles = (n + config.tile_n - 1) / config.tile_n;
  const auto element = static_cast<std::int64_t>(size_of(problem.dtype));
  const ScheduleFigures found = figures(schedule);
  const std::int64_t part = std::int64_t{4} * config.rows * config.merge * problem.block.out * config.tile_n;
  const std::int64_t shares = cuda::chunk_shape(problem, target, config).shares;
  const std::int64_t x = shares * found.loads * n * problem.block.in * element;
  const std::int64_t w = tiles * problem.layout.blocks() * problem.block.out * problem.block.in * element;
  const std::int64_t y = n * problem.out_features() * static_cast<std::int64_t>(size_of(problem.out_dtype));
  const std::int64_t combine = tiles * (schedule.partials * (2 * part + 4) + schedule.counters * 4);
  return static_cast<std::uint64_t>(x + w + y + combine);
}

struct Counted {
  std::string what;
  std::uint64_t bytes_to_move = 0;
  std::vector<cuda::CountedLine> lines;  ///< what each of the kernel's lines did
};

/// Whether a line feeds the main loop: what a loop of tensor cores reads and copies, 16 bytes a lane, or
/// words of floats whose columns it wants.
bool feeds(const cuda::CountedLine& line) {
  if (line.kind == "matrix_load" || line.kind == "copy") return true;
  if (line.kind != "memory_shared") return false;
  for (const char* const load : {".v4", "ld.shared.v2.b32", "ld.shared.b32"})
    if (line.instruction.find(load) != std::string::npos) return true;
  return false;
}

/// The default config with tables in constant memory, which are not counted.
Config default_with_constants(const Layout& layout, Options options) {
  Config config = choose_plan(make_problem(layout, options), resolve_target(options.target)).front().config;
  config.table = TableForm::constant;
  return config;
}

/// Runs a kernel of one layer: the default one, unless a config is given.
Counted count(const Layout& layout, BlockShape block, std::int64_t n, Types types, const std::string& arch,
              const std::optional<Config>& config = {}, Operation operation = Operation::forward) {
  const TemporaryFolder folder;
  Options options = {.block = block,
                     .batch = n,
                     .dtype = types.dtype,
                     .operation = operation,
                     .math = types.math,
                     .target = "emulated:" + arch,
                     .cache_dir = folder.path()};
  options.config = config ? *config : default_with_constants(layout, options);
  const Problem problem = make_problem(layout, options);
  const Kernel kernel = compile(layout, options);
  REQUIRE(kernel.binary().plan.front().config.variant != Variant::simt);
  const std::shared_ptr<const Device> device = open_device(options.target);
  const HostInputs inputs = make_inputs(problem, n, Inputs::small_integers, 1);
  PoisonedOutput output(problem, n);
  DeviceMemory x(device, inputs.x.size());
  DeviceMemory w(device, inputs.w.size());
  DeviceMemory y(device, output.image().size());
  x.copy_in(inputs.x.data());
  w.copy_in(inputs.w.data());
  y.copy_in(output.image().data());
  const cuda::Emulator emulator;
  emulator.reset_counters();
  kernel(operands_of(operation, view(x.data(), problem.dtype, n, Spmm(problem).in_features()),
                     view(w.data(), problem.dtype, layout.blocks(), block.out, block.in),
                     output.view(y.data())));
  device->synchronize();
  y.copy_out(output.image().data());
  CHECK(check(problem, inputs, output, adder_of(problem, kernel.binary().plan)).ok);

  const Plan& plan = kernel.binary().plan;
  const Target& target = kernel.binary().target;
  const Schedule schedule =
      make_schedule(problem, target, plan.front().config, scheduled_n(problem.batch, plan, 0));
  return {fmt::format("{} on {}, block {}, batch {}, {} {}", name(operation), arch, to_string(block), n,
                      name(types.dtype), name(types.math)),
          bytes_to_move(problem, target, plan.front().config, schedule, n), emulator.counters()};
}

constexpr Types kTypes[] = {{DType::f16, Math::ieee}, {DType::bf16, Math::ieee}, {DType::f32, Math::tf32}};

/// The default kernels of many layers, each run once.
const std::vector<Counted>& defaults() {
  static const std::vector<Counted> all = [] {
    const Layout layout = patterns::random(8, 16, 0.4, 3);
    std::vector<Counted> result;
    for (const BlockShape block : {BlockShape{16, 16}, {32, 32}, {64, 64}, {128, 128}, {16, 64}, {64, 16}})
      for (const Types& types : kTypes)
        for (const std::int64_t n : {1, 16, 64, 130})
          result.push_back(count(layout, block, n, types, "sm_90"));
    for (const BlockShape block : {BlockShape{16, 16}, {32, 32}, {128, 128}, {16, 64}, {64, 16}})
      for (const Types& types : kTypes)
        for (const std::int64_t n : {1, 24, 64, 130})
          result.push_back(count(layout, block, n, types, "sm_90", {}, Operation::grad_input));
    result.push_back(count(layout, {32, 32}, 64, kTypes[0], "sm_75", {}, Operation::grad_input));
    for (const BlockShape block : {BlockShape{16, 16}, {64, 64}})
      for (const std::int64_t n : {1, 130}) result.push_back(count(layout, block, n, kTypes[0], "sm_75"));
    return result;
  }();
  return all;
}

}  // namespace

TEST_CASE("no bank conflict slows the main loop of a default kernel, block 16 and larger") {
  for (const Counted& run : defaults()) {
    std::uint64_t loads = 0;
    for (const cuda::CountedLine& line : run.lines) {
      if (!feeds(line)) continue;
      if (line.kind != "copy") loads += line.executed;
      CHECK_MESSAGE(line.shared_wavefronts == line.shared_ideal,
                    run.what << ": " << line.instruction << " (PTX line " << line.ptx_line << ") takes "
                             << line.shared_wavefronts << " wavefronts, " << line.shared_ideal
                             << " would do");
    }
    // The tensor cores of wgmma read shared memory themselves, and what `direct` multiplies was never there.
    const bool reads_itself = std::any_of(run.lines.begin(), run.lines.end(), [](const auto& line) {
      return line.instruction.find("wgmma.mma_async") != std::string::npos ||
             line.instruction.find("no_allocate") != std::string::npos;
    });
    CHECK_MESSAGE((loads > 0 || reads_itself), run.what);
  }
}

TEST_CASE(
    "a default kernel moves at most 1.1 times the global sectors that its bytes need, block 16 and larger") {
  for (const Counted& run : defaults()) {
    std::uint64_t sectors = 0;
    std::uint64_t bytes = 0;
    for (const cuda::CountedLine& line : run.lines) {
      sectors += line.global_sectors;
      bytes += line.global_bytes;
    }
    REQUIRE(bytes > 0);
    const double ratio = 32.0 * static_cast<double>(sectors) / static_cast<double>(bytes);
    CHECK_MESSAGE(ratio <= 1.1,
                  run.what << ": " << sectors << " sectors for " << bytes << " bytes, ratio " << ratio);
  }
}

TEST_CASE("a default kernel moves each byte of its schedule once: nothing is loaded or stored twice") {
  for (const Counted& run : defaults()) {
    std::uint64_t bytes = 0;
    for (const cuda::CountedLine& line : run.lines) bytes += line.global_bytes;
    CHECK_MESSAGE(bytes == run.bytes_to_move,
                  run.what << ": " << bytes << " bytes, " << run.bytes_to_move << " would do");
  }
}

TEST_CASE(
    "kernels with row groups and merged rows move each byte of their schedule once, and meet no bank "
    "conflict") {
  const Layout layout = patterns::watts_strogatz(24, 24, 0.3, 0.3, 1);
  for (const char* text :
       {"mma tile_n=64 warps=2 stages=4 rows=2", "mma tile_n=64 warps=4 stages=3 rows=4",
        "mma tile_n=32 warps=2 stages=4 rows=3 split=2", "mma tile_n=32 warps=2 stages=3 merge=2",
        "mma tile_n=8 warps=1 stages=3 merge=4 operand_a=w"}) {
    const Counted run = count(layout, {32, 32}, 64, kTypes[0], "sm_90:4", parse_config(text));
    std::uint64_t bytes = 0;
    for (const cuda::CountedLine& line : run.lines) {
      bytes += line.global_bytes;
      if (line.kind == "matrix_load" || line.kind == "copy")
        CHECK_MESSAGE(line.shared_wavefronts == line.shared_ideal, text << ": " << line.instruction);
    }
    CHECK_MESSAGE(bytes == run.bytes_to_move, text << ": " << bytes << " bytes, " << run.bytes_to_move);
  }
}

void check_others(const Counted& run, Types types) {
  std::uint64_t products = 0;
  std::uint64_t others = 0;
  for (const cuda::CountedLine& line : run.lines)
    (line.kind == "tensor" ? products : others) += line.executed;
  REQUIRE(products > 0);
  const double ratio = static_cast<double>(others) / static_cast<double>(products);
  CHECK_MESSAGE(ratio <= (types.math == Math::tf32 ? 7 : 3),
                run.what << ": " << others << " others, " << products << " products, ratio " << ratio);
}

TEST_CASE("parts of split rows are combined 16 bytes at a time, by one atomic, without a fence") {
  const Layout layout = patterns::random(4, 96, 0.7, 5);
  for (const char* text :
       {"mma tile_n=64 warps=2 stages=4 split=2", "mma tile_n=64 warps=4 stages=3 rows=2"}) {
    const Counted run = count(layout, {32, 32}, 64, kTypes[0], "sm_90:32", parse_config(text));
    std::uint64_t loads = 0;
    std::uint64_t atomics = 0;
    for (const cuda::CountedLine& line : run.lines) {
      const auto is = [&](const char* what) { return line.instruction.starts_with(what); };
      CHECK_FALSE(is("fence."));
      CHECK_FALSE(is("membar."));
      if (is("ld.relaxed.")) CHECK_MESSAGE(is("ld.relaxed.gpu.global.v4.f32"), line.instruction);
      if (is("ld.relaxed.")) loads += line.executed;
      if (is("atom.")) CHECK_MESSAGE(is("atom.acq_rel.gpu.global.add.u32"), line.instruction);
      if (is("atom.")) atomics += line.executed;
    }
    CHECK(loads > 0);  // else no row was split
    CHECK(atomics > 0);
  }
}

/// What each CTA computes of a layer of 12288 × 12288 at 10 % in blocks of 32, on a GPU of 132
/// multiprocessors: three rows of 38 blocks, here for 8 multiprocessors. Larger blocks: as many values. tf32
/// is rounded fragment by fragment, by an instruction each, and its products are half as long.
TEST_CASE(
    "a kernel of large tiles executes at most 3 other instructions a product, block 32 and batch 64 and "
    "larger") {
  const auto tiles = [](std::int32_t side) {
    return parse_config(side == 32   ? "mma tile_n=64 warps=2 stages=4"
                        : side == 64 ? "mma tile_n=64 warps=4 stages=4"
                                     : "mma tile_n=64 warps=8 stages=4");
  };
  for (const std::int32_t side : {32, 64, 128})
    for (const std::int64_t n : {64, 192})
      for (const Types& types : {kTypes[0], kTypes[2]}) {
        const Layout layout = patterns::watts_strogatz(24, 12288 / side, 0.1, 0.3, 1);
        check_others(count(layout, {side, side}, n, types, "sm_90:8", tiles(side)), types);
      }
  for (const std::int32_t side : {32, 128})
    for (const Types& types : {kTypes[0], kTypes[2]}) {
      const Layout layout = patterns::watts_strogatz(12288 / side, 24, 0.1, 0.3, 1);
      check_others(count(layout, {side, side}, 64, types, "sm_90:8", tiles(side), Operation::grad_input),
                   types);
    }
}

/// By its datasheet an H100 SXM reads 3.35 TB/s and adds and multiplies 67 TFLOP/s in float32, on 132
/// multiprocessors of 128 lanes: at the clock that this takes a multiprocessor gets 12.8 bytes a cycle, and
/// issues 4 warp instructions. With tensor cores at most half of what can be issued while the weight's bytes
/// come; on CUDA cores, which multiply by instructions, 0.6 for 8 batch rows, and for 16 nearly all.
TEST_CASE("a kernel that streams the weight issues its instructions in the time that its bytes take") {
  constexpr double kClock = 67e12 / (132 * 128 * 2);
  constexpr double kOfByte = 4 / (3.35e12 / 132 / kClock);
  for (const std::int32_t side : {16, 32, 64, 128})
    for (const std::int64_t n : {1, 8, 16})
      for (const Types& types : {kTypes[0], kTypes[2], Types{DType::f32, Math::ieee}}) {
        const bool ieee = types.dtype == DType::f32 && types.math == Math::ieee;
        if (ieee && n > 8 && side > 32) continue;
        const Layout layout = patterns::watts_strogatz(24, 12288 / side, 0.1, 0.3, 1);
        const Config config =
            parse_config(fmt::format("stream tile_n={} warps=8 stages={} operand_a={}", n <= 8 ? 8 : 16,
                                     side == 128 ? 2 : 4, ieee ? "x" : "w"));
        const Counted run = count(layout, {side, side}, n, types, "sm_90:8", config);
        std::uint64_t executed = 0;
        for (const cuda::CountedLine& line : run.lines) executed += line.executed;
        const double bytes =
            static_cast<double>(layout.blocks()) * side * side * static_cast<double>(size_of(types.dtype));
        const double share = static_cast<double>(executed) / bytes / kOfByte;
        CHECK_MESSAGE(share <= (!ieee    ? 0.5
                                : n <= 8 ? 0.6
                                         : 0.9),
                      run.what << ": " << share << " of what is issued meanwhile");
      }
}

}  // namespace sparsekiln::test

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/patterns.h>

#include "autotune/cuda/work.h"
#include "compiler/cuda/emit.h"
#include "compiler/schedule.h"
#include "compiler/spmm.h"
#include "tests/counters/default_launch.h"

// What the emulator counts of the default kernels of the cell of an LSTM and of its gradient.

namespace sparsekiln::test {
namespace {

struct Types {
  DType dtype;
  Math math;
};

struct Cell {
  Operation operation;
  Epilogue epilogue;
};
constexpr Cell kCells[] = {{Operation::forward, {.lstm = true}},
                           {Operation::forward, {.lstm = true, .keep = true}},
                           {Operation::grad_input, {.residual = true, .lstm = true}}};

struct Counted {
  std::string what;
  Variant variant = Variant::simt;
  bool splits = false;
  Resources resources;
  std::int64_t bytes_to_move = 0;
  cuda::Work expected;  ///< by the model
  std::vector<cuda::CountedLine> lines;
};

/// What a kernel must move through global memory, and no more: tiles of x and blocks of the four weights for
/// each batch tile, x for each of the warps that share a chunk, parts of split rows as for other layers, and
/// each matrix of the cell once.
std::int64_t bytes_to_move(const Spmm& problem, const Target& target, const Config& config,
                           const Schedule& schedule, std::int64_t n) {
  const bool forward = problem.operation == Operation::forward;
  const std::int64_t tiles = (n + config.tile_n - 1) / config.tile_n;
  const auto element = static_cast<std::int64_t>(size_of(problem.dtype));
  const auto out = static_cast<std::int64_t>(size_of(problem.out_dtype));
  const std::int64_t sums = std::int64_t{problem.block.out} * config.rows * config.merge * config.tile_n;
  const std::int64_t part = 4 * sums * (forward ? 4 : 1);
  const std::int64_t shares = cuda::chunk_shape(problem, target, config).shares;
  const std::int64_t x = shares * figures(schedule).loads * n * problem.block.in * element;
  const std::int64_t w = tiles * problem.weight.blocks() * problem.block.out * problem.block.in * element;
  // Forward: projection, y, and the gates that are kept; c and c before. The gradient: gates and their
  // gradients, and the residual; c, c before, and their gradients.
  const std::int64_t of_output =
      forward ? (5 + (problem.epilogue.keep ? 4 : 0)) * out + 2 * 4 : (8 + 1) * out + 4 * 4;
  return x + w + n * problem.out_features() * of_output +
         tiles * (schedule.partials * (2 * part + 4) + schedule.counters * 4);
}

Counted count(const Cell& cell, BlockShape block, std::int64_t n, Types types, const std::string& target) {
  const Layout layout = patterns::random(12, 12, 0.4, 3);
  const Options options = {.block = block,
                           .batch = n,
                           .dtype = types.dtype,
                           .operation = cell.operation,
                           .math = types.math,
                           .epilogue = cell.epilogue,
                           .target = "emulated:" + target};
  const DefaultLaunch made = launch_default(layout, options);
  const auto& [problem, kernel, config, lines] = made;
  const Schedule schedule = make_schedule(problem, made.target(), config, n);
  return {fmt::format("{} of {} on {}, block {}, batch {}, {} {}, '{}'", to_string(cell.epilogue),
                      name(cell.operation), target, to_string(block), n, name(types.dtype), name(types.math),
                      to_string(config)),
          config.variant,
          schedule.counters > 0,
          made.resources(),
          bytes_to_move(problem, made.target(), config, schedule, n),
          cuda::work_of(problem, made.target(), config, schedule, n),
          lines};
}

const std::vector<Counted>& defaults() {
  static const std::vector<Counted> all = [] {
    std::vector<Counted> result;
    for (const Cell& cell : kCells)
      for (const Types& types :
           {Types{DType::f16, Math::ieee}, Types{DType::f32, Math::ieee}, Types{DType::f32, Math::tf32}})
        for (const BlockShape block : {BlockShape{16, 16}, {32, 32}, {64, 64}})
          for (const std::int64_t n : {16, 64, 130})
            result.push_back(count(cell, block, n, types, n == 64 ? "sm_90:132" : "sm_90:4"));
    return result;
  }();
  return all;
}

/// Whether operands come into registers by it. Warps with chunks of their own read their sums by up to two.
bool feeds(const Counted& run, const cuda::CountedLine& line) {
  const bool of_warps = run.variant == Variant::direct || run.variant == Variant::stream;
  const bool sums = line.kind == "memory_shared" && line.instruction.find(".v4") == std::string::npos;
  return DefaultLaunch::feeds(run.variant == Variant::simt, line) && !(of_warps && sums);
}

}  // namespace

TEST_CASE("no default kernel of a cell meets a bank conflict in its main loop, or spills a register") {
  for (const Counted& run : defaults()) {
    CHECK_MESSAGE(run.resources.spill_store_bytes + run.resources.stack_bytes == 0, run.what);
    std::uint64_t loads = 0;
    for (const cuda::CountedLine& line : run.lines) {
      if (!feeds(run, line)) continue;
      loads += line.executed;
      CHECK_MESSAGE(line.shared_wavefronts == line.shared_ideal, run.what << ": " << line.instruction);
    }
    CHECK_MESSAGE((loads > 0) != (run.variant == Variant::direct), run.what);  // which loads into registers
  }
}

TEST_CASE("a default kernel of a cell moves each byte once, and the cost model knows all of them") {
  int split = 0;
  for (const Counted& run : defaults()) {
    std::int64_t moved = 0;
    for (const cuda::CountedLine& line : run.lines) moved += static_cast<std::int64_t>(line.global_bytes);
    CHECK_MESSAGE(moved == run.bytes_to_move,
                  run.what << ": " << moved << " bytes, " << run.bytes_to_move << " would do");
    CHECK_MESSAGE(run.expected.global_bytes == moved, run.what);
    split += run.splits;
  }
  CHECK(split > 0);
}

TEST_CASE(
    "the cost model knows the instructions of a cell, those of tensor cores exactly, others within 20 %") {
  for (const Counted& run : defaults()) {
    std::int64_t products = 0;
    std::int64_t others = 0;
    for (const cuda::CountedLine& line : run.lines)
      (line.tensor_operations > 0 ? products : others) += static_cast<std::int64_t>(line.executed);
    CHECK_MESSAGE(run.expected.products == products, run.what);
    const double ratio = static_cast<double>(run.expected.instructions) / static_cast<double>(others);
    CHECK_MESSAGE(ratio > 0.8, run.what << ": " << ratio << " of " << others);
    CHECK_MESSAGE(ratio < 1.2, run.what << ": " << ratio << " of " << others);
  }
}

}  // namespace sparsekiln::test

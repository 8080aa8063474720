#include "autotune/cpu/prediction.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "compiler/cpu_levels.h"
#include "compiler/element.h"

namespace sparsekiln::cpu {
namespace {

// A core that loads two vectors, forms two multiply-adds and stores one a cycle, with four cycles from one
// multiply-add of a chain to the next: Intel since Haswell, AMD since Zen 2 (Fog, Instruction tables, and The
// microarchitecture of Intel, AMD and VIA CPUs, 2023).
constexpr double kHertz = 3e9;
constexpr double kLatency = 4;

// Bytes a cycle that a core gets from where a stretch of that size lies, and what one core has of each level
// (the last one is shared).
struct CacheLevel {
  double bytes;
  double bytes_per_cycle;
};
constexpr std::array kCaches = {CacheLevel{32e3, 64}, CacheLevel{512e3, 28}, CacheLevel{24e6, 12}};
constexpr double kMemoryBytesPerCycle = 5;

constexpr double kLaunchUs = 0.5;
constexpr double kPassUs = 1.5;      // a pass that all threads wait for, where there are several
constexpr double kItemCycles = 60;   // of one share of a block row: begin, and store
constexpr double kTileCycles = 8;    // of one register tile of a chunk
constexpr double kGatherCycles = 6;  // of one batch row of a block, whose panels its run makes for itself

// The share of the shorter of two streams that the longer one does not hide. The panel's share was measured
// with bench/model_accuracy.py: its lines are fetched as the multiply-adds need them, a step or two ahead.
constexpr double kPanelExposed = 0.5;
constexpr double kWeightExposed = 0.2;  // which is asked for in order, and so ahead

double bytes_per_cycle(double bytes) {
  for (const CacheLevel& level : kCaches)
    if (bytes <= level.bytes) return level.bytes_per_cycle;
  return kMemoryBytesPerCycle;
}

/// The cycles that two streams take together where they run at the same time.
double overlapped(double a, double b, double exposed) { return std::max(a, b) + exposed * std::min(a, b); }

/// The largest of equal shares, over the mean: how long a launch waits for its last thread.
double imbalance(double shares, double threads) {
  return shares <= 0 ? 1 : std::ceil(shares / threads) * threads / shares;
}

using Tile = ExpectedTile;

/// Whether elements of bf16 are multiplied as the halves of pairs: where the processor has no such product,
/// and where forward's weight lies in pairs.
bool halves(const Spmm& problem, const Target& target) {
  return problem.dtype == DType::bf16 && !problem.by_columns() && !level_of(target).dot_bf16;
}

/// What compiler/cpu/level.cpp makes of a config, in the mean.
Tile register_tile(double block_out, const Level& level, bool halves, const Config& config) {
  const std::int32_t available = std::max(config.tile_n / level.lanes, 1);
  const bool wide = level.wide_outputs > 0 && available % 4 == 0 && config.tile_out <= level.wide_outputs;
  const double vectors = wide ? 4 : available % 2 == 0 ? 2 : available % 3 == 0 ? 3 : 1;
  const double most = level.tile_outputs;
  const double fitting = wide ? level.wide_outputs_of(halves) : vectors == 1 ? 2 * most : most;
  const double cap = config.tile_out > 0 ? config.tile_out : fitting;
  return {block_out / std::ceil(block_out / cap), vectors};
}

/// Cycles of one step of k on a register tile: what is multiplied, loaded, and waited for.
double step_cycles(const Tile& tile, const Level& level, bool halves) {
  const double sums = tile.outputs * tile.vectors;
  // The shorter side is held, and of the longer one a vector; halves need the mask that cuts them off.
  const double others = std::min(tile.outputs, tile.vectors) + (halves ? 2 : 1);
  // A vector of sums that has no register goes to memory and back.
  const double spilled = std::max(0.0, sums + others - level.registers);
  const double words = tile.outputs + tile.vectors;
  return std::max({sums / 2, words / 2, kLatency}) + 2 * spilled + (halves ? words / 4 : 0);
}

double element_bytes(const Computation& problem) { return static_cast<double>(size_of(problem.dtype)); }

/// Rounding a vector of floats to a 16-bit type and widening it again.
constexpr double kRoundingCycles = 4;

/// Words narrower than 32 bits are widened first: two instructions a vector.
double widening(const Computation& problem) { return problem.dtype == problem.sum_type() ? 0 : 1; }

/// Plain passes (compiler/cpu/plain_spmm.h, plain_sddmm.h): eight sums in registers for six loads, and x, and
/// dy, copied element by element for each block.
struct PlainWork {
  double products = 0;  ///< multiply-adds of one batch row
  double filled = 0;    ///< lanes that have work
  double copied = 0;    ///< elements of a block's sides
  double stored = 0;    ///< elements
};

Prediction plain(const PlainWork& work, const Target& target, double blocks, double batch_rows) {
  constexpr double kCyclesOfEight = 5;  // multiply-adds of a register tile
  constexpr double kCopyCycles = 3;     // an element
  constexpr double kStoreCycles = 4;    // an element
  const double products = work.products * batch_rows / work.filled / 8 * kCyclesOfEight;
  const double threads = std::max(target.workers, 1);
  const double copied = blocks * batch_rows * work.copied * kCopyCycles;
  const double cycles = (products + copied + work.stored * kStoreCycles) / threads;
  return {kLaunchUs + (threads > 1 ? kPassUs : 0) + cycles / kHertz * 1e6, Bound::arithmetic};
}

double sum_lanes(const Computation& problem, const Target& target) {
  return 4.0 * level_of(target).lanes / static_cast<double>(size_of(problem.sum_type()));
}

Prediction predict_plain(const Spmm& problem, const Target& target, const Config& config, std::int64_t n) {
  const auto blocks = static_cast<double>(problem.layout.blocks());
  const double rows =
      static_cast<double>(problem.batch_tiles(std::max<std::int64_t>(n, 1), config)) * config.tile_n;
  return plain({.products = blocks * problem.weights() * problem.block.out * problem.block.in,
                .filled = std::min<double>(sum_lanes(problem, target), config.tile_n),
                .copied = static_cast<double>(problem.weight_block().in),
                .stored = rows * static_cast<double>(problem.out_features())},
               target, blocks, rows);
}

Prediction predict_plain(const Sddmm& problem, const Target& target, const Config& config, std::int64_t n) {
  const auto blocks = static_cast<double>(problem.layout.blocks());
  const double elements = static_cast<double>(problem.block.out) * problem.block.in;
  const auto rows = static_cast<double>(problem.product_rows(std::max<std::int64_t>(n, 1)));
  return plain({.products = blocks * elements,
                .filled = sum_lanes(problem, target),
                .copied = static_cast<double>(problem.block.in + problem.block.out),
                .stored = blocks * elements},
               target, blocks, std::ceil(rows / config.tile_n) * config.tile_n);
}

}  // namespace

Prediction predict(const Spmm& problem, const Target& target, const Config& config, std::int64_t n) {
  if (element(problem.dtype).cpu == CpuPasses::plain) return predict_plain(problem, target, config, n);
  const std::int32_t lanes = level_of(target).lanes;
  const BlockShape block = problem.block;
  const double blocks = static_cast<double>(problem.layout.blocks()) * problem.weights();
  const double rows = problem.layout.rows();
  const double inputs = static_cast<double>(problem.in_blocks()) * block.in;
  const double elements = blocks * block.out * block.in;
  const auto tiles = static_cast<double>(problem.batch_tiles(std::max<std::int64_t>(n, 1), config));
  const double threads = std::max(target.workers, 1);
  const double shares = std::min(rows, config.split * threads);
  const double weight_bytes = elements * element_bytes(problem);
  const double from = bytes_per_cycle(weight_bytes);
  const bool small_batch = config.tile_n < lanes;
  const bool in_halves = halves(problem, target);

  double compute = 0;  // cycles of all threads together, of one batch tile
  double panels = 0;
  double pack = 0;
  if (small_batch) {
    compute = elements / lanes * std::max(0.5 * config.tile_n, 0.5 + widening(problem)) +
              blocks * block.out * config.tile_n;  // adding lanes up
    if (problem.changes_x()) pack = inputs * config.tile_n / lanes;
    // Each vector is multiplied as it is loaded, and what was widened is rounded and widened again.
    if (problem.block_scales) compute += elements / lanes * (0.5 + kRoundingCycles * widening(problem));
  } else {
    const Tile tile = register_tile(block.out, level_of(target), in_halves, config);
    const double register_tiles =
        block.out / tile.outputs * (static_cast<double>(config.tile_n) / lanes / tile.vectors);
    const double steps = blocks * register_tiles * block.in;
    compute = steps * step_cycles(tile, level_of(target), in_halves) + blocks * register_tiles * kTileCycles;
    // A block's part of the panel comes from where the panel lies, and goes through L1 once for each chunk.
    const double panel_bytes = 4 * inputs * config.tile_n;
    panels = 4 * blocks * block.in * config.tile_n / bytes_per_cycle(panel_bytes);
    if (!in_halves) compute += elements * widening(problem) * 2 / lanes;
    // Transposing a vector takes about as many cycles as it has lanes, for as many vectors.
    pack = inputs * config.tile_n * 1.5 / std::min(lanes, 8);
    compute = overlapped(compute, panels, kPanelExposed);
  }
  const double items = rows * kItemCycles * std::max(1.0, config.tile_n / static_cast<double>(lanes));
  const double memory = weight_bytes / from * tiles / (from <= kMemoryBytesPerCycle ? 1 : threads);
  const double units = shares * tiles;
  const double busy = (compute + items) * tiles / threads * imbalance(units, threads);
  const double packing = pack * tiles / threads;
  const double passes = pack > 0 && shares > 1 ? 2 : 1;
  const double overhead = kLaunchUs + (threads > 1 ? passes * kPassUs : 0) + units / threads * 0.1;
  Prediction prediction;
  prediction.us = overhead + (overlapped(busy, memory, kWeightExposed) + packing) / kHertz * 1e6;
  prediction.bound = memory > busy    ? (from <= kMemoryBytesPerCycle ? Bound::memory : Bound::cache)
                     : packing > busy ? Bound::instructions
                                      : Bound::arithmetic;
  return prediction;
}

Prediction predict(const Sddmm& problem, const Target& target, const Config& config, std::int64_t n) {
  if (element(problem.dtype).cpu == CpuPasses::plain) return predict_plain(problem, target, config, n);
  const std::int32_t lanes = level_of(target).lanes;
  const auto blocks = static_cast<double>(problem.layout.blocks());
  const double threads = std::max(target.workers, 1);
  const auto entries = static_cast<double>(problem.product_rows(std::max<std::int64_t>(n, 1)));
  const double chunks = std::ceil(entries / config.tile_n);
  const double vectors = std::max(1.0, static_cast<double>(problem.block.in) / lanes * config.rows);
  const double row = std::min(vectors, 4.0);
  const double outputs = std::floor(level_of(target).gradient_sums / row);
  const Tile tile{std::min<double>(outputs, problem.block.out), row};
  const double sums_of_tile = tile.outputs * tile.vectors;
  const double all_sums = blocks * problem.block.out * problem.block.in / lanes;
  const double products = all_sums / sums_of_tile * entries * step_cycles(tile, level_of(target), false);
  const double sums = all_sums * chunks * 2;  // to L1 and back for each chunk
  const double bytes =
      blocks * problem.block.out * problem.block.in * static_cast<double>(size_of(problem.out_dtype));
  const double memory = bytes / bytes_per_cycle(bytes) * 1.5;
  const double features = static_cast<double>(problem.in_features() + problem.out_features());
  const double pack = 0.3 * features * entries + (config.stages == 2 ? 0 : kGatherCycles * blocks * entries);
  const double shares = config.split * threads;
  const double busy = (products + sums) / threads * imbalance(shares, threads);
  const std::int32_t passes = config.stages + (problem.sums_block_scales_of_taps() ? 1 : 0);
  const double overhead = kLaunchUs + (threads > 1 ? passes * kPassUs : 0) + shares / threads * 0.1;
  return {overhead + (std::max(busy, memory) + pack / threads) / kHertz * 1e6,
          memory > busy ? Bound::memory : Bound::arithmetic};
}

ExpectedTile expected_tile(const Spmm& problem, const Target& target, const Config& config) {
  const Level& level = level_of(target);
  if (config.tile_n < level.lanes) return {};  // a small batch: one output at a time
  return register_tile(problem.block.out, level, halves(problem, target), config);
}

}  // namespace sparsekiln::cpu

#include "compiler/cuda/stream_tuning.h"

#include <algorithm>
#include <optional>

#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/stream_shape.h"

namespace sparsekiln::cuda {
namespace {

/// The tile of variant stream that holds the whole batch, so that the weight is read once: 8 or 16 entries.
Config stream_tile(const Spmm& problem, std::int64_t n) {
  Config config;
  config.variant = Variant::stream;
  config.tile_out = 0;
  config.tile_n = tile_for(n, 8, 16);
  if (problem.ieee()) return config;
  if (problem.block.out >= 16)
    config.operand_a = OperandA::w;
  else
    config.tile_n = 16;  // the rows of A
  return config;
}

bool streams(const Spmm& problem, const Target& target, std::int64_t n) {
  const bool whole = problem.cut_in == 0 && problem.cut_out == 0 && problem.alignment == 16;
  return n <= 16 && whole && !problem.gates && !problem.epilogue.glu && !problem.by_columns() &&
         !problem.feature_major() &&
         stream_registers(problem, target, stream_tile(problem, n)) <= kMostThreadRegisters;
}

/// One CTA a multiprocessor, with as much of the weight in flight as hides the latency of global memory:
/// what a multiprocessor's share of the bandwidth brings in a microsecond is 25 KB (H100 SXM: 3.35 TB/s by
/// the datasheet, 132 multiprocessors), and copies are not spread evenly.
std::optional<Config> default_config(const Spmm& problem, const Target& target, std::int64_t n) {
  constexpr std::int64_t kOnTheirWay = 64 * 1024;
  if (!streams(problem, target, n)) return std::nullopt;
  Config config = stream_tile(problem, n);
  config.warps = 8;
  config.stages = 2;
  const std::int64_t room = multiprocessor(target).shared_per_cta - kStreamStaticShared;
  const auto fits = [&] { return stream_shared_bytes(problem, config) <= room; };
  while (config.warps > 1 && !fits()) config.warps /= 2;
  if (target.compute_capability() < 80) return config;  // no asynchronous copy: one chunk is in flight
  const std::int64_t chunks = config.warps * problem.block.out * kStreamChunkBytes;  // W's part of a stage
  while (config.stages < kMostStreamStages && (config.stages - 1) * chunks < kOnTheirWay) ++config.stages;
  while (!fits()) --config.stages;
  return config;
}

LoopCosts loop_costs(const Spmm& problem, const Target& target, const Config& config) {
  const StreamShape shape = stream_shape(problem, target, config);
  const std::int32_t units_x = config.tile_n / 8;
  const std::int32_t units_w = problem.block.out / 8;
  const std::int32_t tiles = problem.block.out * config.tile_n / 128;
  const double warps = config.warps;
  // Sums that a thread has once the warps have met.
  const double gathered = std::max(problem.block.out * config.tile_n / shape.threads, shape.run);

  LoopCosts costs;
  costs.threads = shape.threads;
  costs.chunk_per_warp = true;
  costs.registers = std::min(kMostRegisters, stream_registers(problem, target, config));
  costs.shared_bytes = shape.shared_bytes + kStreamStaticShared;
  costs.shape = shape.chunk;
  costs.chunk_products = shape.tensor_cores ? std::int64_t{2} * tiles * halves(target, problem.dtype) : 0;
  if (!shape.tensor_cores)
    costs.chunk_fmas = std::int64_t{kStreamChunkBytes / 4} * problem.block.out * config.tile_n;
  costs.chunk_shared_bytes = std::int64_t{2} * kStreamChunkBytes * (config.tile_n + problem.block.out);
  costs.begin = warps * (123 + 0.7 * (config.stages - 1) * (units_x + units_w));
  // A warp has a chunk of its own.
  costs.chunk = 34.5 + if_it(shape.chunk.blocks > 1, 10) + 10 * units_x + 3.6 * units_w;
  costs.chunk += shape.tensor_cores ? if_it(problem.dtype == DType::f32, 7.0 * (units_x + units_w))
                                    : 4.0 * units_w * config.tile_n;
  costs.item = warps * ((shape.tensor_cores ? 3.3 : 14.3) * shape.sums + 2.7 * gathered * warps / shape.run);
  costs.entries = warps * gathered * (1 + value_costs(problem)) * kEntries / config.tile_n;
  costs.part = warps * 38;
  return costs;
}

}  // namespace

const SpmmTuning kSpmmStreamTuning{{.variant = Variant::stream,
                                    .axes = {.tile_n = {8, 16},
                                             .tile_out = {0},
                                             .stages = {2, 3, 4, 6, 8},
                                             .warps = {2, 4, 8, 16},
                                             .split = {1, 2},
                                             .tiles = {{1, 1}},
                                             .table = {TableForm::constant, TableForm::global},
                                             .operand_a = {OperandA::x, OperandA::w}},
                                    .rejection = rejects_nothing<Spmm>,
                                    .default_config = default_config},
                                   loop_costs};

}  // namespace sparsekiln::cuda

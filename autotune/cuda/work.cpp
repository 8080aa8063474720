#include "autotune/cuda/work.h"

#include <algorithm>
#include <cmath>

#include "autotune/cuda/images.h"
#include "autotune/quotient_up.h"
#include "compiler/activation.h"
#include "compiler/cuda/batch_slices.h"
#include "compiler/cuda/direct_shape.h"
#include "compiler/cuda/families.h"
#include "compiler/cuda/normalise.h"
#include "compiler/edge_runs.h"

namespace sparsekiln::cuda {
namespace {

std::int64_t bytes_of(DType type) { return static_cast<std::int64_t>(size_of(type)); }

/// Features of x whose columns have blocks: the others are never read.
std::int64_t features_read(const Layout& layout, std::int64_t features) {
  if (layout.cols() == 0) return 0;
  return features * (layout.cols() - layout.statistics().empty_cols) / layout.cols();
}

/// Bytes of a schedule's tables: a step has 8, an item up to 12 and a part 16.
std::int64_t table_bytes(const Counts& counts, ChunkShape chunk) {
  return 8 * (counts.chunks / chunk.shares + 1) * chunk.blocks + 12 * counts.items + 16 * counts.partials +
         8 * (counts.workers + 1);
}

/// Bytes of tables in global memory that a CTA's warps read for one batch tile, all CTAs together. Each warp
/// loads every step once; those with chunks of their own share them, and look at what follows, which is
/// counted roughly.
std::int64_t table_reads(const Config& config, const LoopCosts& costs, const Counts& counts) {
  const std::int64_t warps = costs.threads / 32;
  const std::int64_t steps =
      costs.chunk_per_warp ? counts.chunks + 2 * warps * counts.workers : warps * counts.chunks;
  const std::int64_t merged = warps * 4 * (config.merge - 1) * counts.chunks * costs.shape.blocks;
  const std::int64_t splits =
      counts.partials == 0 ? 0 : 4 * counts.items + 8 * (counts.partials + counts.counters);
  const std::int64_t rows = 4 * config.rows * config.merge * counts.row_groups;
  return 8 * costs.shape.blocks * steps + merged +
         warps * (4 * (counts.items + counts.workers) + splits + rows + 16 * counts.workers);
}

void add(Work& work, const Transpositions& more) {
  work.global_bytes += more.global_bytes;
  work.memory_bytes += more.memory_bytes;
  work.shared_bytes += more.shared_bytes;
  work.instructions += more.instructions;
  work.kernels += more.kernels;
}

/// Into how many parts a caller is taken to divide dnorm: as sparsekiln.torch does.
constexpr std::int64_t kUsualParts = 128;

/// What each warp executes for a row, also one that has none while others have, and for a feature of each
/// lane.
struct NormalisationCosts {
  double row;
  double feature;
};
NormalisationCosts normalisation_costs(const Spmm& problem) {
  const Epilogue& ends = *problem.normalisation;
  const int matrices = (ends.multiply ? 1 : 0) + (ends.add ? 1 : 0);
  const double of_gates = 1.25 * row_of(Activation::sigmoid).value_cost;  // and of a cell, for each gate
  const ActivationRow& activation = row_of(ends.activation);
  if (problem.operation == Operation::forward)
    return {290 + 32.0 * matrices + if_it(ends.lstm, 100),
            16 + 2.7 * matrices + (ends.lstm ? 14 + of_gates : activation.value_cost)};
  return {138 + 28.0 * matrices + if_it(ends.lstm, 150),
          40 + 4.0 * matrices + (ends.lstm ? 25 + of_gates : activation.derivative_cost)};
}

/// Adds the kernel that normalises the sums of a product, which reads what that has written. A row that
/// registers do not hold is read again, and what becomes of dh is written and read.
void add_normalisation(Work& work, const Spmm& problem, const Config& config, std::int32_t threads,
                       std::int64_t workers, std::int64_t n) {
  if (!problem.normalisation || n == 0) return;
  const Epilogue& ends = *problem.normalisation;
  const bool forward = problem.operation == Operation::forward;
  const bool activates = ends.activation != Activation::none;
  const std::int64_t element = bytes_of(problem.result_dtype);
  const std::int64_t state = bytes_of(problem.sum_type());
  const std::int64_t groups = problem.groups_of_sums();
  const std::int64_t features = problem.normalised_features();
  const RowTeams teams = row_teams(problem, threads);
  const std::int64_t ctas = workers * tiles_at_once(problem, config, n);
  const std::int64_t jobs = forward ? n : std::min(n, kUsualParts);

  const std::int64_t matrix = features * element;
  const std::int64_t sums = groups * matrix;
  const std::int64_t multiplier = ends.multiply ? matrix : 0;
  const std::int64_t addend = ends.add ? matrix : 0;
  const std::int64_t cell = ends.lstm ? (forward ? 2 : 4) * features * state : 0;
  const std::int64_t statistics = 2 * groups * state;
  if (forward) {
    const std::int64_t others = matrix + multiplier + addend + cell + statistics;
    work.global_bytes += n * ((teams.holds ? 1 : 3) * sums + others) +
                         (teams.holds ? std::min(n, ctas * teams.count) : n) * 2 * sums;
    work.memory_bytes += n * others + 2 * sums;
  } else {
    const std::int64_t others = (ends.lstm ? 1 : 2) * multiplier + (activates ? 2 : 1) * addend + cell;
    const std::int64_t vectors = (ends.lstm || ends.multiply || activates ? 2 : 1) * sums;
    const std::int64_t dnorm = 2 * 2 * groups * features * state;
    const std::int64_t dh = features * bytes_of(problem.out_dtype);
    const std::int64_t again = teams.holds ? 0 : sums + 2 * groups * dh;
    work.global_bytes += n * (2 * sums + again + dh + others + vectors + teams.warps * statistics) +
                         (teams.holds ? jobs : n) * dnorm;
    // The product counts dh, which may be where dx is, of four gates the first.
    const std::int64_t counted = problem.has_sums_in_workspace() ? 0 : dh;
    work.memory_bytes += n * (2 * sums - counted + others + statistics) + vectors + jobs * dnorm;
  }
  const NormalisationCosts costs = normalisation_costs(problem);
  const std::int64_t rounds = quotient_up(jobs, ctas * teams.count) * quotient_up(n, jobs);
  const std::int64_t lanes = 32 * teams.piece;
  const auto count = [](std::int64_t number) { return static_cast<double>(number); };
  work.instructions +=
      std::llround(count(std::min(jobs, ctas) * rounds * (threads / 32)) * costs.row +
                   count(n * groups * quotient_up(features, lanes) * teams.piece) * costs.feature);
  ++work.kernels;
}

/// Adds the kernel that copies x to panels. Only x comes from memory, which the product counts.
void add_panels(Work& work, const Spmm& problem, const Config& config, std::int64_t n) {
  constexpr double kInstructionsOfUnit = 26;  // of a warp that copies 16 bytes a lane
  const std::int64_t row = problem.in_features() * bytes_of(problem.dtype);
  const std::int64_t written = quotient_up(n, config.tile_n) * config.tile_n * row;
  work.global_bytes += n * row + written;
  work.instructions += std::llround(static_cast<double>(quotient_up(written, 32 * 16)) * kInstructionsOfUnit);
  ++work.kernels;
}

Work work(const Spmm& problem, const Config& config, const LoopCosts& costs, const Counts& counts,
          std::int64_t n) {
  const std::int64_t rows = problem.product_rows(n);
  const std::int64_t tiles = problem.batch_tiles(n, config);
  // The last CTA of a cluster computes a tile, whether there is one or not.
  const std::int64_t computed = quotient_up(tiles, config.cluster) * config.cluster;
  const std::int64_t element = bytes_of(problem.dtype);
  const std::int64_t activations = problem.derivative == Activation::none ? 1 : 2;
  const std::int64_t blocks = problem.layout.blocks();
  const std::int64_t columns = std::max(problem.in_blocks(), 1);
  const std::int64_t weight = blocks * problem.block.out * problem.block.in * element * problem.weights();
  const std::int64_t part =
      std::int64_t{4} * config.rows * problem.weights() * config.merge * problem.block.out * config.tile_n;
  // Panels have all rows of a tile.
  const std::int64_t loaded_rows = has_panels(config) ? tiles * config.tile_n : rows;
  const auto bytes_of_x = [&](std::int64_t loads) {
    const std::int64_t loaded = costs.loaded_of_one == 0
                                    ? loads * costs.shape.columns * loaded_rows
                                    : std::llround(static_cast<double>(loads * n) * costs.loaded_of_one);
    return loaded * problem.in_features() / columns * element * activations;
  };
  const std::int64_t x = bytes_of_x(counts.loads);
  const std::int64_t block_scales = problem.block_scales ? 4 * blocks : 0;
  const std::int64_t bias =
      problem.epilogue.bias ? problem.out_features() * bytes_of(problem.out_dtype) * problem.weights() : 0;
  // A gain and a bias, of 4 bytes each, for each element of y: fewer where lanes of a warp read the same
  // ones, and few in memory.
  const std::int64_t edge_reads =
      problem.epilogue.edge_bias ? 8 * problem.y_rows(n) * problem.out_features() : 0;
  const std::int64_t edges = 8 * count_edge_situations(problem) * problem.out_features();
  const std::int64_t residual =
      problem.epilogue.residual ? problem.out_features() * bytes_of(problem.result_dtype) : 0;
  const std::int64_t y =
      problem.y_rows(n) * (problem.y_features() * bytes_of(problem.out_dtype) + residual +
                           problem.out_features() * static_cast<std::int64_t>(cell_bytes(problem)));
  const bool in_memory = config.table != TableForm::constant;
  const std::int64_t tables = in_memory ? table_bytes(counts, costs.shape) : 0;
  // Chunks that bring a tile of x: all, but those that share the one before's.
  const bool shares = config.rows * problem.weights() > 1 || costs.shape.columns > 1;
  const std::int64_t table_read = in_memory ? table_reads(config, costs, counts) : 0;
  const std::int64_t loads_of_ctas = counts.loads + (config.cluster_rows - 1) * counts.team_loads;
  const std::int64_t loads = shares ? loads_of_ctas * costs.shape.parts : counts.chunks;
  const std::int64_t multiplied = counts.chunks - counts.without_blocks;
  Work work;
  work.global_bytes = costs.shape.shares * x + y + edge_reads + quotient_up(tiles, config.cluster) * weight +
                      tiles * (block_scales + bias + table_read) +
                      tiles * (counts.partials * (2 * part + 4) + counts.counters * 4);
  work.repeated_bytes = (costs.shape.shares - 1) * x;
  work.multicast_bytes = (config.cluster_rows - 1) * bytes_of_x(counts.team_loads) +
                         (computed - quotient_up(tiles, config.cluster)) * weight;
  const std::int64_t once =
      problem.x_rows(n) * features_read(problem.layout, problem.in_features()) * element * activations;
  work.memory_bytes = weight + block_scales + bias + edges + y + tables + once;
  const std::int64_t at_once = tiles_at_once(problem, config, n);
  work.again = {x, once, once * at_once / std::max<std::int64_t>(tiles, 1)};
  work.piece_bytes = costs.copies_lines ? 0 : problem.block.in * element;
  if (has_panels(config)) work.piece_bytes *= config.tile_n;
  work.again_in_rounds = {quotient_up(tiles, at_once) * weight, weight, weight};
  work.partial_bytes = tiles * counts.partials * 2 * part;
  work.items = tiles * counts.items;
  // Where tiles have chunks of their own, each is written while the others go on.
  work.item_bytes = std::int64_t{costs.shape.of_tiles ? 1 : config.rows} * config.merge * problem.block.out *
                    config.tile_n * bytes_of(problem.out_dtype);
  work.rounds = rounds_of(problem, config, n);
  work.products = computed * multiplied * costs.chunk_products;
  work.products_in_time = computed * counts.chunks * costs.chunk_products;
  work.fmas = computed * multiplied * costs.chunk_fmas;
  work.shared_bytes =
      computed * (multiplied * costs.chunk_shared_bytes + counts.loads * costs.load_shared_bytes);
  const auto count = [](std::int64_t number) { return static_cast<double>(number); };
  work.instructions = std::llround(
      count(computed) * (count(counts.workers) * costs.begin + count(counts.chunks) * costs.chunk +
                         count(loads) * costs.load + count(counts.items) * costs.item +
                         count(counts.row_groups) * costs.store + count(counts.partials) * costs.part) +
      count(quotient_up(rows, 8)) * count(counts.row_groups) * costs.entries);
  work.chunks = computed * counts.chunks;
  work.ctas = counts.workers * std::max<std::int64_t>(computed, 1);
  // Where tiles come in rounds, a CTA has one of each; of the last round some have none.
  work.largest = counts.largest * static_cast<double>(quotient_up(tiles, at_once) * at_once) /
                 static_cast<double>(std::max<std::int64_t>(tiles, 1));
  // Tiles that have chunks of their own go through those of a line at the same time.
  work.longest_chunks =
      count(costs.shape.of_tiles ? computed * loads : work.chunks) / count(work.ctas) * work.largest;
  add(work, transpositions_of(problem, n));
  if (has_panels(config)) add_panels(work, problem, config, n);
  add_normalisation(work, problem, config, costs.threads, counts.workers, n);
  return work;
}

/// Instructions for each 16 bytes of a lane that slices write or read.
constexpr double kSlicedSum = 8;

/// Bytes that slices of a gradient's groups write to the workspace, and that are read there.
std::int64_t sliced_bytes(const Sddmm& gradient, const Config& config, const RunCounts& counts,
                          std::int64_t slices, std::int64_t used) {
  if (adds_slices_after(config))
    return slices == 1 ? 0 : used * 2 * 4 * gradient.layout.blocks() * gradient.block_elements();
  const std::int64_t part = std::int64_t{4} * config.rows * kPieceSide * kPieceSide;
  return used == 1 ? 0 : counts.runs * (used * (2 * part + 4) + 4);
}

/// What gradients do whose groups read tiles of features for all of their pieces.
Work work_of_groups(const Sddmm& gradient, const Config& config, const SddmmCosts& costs,
                    const RunCounts& counts, std::int64_t slices, std::int64_t n) {
  const GroupShape shape = group_shape(gradient, config);
  const std::int64_t chunks = quotient_up(gradient.tiled_rows(n, config), config.tile_n);
  const std::int64_t used =
      std::clamp<std::int64_t>(gradient.tiled_rows(n, config) / (config.tile_n * kChunksOfSlice), 1, slices);
  const std::int64_t element = bytes_of(gradient.dtype);
  const auto loaded = [&](std::int64_t tiles, double rows_of_one, std::int64_t features) {
    return std::llround(static_cast<double>(tiles * n) * rows_of_one) * features * element;
  };
  const std::int64_t tile_bytes = loaded(counts.out_tiles, costs.out_rows_of_one, shape.piece.out) +
                                  loaded(counts.in_tiles, costs.in_rows_of_one, shape.piece.in);
  const std::int64_t dw = gradient.layout.blocks() * gradient.block_elements() * bytes_of(gradient.out_dtype);
  const LayoutStatistics& statistics = gradient.layout.statistics();
  const std::int64_t rows = gradient.layout.rows() - (gradient.bias_gradient ? 0 : statistics.empty_rows);
  const std::int64_t operands =
      element * (gradient.product_rows(n) * rows * gradient.block.out +
                 gradient.displaced_rows(n) * features_read(gradient.layout, gradient.col_features()));
  const std::int64_t dbias = gradient.bias_gradient ? 4 * gradient.out_features() : 0;
  // What a group is and its tiles, once; its pairs by each warp that multiplies, as it begins and ends.
  constexpr std::int64_t kWarps = 12;
  const std::int64_t tables = config.table == TableForm::constant
                                  ? 0
                                  : 16 * counts.runs + 4 * (counts.out_tiles + counts.in_tiles) +
                                        8 * 16 * counts.workers +
                                        kWarps * 16 * counts.runs * (config.rows / 6);
  const std::int64_t sums = sliced_bytes(gradient, config, counts, slices, used);
  const std::int64_t written = adds_slices_after(config) ? used : 1;  // times that dw is
  Work work;
  work.global_bytes = tile_bytes + dw + dbias + used * tables + sums;
  work.memory_bytes = operands + dw + dbias + tables;
  // CTAs go through the batch together, a group each; the next ones begin at its start.
  const std::int64_t rounds = quotient_up(counts.runs, counts.workers);
  work.again = {rounds * operands, operands, operands};
  const std::int64_t stages = counts.runs * chunks;
  work.products = work.products_in_time = stages * costs.group_products;
  work.shared_bytes = stages * costs.group_shared_bytes +
                      chunks * (counts.out_tiles * shape.out_bytes + counts.in_tiles * shape.in_bytes);
  const auto count = [](std::int64_t number) { return static_cast<double>(number); };
  work.instructions =
      std::llround(count(counts.workers * slices) * costs.begin + count(counts.runs * used) * costs.run +
                   count(stages) * costs.chunk + count(gradient.layout.blocks() * written) * costs.block +
                   count(sums) / (32 * 16) * kSlicedSum);
  work.chunks = stages;
  work.longest_chunks = count(rounds * quotient_up(chunks, used));
  // A pass of its own reads them at the rate of all other bytes.
  work.partial_bytes = adds_slices_after(config) ? 0 : sums;
  work.kernels = adds_slices_after(config) && slices > 1 ? 2 : 1;
  work.items = counts.runs * used;
  work.item_bytes = dw / std::max<std::int64_t>(counts.runs, 1);
  work.ctas = counts.workers * used;
  work.largest = counts.largest;
  work.uneven_bytes = counts.largest_tiles / counts.largest;
  return work;
}

Work work(const Sddmm& gradient, const Config& config, const SddmmCosts& costs, const RunCounts& counts,
          std::int64_t slices, std::int64_t n) {
  if (groups_blocks(config)) return work_of_groups(gradient, config, costs, counts, slices, n);
  const std::int64_t product_rows = gradient.product_rows(n);
  const std::int64_t element = bytes_of(gradient.dtype);
  const std::int64_t chunks = quotient_up(product_rows, config.tile_n);
  const std::int64_t blocks = gradient.layout.blocks();
  // Loads of each operand: that of dy has z's beside it.
  const std::int64_t of_dy = gradient.derivative == Activation::none ? 1 : 2;
  const std::int64_t derived = gradient.exchanged() ? 1 : of_dy;
  const std::int64_t displaced = gradient.exchanged() ? of_dy : 1;
  const std::int64_t dw = blocks * gradient.block_elements() * bytes_of(gradient.out_dtype);
  const std::int64_t w =
      gradient.block_scale_gradient
          ? blocks * gradient.block_elements() * element + std::int64_t{4} * gradient.block_scale_map.count()
          : 0;
  const std::int64_t dbias = gradient.bias_gradient ? 4 * gradient.out_features() : 0;
  const std::int64_t block_scales = gradient.block_scales ? 4 * blocks : 0;
  const LayoutStatistics& statistics = gradient.layout.statistics();
  const std::int64_t rows = gradient.layout.rows() - (gradient.bias_gradient ? 0 : statistics.empty_rows);
  // Each warp reads what a run is, and its columns.
  const std::int64_t tables =
      config.table == TableForm::constant
          ? 0
          : (gradient.bias_gradient ? 16 : 12) * counts.runs + 4 * blocks + 8 * counts.workers;
  // What slices of a run write to the workspace, and the last of them reads.
  const std::int64_t part = std::int64_t{4} * gradient.block.out * config.rows * gradient.block.in;
  const std::int64_t sums = (slices == 1 ? 0 : counts.runs * (slices * (2 * part + 4) + 4)) +
                            (gradient.sums_block_scales_of_taps() ? 2 * 4 * blocks : 0);
  Work work;
  work.global_bytes =
      product_rows * element *
          (derived * counts.runs * gradient.block.out + displaced * blocks * gradient.block.in) +
      dw + w + dbias + block_scales + costs.threads / 32 * slices * tables + sums;
  work.memory_bytes = element * (product_rows * derived * rows * gradient.block.out +
                                 displaced * gradient.displaced_rows(n) *
                                     features_read(gradient.layout, gradient.col_features())) +
                      dw + w + dbias + block_scales + tables;
  work.kernels = gradient.sums_block_scales_of_taps() ? 2 : 1;
  // CTAs go through the batch together, a run each; the next ones begin at its start. Those that share dy are
  // computed together.
  const std::int64_t rounds = quotient_up(counts.runs, counts.workers);
  const std::int64_t of_x =
      gradient.displaced_rows(n) * element * features_read(gradient.layout, gradient.col_features());
  work.again = {rounds * of_x, of_x, of_x};
  const std::int64_t ctas = counts.workers * slices;
  const std::int64_t stages = counts.runs * chunks;
  const std::int64_t groups = counts.warps_in * chunks;
  work.products = work.products_in_time = groups * costs.group_products;
  work.fmas = groups * costs.group_fmas;
  work.shared_bytes = groups * costs.group_shared_bytes + stages * costs.chunk_shared_bytes;
  const auto count = [](std::int64_t number) { return static_cast<double>(number); };
  work.instructions = std::llround(count(ctas) * costs.begin + count(counts.runs * slices) * costs.run +
                                   count(stages) * costs.chunk + count(groups) * costs.group +
                                   count(blocks) * costs.block + count(sums) / (32 * 16) * kSlicedSum);
  work.chunks = stages;
  work.longest_chunks = count(rounds * quotient_up(chunks, slices));
  work.partial_bytes = slices == 1 ? 0 : sums;
  work.items = counts.runs * slices;
  work.item_bytes = dw / std::max<std::int64_t>(counts.runs, 1);
  work.ctas = ctas;
  work.largest = counts.largest;
  add(work, transpositions_of(gradient, n));
  return work;
}

}  // namespace

double bytes_read_again(const Work& work, double room) {
  const auto count = [](std::int64_t number) { return static_cast<double>(number); };
  // L2 has no room for a share of what is in use: that is read from memory each time.
  const auto missed = [&](const Work::Again& again, double has_room) {
    if (again.active <= 0 || again.loads <= again.bytes) return 0.0;
    const double share = std::clamp((count(again.active) - has_room) / count(again.active), 0.0, 1.0);
    return count(again.loads - again.bytes) * share;
  };
  return missed(work.again, room) +
         missed(work.again_in_rounds, std::max(0.0, room - count(work.again.active)));
}

LoopCosts loop_costs(const Spmm& problem, const Target& target, const Config& config) {
  return find_family(problem, config.variant)->tuning->loop_costs(problem, target, config);
}

SddmmCosts loop_costs(const Sddmm& gradient, const Target& target, const Config& config) {
  return find_family(gradient, config.variant)->tuning->loop_costs(gradient, target, config);
}

Work work_of(const Spmm& problem, const Target& target, const Config& config, const Schedule& schedule,
             std::int64_t n) {
  const LoopCosts costs = loop_costs(problem, target, config);
  return work(problem, config, costs, counts_of(schedule, costs.shape, balanced_rounds(problem, config, n)),
              n);
}

Work estimate(const Spmm& problem, const Target& target, const Config& config, std::int64_t n) {
  RowShares rows(problem.layout);
  return estimate(problem, target, config, loop_costs(problem, target, config), n, rows);
}

Work work_of(const Sddmm& gradient, const Target& target, const Config& config, const BlockRuns& schedule,
             std::int64_t n) {
  const SddmmCosts costs = loop_costs(gradient, target, config);
  const RunCounts counts = counts_of(schedule, config, costs.warps_in);
  return work(gradient, config, costs, counts, batch_slices(gradient, target, config, counts.runs), n);
}

Work estimate(const Sddmm& gradient, const Target& target, const Config& config, std::int64_t n) {
  return estimate(gradient, target, config, loop_costs(gradient, target, config), n);
}

Work estimate(const Spmm& problem, const Target& target, const Config& config, const LoopCosts& costs,
              std::int64_t n, RowShares& rows) {
  return work(problem, config, costs, expected_counts(problem, target, config, costs.shape, n, rows), n);
}

Work estimate(const Sddmm& gradient, const Target& target, const Config& config, const SddmmCosts& costs,
              std::int64_t n) {
  const RunCounts counts = expected_counts(gradient, target, config, costs.warps_in);
  return work(gradient, config, costs, counts, batch_slices(gradient, target, config, counts.runs), n);
}

}  // namespace sparsekiln::cuda

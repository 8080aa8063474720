#include "compiler/cuda/sddmm_tables.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln::cuda {
namespace {

/// Numbers of a group, as PieceGroup of templates/piece_groups.cuh has them.
constexpr std::int64_t kGroupNumbers = 4;
/// Numbers of a pair, as PiecePair there, without its taps, which only variant halo has.
constexpr std::int64_t kPairNumbers = 3;

bool has_taps(const Config& config) { return config.variant == Variant::halo; }

/// A pair as PiecePair has it.
std::array<std::int32_t, kPairNumbers> numbers_of(const BlockGroup& group, const BlockGroup::Pair& pair) {
  const auto of_dy = static_cast<std::int32_t>(group.outs.size());
  const BlockGroup::Piece& first = group.pieces[static_cast<std::size_t>(pair[0])];
  if (pair[1] == BlockGroup::kNone)
    return {first.out | (of_dy + first.in) << 8 | (of_dy + first.in) << 16, first.dw, BlockGroup::kNone};
  const BlockGroup::Piece& second = group.pieces[static_cast<std::size_t>(pair[1])];
  if (first.out == second.out)
    return {first.out | (of_dy + first.in) << 8 | (of_dy + second.in) << 16, first.dw, second.dw};
  return {(of_dy + first.in) | first.out << 8 | second.out << 16 | 1 << 24, first.dw, second.dw};
}

std::int32_t taps_of(const BlockGroup& group, const BlockGroup::Pair& pair) {
  const auto tap = [&](std::int32_t piece) { return group.pieces[static_cast<std::size_t>(piece)].tap; };
  return tap(pair[0]) | tap(pair[1] == BlockGroup::kNone ? pair[0] : pair[1]) << 16;
}

/// The arrays of groups, each with so many pairs: those that it lacks read what there is.
struct GroupTables {
  std::vector<std::int32_t> groups;
  std::vector<std::int32_t> tiles;
  std::vector<std::int32_t> pairs;
  std::vector<std::int32_t> taps;  ///< of each pair

  GroupTables(const BlockRuns& schedule, std::size_t pairs_of_group) {
    for (const BlockGroup& group : schedule.groups) {
      groups.insert(groups.end(), {static_cast<std::int32_t>(tiles.size()), group.tiles(),
                                   static_cast<std::int32_t>(group.outs.size()), group.summed});
      tiles.insert(tiles.end(), group.outs.begin(), group.outs.end());
      tiles.insert(tiles.end(), group.ins.begin(), group.ins.end());
      for (const BlockGroup::Pair& pair : group.pairs) {
        const auto numbers = numbers_of(group, pair);
        pairs.insert(pairs.end(), numbers.begin(), numbers.end());
        taps.push_back(taps_of(group, pair));
      }
      for (std::size_t pair = group.pairs.size(); pair < pairs_of_group; ++pair) {
        pairs.insert(pairs.end(), {0, BlockGroup::kNone, BlockGroup::kNone});
        taps.push_back(0);
      }
    }
  }
};

void write_group_tables(Source& source, TablePlaces& places, const BlockRuns& schedule,
                        const Config& config) {
  const auto pairs_of_group = static_cast<std::size_t>(config.rows / 2);
  const std::size_t index = source.entries.size();
  auto [groups, tiles, pairs, taps] = GroupTables(schedule, pairs_of_group);
  if (!has_taps(config)) taps.clear();
  const std::size_t numbers =
      schedule.worker_begin.size() + groups.size() + tiles.size() + pairs.size() + taps.size();
  const TablePlace place = places.next(config.table, static_cast<std::int64_t>(4 * numbers));
  source.text += fmt::format(
      "\n// Each worker's first group; four numbers a group: first tile, tiles, of these of dy, of these\n"
      "// summed; the tiles; {} pairs of pieces a group: tiles, where they are in dw, and taps.\n",
      pairs_of_group);
  ArrayWriter arrays(source, index, place);
  arrays.write("worker_begin", schedule.worker_begin);
  arrays.write("groups", groups);
  arrays.write("tiles", tiles);
  arrays.write("pairs", pairs);
  if (has_taps(config)) arrays.write("taps", taps);
  const auto element = [&](std::string_view array, std::string_view at) {
    return element_text(array, index, place, at);
  };
  source.text += fmt::format(
      "struct Table{} {{\n"
      "  __device__ static int worker(int index) {{ return {}; }}\n"
      "  __device__ static sparsekiln::PieceGroup group(int index) {{\n"
      "    return {{{}, {}, {}, {}}};\n"
      "  }}\n"
      "  __device__ static int tile(int index) {{ return {}; }}\n"
      "  __device__ static sparsekiln::PiecePair pair(int index) {{\n"
      "    return {{{}, {}, {}, {}}};\n"
      "  }}\n"
      "}};\n",
      index, element("worker_begin", "index"), element("groups", "4 * index"),
      element("groups", "4 * index + 1"), element("groups", "4 * index + 2"),
      element("groups", "4 * index + 3"), element("tiles", "index"), element("pairs", "3 * index"),
      element("pairs", "3 * index + 1"), element("pairs", "3 * index + 2"),
      has_taps(config) ? element("taps", "index") : "0");
}

/// Four numbers of each run.
std::vector<std::int32_t> numbers_of_runs(const BlockRuns& schedule) {
  std::vector<std::int32_t> runs;
  for (const BlockRun& run : schedule.runs)
    runs.insert(runs.end(), {run.row, run.first, run.blocks, run.first_of_row ? 1 : 0});
  return runs;
}

void write_run_tables(Source& source, TablePlaces& places, const Sddmm& gradient, const BlockRuns& schedule,
                      TableForm form, std::string_view block_scales) {
  const std::size_t index = source.entries.size();
  const std::vector<std::int32_t> runs = numbers_of_runs(schedule);
  const auto col = gradient.layout.col();
  const std::vector<std::int32_t> columns(col.begin(), col.end());
  const auto bytes =
      static_cast<std::int64_t>(4 * (schedule.worker_begin.size() + runs.size() + columns.size()));
  const TablePlace place = places.next(form, bytes);
  source.text +=
      "\n// Each worker's first run; four numbers a run: block row, first block, blocks, whether first of "
      "its row;\n"
      "// the column of each block.\n";
  ArrayWriter arrays(source, index, place);
  arrays.write("worker_begin", schedule.worker_begin);
  arrays.write("runs", runs);
  arrays.write("columns", columns);
  const auto element = [&](std::string_view array, std::string_view at) {
    return element_text(array, index, place, at);
  };
  source.text += fmt::format(
      "struct Table{} {{\n"
      "  __device__ static int worker(int index) {{ return {}; }}\n"
      "  __device__ static sparsekiln::BlockRun run(int index) {{\n"
      "    return {{{}, {}, {}, {}}};\n"
      "  }}\n"
      "  __device__ static int column(int block) {{ return {}; }}\n"
      "{}"
      "}};\n",
      index, element("worker_begin", "index"), element("runs", "4 * index"), element("runs", "4 * index + 1"),
      element("runs", "4 * index + 2"), element("runs", "4 * index + 3"), element("columns", "block"),
      block_scales);
}

}  // namespace

void write_tables(Source& source, TablePlaces& places, const Sddmm& gradient, const BlockRuns& schedule,
                  const Config& config, std::string_view block_scales) {
  if (groups_blocks(config))
    write_group_tables(source, places, schedule, config);
  else
    write_run_tables(source, places, gradient, schedule, config.table, block_scales);
}

void write_attached_table(Source& source, const Config& config, std::string_view block_scales) {
  source.text += fmt::format("\nstruct Table{} : sparsekiln::{} {{\n{}}};\n", source.entries.size(),
                             groups_blocks(config) ? "AttachedGroups" : "AttachedRuns", block_scales);
}

TableImage image_of(const Sddmm& gradient, const BlockRuns& schedule, const Config& config,
                    std::int32_t slices) {
  const auto col = gradient.layout.col();
  if (!groups_blocks(config)) {
    const std::vector<std::int32_t> runs = numbers_of_runs(schedule);
    return image_of({bytes_of(schedule.worker_begin), bytes_of(runs), bytes_of(col)}, slices);
  }
  const GroupTables tables(schedule, static_cast<std::size_t>(config.rows / 2));
  std::vector<std::int32_t> pairs;  // as PiecePair has them
  for (std::size_t pair = 0; pair < tables.taps.size(); ++pair) {
    const auto numbers = tables.pairs.begin() + static_cast<std::ptrdiff_t>(kPairNumbers * pair);
    pairs.insert(pairs.end(), numbers, numbers + kPairNumbers);
    pairs.push_back(tables.taps[pair]);
  }
  return image_of(
      {bytes_of(schedule.worker_begin), bytes_of(tables.groups), bytes_of(tables.tiles), bytes_of(pairs)},
      slices);
}

std::int64_t table_bound(const Sddmm& gradient, const Config& config) {
  if (groups_blocks(config)) {
    const GroupShape shape = group_shape(gradient, config);
    const std::int64_t tiles = shape.place_bytes / std::min(shape.out_bytes, shape.in_bytes);
    const std::int64_t pair_numbers = kPairNumbers + (has_taps(config) ? 1 : 0);
    return 4 * (group_bound(gradient, config) * (kGroupNumbers + pair_numbers * config.rows / 2 + tiles + 1) +
                2 + 4 * 4);
  }
  const std::int64_t runs = run_bound(gradient, config.rows);
  // A run has four numbers and at most a worker of its own, a block has its column.
  return 4 * (5 * runs + 2 + gradient.layout.blocks() + 3);
}

}  // namespace sparsekiln::cuda

#include "compiler/cuda/tables.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <span>

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln::cuda {
namespace {

// Bits of templates/schedule.cuh's Step.
constexpr int kPartBit = 24;
constexpr int kTileBit = 27;
static_assert(Layout::kMaxExtent <= 1 << kPartBit);  // so every column of a layout has a number here
constexpr std::uint32_t kAbsent = 1u << 29;
constexpr std::uint32_t kSameTileOfX = 1u << 30;
constexpr std::uint32_t kLastOfTile = 1u << 31;  // where output tiles have chunks of their own
constexpr std::uint32_t kLoadsAlone = 1u << 31;  // elsewhere

/// Appends the chunks of one item.
class ItemChunks {
 public:
  ItemChunks(const Schedule& schedule, ChunkShape chunk, Tables& tables)
      : rows_(schedule.rows), merge_(schedule.merge), chunk_(chunk), tables_(tables) {}

  void add(const Item& item, std::span<const Step> steps) {
    if (chunk_.of_tiles) return add_of_tiles(item, steps);
    const std::size_t first = tables_.steps.size();
    // Steps of one column together, part by part: a part of x then serves them all.
    for (std::size_t begin = 0; begin < steps.size();) {
      std::size_t end = begin + 1;
      while (end < steps.size() && (steps[end].flags & kSameInput) != 0) ++end;
      for (std::int32_t part = 0; part < chunk_.parts; ++part)
        for (std::size_t step = begin; step < end; ++step)
          for (std::int32_t weight = 0; weight < chunk_.weights; ++weight)
            add_step(steps[step], (steps[step].output() - item.tile) * chunk_.weights + weight, part,
                     step > begin || weight > 0, (steps[step].flags & kAlone) != 0 ? kLoadsAlone : 0);
      begin = end;
    }
    const auto blocks = static_cast<std::size_t>(chunk_.blocks);
    while ((tables_.steps.size() - first) % blocks != 0) add_absent();
    tables_.item_ends.push_back(static_cast<std::int32_t>(tables_.steps.size() / blocks));
  }
  /// The chunk after the last one.
  void add_unused() {
    for (std::int32_t block = 0; block < chunk_.blocks; ++block) add_absent();
  }

 private:
  /// Each step names the tile whose chunk it is, and whether another one follows for the same line of x.
  void add_of_tiles(const Item& item, std::span<const Step> steps) {
    std::array<std::int32_t, kMostTiles> count{};
    const auto line_of = [&](std::size_t step) { return steps[step].input() / chunk_.columns; };
    for (std::size_t begin = 0; begin < steps.size();) {
      std::size_t end = begin + 1;
      while (end < steps.size() && line_of(end) == line_of(begin)) ++end;
      for (std::size_t step = begin; step < end; ++step) {
        const std::int32_t tile = steps[step].output() - item.tile;
        const bool last =
            std::none_of(steps.begin() + static_cast<std::ptrdiff_t>(step) + 1,
                         steps.begin() + static_cast<std::ptrdiff_t>(end),
                         [&](const Step& later) { return later.output() == steps[step].output(); });
        add_step(steps[step], tile, 0, step > begin, last ? kLastOfTile : 0);
        ++count[static_cast<std::size_t>(tile)];
      }
      begin = end;
    }
    tables_.item_ends.insert(tables_.item_ends.end(), count.begin(), count.begin() + rows_);
  }
  void add_step(const Step& step, std::int32_t tile, std::int32_t part, bool same, std::uint32_t more = 0) {
    tables_.steps.push_back({static_cast<std::uint32_t>(step.input()) |
                                 static_cast<std::uint32_t>(part) << kPartBit |
                                 static_cast<std::uint32_t>(tile) << kTileBit | (same ? kSameTileOfX : 0) |
                                 (step.present() ? 0 : kAbsent) | more,
                             step.block[0]});
    tables_.more_blocks.insert(tables_.more_blocks.end(), step.block.begin() + 1,
                               step.block.begin() + merge_);
  }
  void add_absent() {
    // No row of a merged step is there; the block of a single one is not looked at.
    tables_.steps.push_back({kAbsent, merge_ == 1 ? 0 : -1});
    tables_.more_blocks.insert(tables_.more_blocks.end(), static_cast<std::size_t>(merge_ - 1), -1);
  }

  std::int32_t rows_;
  std::int32_t merge_;
  ChunkShape chunk_;
  Tables& tables_;
};

std::int64_t rounded_up(std::int64_t value, std::int64_t divisor) { return (value + divisor - 1) / divisor; }

}  // namespace

Tables make_tables(const Schedule& schedule, ChunkShape chunk) {
  if (chunk.parts > kMostParts || schedule.rows * chunk.weights > kMostTiles)
    throw Error(ErrorKind::internal,
                fmt::format("a table of {} parts a block and {} tiles an item is too large for "
                            "their numbers",
                            chunk.parts, schedule.rows * chunk.weights));
  Tables tables;
  ItemChunks chunks(schedule, chunk, tables);
  const auto begin_worker = [&] {
    tables.worker_begin.push_back(
        {static_cast<std::int32_t>(tables.steps.size() / static_cast<std::size_t>(chunk.blocks)),
         static_cast<std::int32_t>(tables.splits.size())});
  };
  for (std::int32_t worker = 0; worker < schedule.workers(); ++worker) {
    begin_worker();
    for (const Item& item : schedule.items_of(worker)) {
      chunks.add(item, schedule.steps_of(item));
      const auto places = schedule.row_of_place.begin() + std::ptrdiff_t{item.tile} * schedule.merge;
      tables.rows.insert(tables.rows.end(), places, places + schedule.rows * schedule.merge);
      tables.splits.push_back(item.parts > 1 ? static_cast<std::int32_t>(tables.parts.size()) : -1);
      if (item.parts > 1)
        tables.parts.push_back({item.partial + item.part, item.partial, item.parts, item.counter});
    }
  }
  begin_worker();
  chunks.add_unused();
  tables.item_ends.push_back(-1);  // after the last item: read, and not the number of a chunk
  return tables;
}

Tables make_tables(const Spmm& problem, const Schedule& schedule, ChunkShape chunk) {
  Tables tables = make_tables(schedule, chunk);
  const std::int32_t out_blocks = problem.out_blocks();
  if (!problem.correlation || problem.correlation->classes.size() == 1) return tables;
  const auto classes = static_cast<std::int32_t>(problem.correlation->classes.size());
  for (std::int32_t& row : tables.rows)
    if (row >= 0) row = row % out_blocks * classes + row / out_blocks;
  return tables;
}

std::int64_t Tables::bytes() const {
  const auto of = [](const auto& array) {
    return static_cast<std::int64_t>(array.size() * sizeof(array[0]));
  };
  return of(worker_begin) + of(steps) + of(more_blocks) + of(item_ends) + of(rows) + of(splits) + of(parts);
}

TableImage image_of(std::initializer_list<std::span<const std::byte>> arrays, std::int32_t counters) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::size_t kUnit = TableImage::kAlignment;
  TableImage image;
  image.counters = counters;
  auto offset = image.offsets.begin();
  for (const std::span<const std::byte> array : arrays) {
    *offset++ = static_cast<std::int64_t>(image.bytes.size());
    image.bytes.insert(image.bytes.end(), array.begin(), array.end());
    image.bytes.resize((image.bytes.size() + kUnit - 1) / kUnit * kUnit);
  }
  std::fill(offset, image.offsets.end(), static_cast<std::int64_t>(image.bytes.size()));
  return image;
}

std::int64_t chunk_bound(const Spmm& problem, const Config& config, ChunkShape chunk, std::int64_t workers) {
  // The last chunk of an item may lack blocks.
  return rounded_up(problem.layout.blocks() * config.cluster_rows * chunk.parts * chunk.weights,
                    chunk.blocks) +
         item_bound(problem.layout, config, workers);
}

std::int64_t table_bound(const Spmm& problem, const Config& config, ChunkShape chunk, std::int64_t workers) {
  const std::int64_t items = item_bound(problem.layout, config, workers);
  const std::int64_t steps = (chunk_bound(problem, config, chunk, workers) + 1) * chunk.blocks;
  // Every item may be a part, and every worker that has work has an item.
  const std::int64_t ends = chunk.of_tiles ? config.rows : 1;
  return steps * 4 * (1 + config.merge) + 4 +
         items * 4 * (1 + ends + std::int64_t{config.rows} * config.merge) +
         items * std::int64_t{sizeof(Tables::SplitPart)} +
         (items + 1) * std::int64_t{sizeof(Tables::WorkerBegin)};
}

}  // namespace sparsekiln::cuda

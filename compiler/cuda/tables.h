#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include <sparsekiln/binary.h>
#include <sparsekiln/problem.h>

#include "compiler/schedule.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// What one stage of shared memory holds of a block row, see templates/schedule.cuh. At most one
/// of blocks and parts is not 1.
struct ChunkShape {
  std::int32_t blocks = 1;   ///< blocks of a chunk
  std::int32_t parts = 1;    ///< chunks of a block, at most kMostParts
  std::int32_t weights = 1;  ///< whose tiles share x, each in a chunk of its own: W and V of a GLU in turn
  /// Warps that go through the same chunk, each with outputs or a weight of its own. Tables have it once.
  std::int32_t shares = 1;
  /// Block columns in a row that one load of x serves: those of a line that are loaded together, or the taps
  /// of one block of features.
  std::int32_t columns = 1;
  /// Each output tile of an item goes through its own chunks.
  bool of_tiles = false;
  friend bool operator==(const ChunkShape&, const ChunkShape&) = default;
};
inline constexpr std::int32_t kMostParts = 8;
/// The most output tiles of an item in a CUDA kernel: Config::rows, for each weight.
inline constexpr std::int32_t kMostTiles = 4;

/// A schedule as a kernel reads it: the arrays of templates/schedule.cuh, of the same layout in memory.
struct Tables {
  struct WorkerBegin {
    std::int32_t chunk = 0;
    std::int32_t item = 0;
    friend bool operator==(const WorkerBegin&, const WorkerBegin&) = default;
  };
  struct SplitPart {
    std::int32_t slot = 0;
    std::int32_t first = 0;
    std::int32_t parts = 0;
    std::int32_t counter = 0;
    friend bool operator==(const SplitPart&, const SplitPart&) = default;
  };

  struct Step {
    std::uint32_t bits = 0;
    std::int32_t block = 0;  ///< the first of those that are merged; -1: absent from a merged step
    friend bool operator==(const Step&, const Step&) = default;
  };

  std::vector<WorkerBegin> worker_begin;  ///< one more than workers
  std::vector<Step> steps;                ///< ChunkShape::blocks for each chunk, and for one more
  std::vector<std::int32_t> more_blocks;  ///< merge - 1 for each step
  /// The chunk after each item's last (an item without steps has none); with ChunkShape::of_tiles, how many
  /// chunks each tile of an item has. One more entry.
  std::vector<std::int32_t> item_ends;
  std::vector<std::int32_t> rows;    ///< rows × merge block rows for each item; -1: none
  std::vector<std::int32_t> splits;  ///< of each item: its place in `parts`; -1: whole
  std::vector<SplitPart> parts;
  friend bool operator==(const Tables&, const Tables&) = default;

  [[nodiscard]] std::int64_t bytes() const;
};
[[nodiscard]] Tables make_tables(const Schedule& schedule, ChunkShape chunk);
/// The same as the kernel of a product reads them: a row is a block row of y times the classes of a
/// convolution plus the class, so that kernels divide by the number of classes, whatever the layout.
[[nodiscard]] Tables make_tables(const Spmm& problem, const Schedule& schedule, ChunkShape chunk);

/// The memory of an array.
[[nodiscard]] auto bytes_of(const auto& array) { return std::as_bytes(std::span(array)); }
/// Arrays one after the other, as they come with a launch.
[[nodiscard]] TableImage image_of(std::initializer_list<std::span<const std::byte>> arrays,
                                  std::int32_t counters);

/// What the tables of one module may take of the 64 KB of `__constant__` memory.
inline constexpr std::int64_t kConstantTableLimit = 64 * 1024 - 256;
/// The most chunks that are unrolled: each is compiled separately.
inline constexpr std::int64_t kUnrolledChunks = 8;

/// No schedule of this problem over at most `workers` CTAs (target.workers × config.split) has more chunks,
/// or larger tables. From the layout's size alone.
[[nodiscard]] std::int64_t chunk_bound(const Spmm& problem, const Config& config, ChunkShape chunk,
                                       std::int64_t workers);
[[nodiscard]] std::int64_t table_bound(const Spmm& problem, const Config& config, ChunkShape chunk,
                                       std::int64_t workers);

}  // namespace sparsekiln::cuda

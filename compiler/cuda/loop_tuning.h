#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/tables.h"
#include "compiler/spmm.h"

// How often a kernel does what follows from its template; what that takes each time, in PTX, was fitted to
// the emulator's counters of 289 kernels, and is checked against them by tests/counters/prediction_test.cpp.

namespace sparsekiln::cuda {

/// What a CTA waits for whatever else its multiprocessor does: microseconds, as fitted to an H100
/// (docs/tuning-model.md).
struct Waits {
  double latency =
      0.6;              ///< until a chunk is there, of which one fewer are under way than the ring has stages
  double chunk = 0;     ///< that is multiplied
  double kilobyte = 0;  ///< of a chunk
  double round = 0;     ///< of batch tiles, after the first
  double wave = 0;      ///< of CTAs on a multiprocessor, after the first
  double instruction = 0;  ///< of a warp, cycles
  double item = 0.685;     ///< that is written, and its kilobytes beside
  double launch = 2.51;    ///< that does least, its first loads and last stores
  /// The share of the shorter times that adds to the longest one: resources are not in use at the same time
  /// throughout.
  double overlap_lost = 0.2;
};

/// What a CTA takes of its multiprocessor.
struct CtaCosts {
  std::int32_t threads = 0;
  std::int32_t registers = 0;     ///< a thread, an estimate
  std::int64_t shared_bytes = 0;  ///< static and dynamic
  /// Each warp goes through chunks of its own, as many at a time as there are warps; else all warps of a CTA
  /// multiply the same one.
  bool chunk_per_warp = false;
  /// Products reach the full rate of the tensor cores, not the share of it that mma.sync has on sm_90.
  bool full_rate = false;
  /// The copy engine brings operands, in lines that are fetched at once.
  bool copies_lines = false;
  /// Bytes of a cycle that come from L2 into a multiprocessor.
  double cache_bytes = 60.7;
  std::int32_t product_tiles = 1;  ///< of 16 × 8 sums, that a tensor-core instruction of a warp adds to
  Waits waits;
};

/// What the code of a product does each time, all warps of a CTA together. Instructions are of warps, and
/// those of tensor cores apart.
struct LoopCosts : CtaCosts {
  ChunkShape shape;
  std::int64_t chunk_products = 0;      ///< tensor-core instructions of a chunk
  std::int64_t chunk_fmas = 0;          ///< multiply-adds on CUDA cores, of threads: part of `chunk`
  std::int64_t chunk_shared_bytes = 0;  ///< through shared memory, of a chunk
  std::int64_t load_shared_bytes = 0;   ///< the same, of a tile of x, where chunk_shared_bytes are without it
  double loaded_of_one = 0;  ///< rows of x that a load brings for each of the batch; 0: those of the product
  double begin = 0;          ///< instructions: of a CTA on one batch tile, besides what follows
  double chunk = 0;
  double load = 0;     ///< of a chunk that brings a tile of x
  double item = 0;     ///< that ends
  double store = 0;    ///< of an item that reaches y
  double entries = 0;  ///< as well, for each 8 batch rows that exist
  double part = 0;     ///< of a part of a split item
};

/// The costs of the code of a gradient of the weight, counted as in LoopCosts. A chunk has config.tile_n
/// batch rows.
struct SddmmCosts : CtaCosts {
  std::int32_t warps_in = 1;            ///< groups of warps, side by side along the inputs of a run
  std::int64_t group_products = 0;      ///< of a group that has blocks to multiply, in a chunk
  std::int64_t group_fmas = 0;          ///< of the same group, on CUDA cores, of threads
  std::int64_t group_shared_bytes = 0;  ///< of the same group
  std::int64_t chunk_shared_bytes = 0;  ///< of copies
  /// Rows of a group's tile of dy, and of one of x, that are loaded for each of the batch.
  double out_rows_of_one = 1;
  double in_rows_of_one = 1;
  double begin = 0;  ///< instructions: of a CTA
  double run = 0;
  double chunk = 0;  ///< of a run
  double group = 0;  ///< of a group that has blocks to multiply, in a chunk
  double block = 0;  ///< that is written
};

inline constexpr std::int32_t kMostRegisters = 255;  ///< a thread
inline constexpr double kEntries = 8;                ///< of LoopCosts::entries

[[nodiscard]] constexpr std::int32_t ceil_div(std::int32_t value, std::int32_t divisor) {
  return (value + divisor - 1) / divisor;
}
/// The costs of what not all kernels have.
[[nodiscard]] constexpr double if_it(bool has, double costs) { return has ? costs : 0; }

/// Tensor-core instructions for a product 32 bytes deep: m16n8k16 is not there before sm_80.
[[nodiscard]] std::int32_t halves(const Target& target, DType dtype);
/// Instructions of the epilogue, for a value of y.
[[nodiscard]] double value_costs(const Computation& problem);
/// Instructions of a copy of x by one pass of a warp, besides the copy itself: narrower ones, and the
/// derivative at z.
[[nodiscard]] double activation_costs(const Computation& problem);
/// Instructions of a copy of W by one pass of a warp, besides the copy itself: a block's scale.
[[nodiscard]] double block_scale_costs(const Computation& problem);

/// Whether a thread's registers, by the family's estimate, are so few that NVRTC 13 spills none: at most
/// `most`, and fewer where copies are more than queued, since their addresses take registers, too. `cut`: the
/// last block column is.
[[nodiscard]] bool has_registers(const Computation& problem, bool cut, const CtaCosts& costs,
                                 std::int32_t most);
/// CudaTuning::keeps_costs of products.
[[nodiscard]] bool has_registers(const Spmm& problem, const Target& target, const Config& config,
                                 const LoopCosts& costs);

/// What rejections of several families say.
inline constexpr const char* kOtherArithmetic =
    "tensor cores multiply types that CUDA cores do not, and the other way round";
inline constexpr const char* kRowsOfA = "the rows of a tensor core's A are 16 batch rows";

/// What a family says of how its threads share a tile.
struct LatticeShare {
  std::int32_t passes = 1;     ///< rows of x that a thread copies of a chunk
  std::int32_t registers = 0;  ///< that each of them takes
  std::int32_t rows = 1;       ///< rows of y that a thread has sums of
};
/// Adds what the rows of a convolution take: of x a division for each where a tile begins, a tap for each
/// chunk, and an address and a test for each copy; and a division for each of y, where a stride scatters
/// them.
void add_lattice_costs(LoopCosts& costs, const Spmm& problem, const LatticeShare& share);

}  // namespace sparsekiln::cuda

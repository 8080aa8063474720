#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

namespace sparsekiln {

/// What one kernel takes of the machine. CUDA figures are read from the cubin and from ptxas's report.
struct Resources {
  std::int32_t registers = 0;         ///< a thread
  std::int32_t shared_bytes = 0;      ///< a CTA, static
  std::int32_t stack_bytes = 0;       ///< local memory a thread
  std::int32_t spill_load_bytes = 0;  ///< as the compiler reports
  std::int32_t spill_store_bytes = 0;
  std::int32_t constant_bytes = 0;  ///< `__constant__` data of the whole module
  std::int64_t code_bytes = 0;      ///< machine code of this entry
  friend bool operator==(const Resources&, const Resources&) = default;
};

/// How the launcher makes one kernel argument. x and y stand for what an operation reads and writes in their
/// places: dy and dx for grad_input.
enum class Argument : std::uint8_t {
  x,                ///< pointer
  w,                ///< pointer
  y,                ///< pointer
  workspace,        ///< pointer; see Workspace
  n,                ///< int32: the batch of this call
  x_stride,         ///< int64: elements from a batch row (feature-major: feature, or image) of x to the next
  y_stride,         ///< int64: the same for y
  v,                ///< pointer
  bias,             ///< pointer
  v_bias,           ///< pointer
  residual,         ///< pointer
  residual_stride,  ///< int64
  z,                ///< pointer
  z_stride,         ///< int64
  block_scales,     ///< pointer
  dbias,            ///< pointer
  dblock_scales,    ///< pointer
  alpha,            ///< float
  beta,             ///< float
  pairs,            ///< grad_weight: the addresses of kMostPairs pairs (x, dy, z) and their count, by value
  tables,      ///< the layout's: pointers to the arrays of a TableImage, uploaded when the kernel was loaded.
               ///< On the cpu TableImage::bytes
  tensor_map,  ///< by value: that of Entry::tensor_maps which has as many of these arguments in front
  edge_gain,   ///< pointer
  edge_bias,   ///< pointer
  images,      ///< by value: six int32, the extents of images that are read and written
  cell,        ///< by value: the operands of an LSTM's cell
  normalisation,  ///< by value: those of a layer normalisation
  pair_x,         ///< pointer, of a tensor map alone: x of one of `pairs`, which TensorMap::pair says
  pair_dy,        ///< pointer, the same: dy
  vector,  ///< pointer: the first of kMostVectors operands without gaps, which the table of operands names
};
/// Operands that have no Argument of their own name, but a number.
inline constexpr int kMostVectors = 8;
[[nodiscard]] constexpr Argument vector_argument(int number) {
  return static_cast<Argument>(static_cast<int>(Argument::vector) + number);
}
inline constexpr Argument kLastArgument = vector_argument(kMostVectors - 1);

/// Whether it is the address of an operand.
[[nodiscard]] bool is_pointer(Argument argument);
/// The argument that is the distance between the rows of an operand; none where its rows have no gaps.
[[nodiscard]] constexpr std::optional<Argument> stride_of(Argument operand) {
  if (operand == Argument::x || operand == Argument::pair_x) return Argument::x_stride;
  if (operand == Argument::y || operand == Argument::pair_dy) return Argument::y_stride;
  if (operand == Argument::residual) return Argument::residual_stride;
  if (operand == Argument::z) return Argument::z_stride;
  return std::nullopt;
}

/// Scratch memory of one launch: the arrival counters of all batch tiles, then a part for each tile, then one
/// for each of the batch. The counters come first and take the same number of bytes for every n and every
/// entry of a Binary, so that no partial sum of one launch overwrites a counter of another. They must be zero
/// before the first launch of a Binary; every launch leaves them at zero.
struct Workspace {
  std::int64_t counter_bytes = 0;   ///< a multiple of 128
  std::int64_t bytes_per_tile = 0;  ///< partial sums, and then packed activations
  std::int64_t bytes_of_one = 0;    ///< of each of the batch: activations, packed for one tile, or transposed
  /// After all of these, for each of the batch: a row of the sums of the product, where they are wider than
  /// the result that a pass of the launch makes of them. They are then what y is for the product. A multiple
  /// of 16; 0: y is the caller's.
  std::int64_t sums_of_one = 0;
  friend bool operator==(const Workspace&, const Workspace&) = default;
};

/// The tables of an attached layout, as they are copied to a CUDA device: the arrays that the kernel's
/// argument points at, one after the other, little-endian as every target is. The cpu's code reads them from
/// host memory: numbers of the layout (its features, its last row and column, bytes of workspace), and then
/// the arrays of its schedule.
struct TableImage {
  static constexpr std::size_t kArrays = 7;
  static constexpr std::int64_t kAlignment = 16;
  std::vector<std::byte> bytes;  ///< never empty where a layout is attached
  /// Where worker_begin, steps, more_blocks, item_ends, rows, splits and parts begin in it, or the arrays of
  /// a gradient of the weight (AttachedRuns in templates/sddmm.cuh), or the cpu's: multiples of kAlignment.
  /// An array without elements begins where the next one does.
  std::array<std::int64_t, kArrays> offsets{};
  /// Arrival counters of one batch tile; of a gradient of the weight the CTAs that share a run.
  std::int32_t counters = 0;
  friend bool operator==(const TableImage&, const TableImage&) = default;
};

/// How many tiles of tile_n batch rows (0: of all) a batch of n has.
[[nodiscard]] constexpr std::int64_t batch_tiles(std::int64_t n, std::int32_t tile_n) {
  return tile_n == 0 ? 1 : (n + tile_n - 1) / tile_n;
}

/// What a CUDA launch may ask for besides the grid, the CTA and dynamic shared memory.
struct LaunchAttributes {
  /// CTAs of a cluster: workers, whose number is a multiple, and batch tiles, of which the grid has as many
  /// rows as make whole clusters. 1 and 1: no clusters. sm_90 and later.
  std::array<std::int32_t, 2> cluster{1, 1};
  /// The launch may begin before the one before it in its stream has ended (programmatic dependent launch):
  /// the kernel itself waits for what it reads. sm_90 and later.
  bool overlaps_previous = false;
  /// Every pass but the first may begin before the one before it has ended, in the same way.
  bool passes_overlap = false;

  [[nodiscard]] bool clustered() const { return cluster[0] * cluster[1] != 1; }
  friend bool operator==(const LaunchAttributes&, const LaunchAttributes&) = default;
};

/// How the launcher makes a CUtensorMap, by which the copy engine of sm_90 and later (TMA) copies boxes of a
/// matrix. A row's elements are contiguous. What a box has beyond the matrix is read as zeros. Limits are
/// those of cuTensorMapEncodeTiled. Where an extent is 0, or a launch has no such pair, there is nothing to
/// copy, and the map is zeros.
struct TensorMap {
  Argument operand = Argument::x;  ///< a pointer, where the matrix begins: aligned to 16 bytes
  DType type = DType::f16;
  std::int64_t row_length = 0;  ///< elements; 0: n of the launch
  std::int64_t rows = 0;        ///< 0: n of the launch
  /// Elements from one row to the next; 0: the operand's stride argument. A multiple of 16 bytes.
  std::int64_t stride = 0;
  std::int32_t box_length = 0;  ///< elements of a box's row: up to 256, a multiple of 16 bytes
  std::int32_t box_rows = 0;    ///< up to 256
  /// Bytes within which a box's 16-byte units are exchanged in shared memory: 0 (none), 32, 64 or 128. A
  /// box's row has no more.
  std::int32_t swizzle_bytes = 0;
  /// The order in which a box has its rows: of each 4 · interleave, row lane · interleave + 2 · pair + half
  /// comes at place 8 · pair + 2 · lane + half. The tensor cores give two neighbouring columns to a lane: so
  /// those of a lane become `interleave` neighbouring rows of the matrix. 4 or 8; 0: the rows' own order.
  /// (The driver's CUtensorMapInterleave is another matter: it is always none.)
  std::int32_t interleave = 0;
  bool to_tf32 = false;         ///< float32 is rounded to tf32 on its way: to nearest, ties to even
  std::int32_t l2_bytes = 128;  ///< what is fetched into L2 at a time: 0 (as it is read), 64, 128 or 256
  std::int32_t pair = 0;        ///< that pair_x or pair_dy is of; 0 for other operands
  /// Where the matrix is images, whose positions are rows one after the other: the extents of an image,
  /// depth, height and width. `rows` are images then, and box_rows those of a box. 0, 0 and 0: rows are no
  /// positions.
  std::array<std::int32_t, 3> image{};
  std::array<std::int32_t, 3> box_image{};  ///< positions of a box: up to 256 each, times their step
  /// From a position of a box to the next one in the image: up to 8 each, and 1 where rows are no positions.
  std::array<std::int32_t, 3> step_image{1, 1, 1};
  friend bool operator==(const TensorMap&, const TensorMap&) = default;
};
/// The most that an entry has, which are those of all pairs: a launch makes them on its stack.
inline constexpr std::size_t kMostTensorMaps = 2 * kMostPairs;

/// The most rows of a grid, gridDim.y (CUDA C++ Programming Guide, technical specifications per compute
/// capability).
inline constexpr std::int32_t kMostGridRows = 65535;

/// One entry point and the recipe for launching it.
///
/// Batch tiles = ceil(n · rows_of_one / tile_n). CUDA: grid (workers, min(batch tiles,
/// tiles_in_flight), 1), and a CTA goes on to batch tile + gridDim.y; every pass is a kernel of its own,
/// launched in the same stream with the same grid, arguments and attributes. CPU: every pass is run over all
/// (worker, batch tile) pairs, a pass starts when the one before it has ended on all.
struct Entry {
  std::int64_t up_to = 0;           ///< the largest n this entry serves; entries ascend
  std::vector<std::string> passes;  ///< symbol names, run in this order
  std::int32_t workers = 1;         ///< grid.x
  std::int32_t tile_n = 1;          ///< rows of the product a tile; 0: one tile has the whole batch
  /// Rows of the product for each of the batch: points of an image of a convolution, of the largest where it
  /// is dynamic. On the cpu its tiles are jobs, and only the quotient counts: a job has tile_n / rows_of_one
  /// images, or an image the inverse, jobs.
  std::int32_t rows_of_one = 1;
  std::int32_t tiles_in_flight = kMostGridRows;  ///< batch tiles at once; CUDA's
  std::int32_t threads = 1;                      ///< a CTA
  std::int32_t dynamic_shared_bytes = 0;
  LaunchAttributes attributes;         ///< CUDA's; the cpu has none
  std::vector<TensorMap> tensor_maps;  ///< CUDA's: one for each Argument::tensor_map, in their order
  /// In the order of the kernel's parameters. A pass of the cpu takes all of LaunchOperands; only `tables` is
  /// listed here for it.
  std::vector<Argument> arguments;
  Workspace workspace;
  Resources resources;
  /// Filled in where the entry takes Argument::tables and a layout is attached; else empty. Before a layout
  /// is attached such an entry has no workers and no workspace either.
  TableImage tables;

  [[nodiscard]] bool takes_tables() const {
    return std::find(arguments.begin(), arguments.end(), Argument::tables) != arguments.end();
  }
  [[nodiscard]] std::int64_t batch_tiles(std::int64_t n) const {
    return sparsekiln::batch_tiles(n * rows_of_one, tile_n);
  }
  /// Where the sums of the product begin in the workspace of a launch with a batch of n, in bytes.
  [[nodiscard]] std::int64_t sums_begin(std::int64_t n) const {
    return workspace.counter_bytes + workspace.bytes_per_tile * batch_tiles(n) + workspace.bytes_of_one * n;
  }
  /// What such a launch needs of this entry. Entries for larger n may need less: see Binary::workspace_bytes.
  [[nodiscard]] std::int64_t workspace_bytes(std::int64_t n) const {
    return sums_begin(n) + workspace.sums_of_one * n;
  }
  friend bool operator==(const Entry&, const Entry&) = default;
};

/// What the launcher writes to a variable of a CUDA module when it is loaded: tables too large to be
/// compiled.
struct ModuleData {
  std::string symbol;  ///< of a variable of as many bytes, aligned to 16
  std::vector<std::byte> bytes;
  friend bool operator==(const ModuleData&, const ModuleData&) = default;
};

/// What a launch checks its operands against.
struct OperandContract : Computation {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  std::int64_t blocks = 0;
  bool packed = false;  ///< w must come from Kernel::pack
  /// Rows of edge_gain and edge_bias. Follows from the convolution, and is not stored.
  std::int32_t edge_situations = 0;
  friend bool operator==(const OperandContract&, const OperandContract&) = default;
};

/// Machine code and the typed recipe for launching it. Built without a device; holds no pointer and no path.
/// The same problem, target and plan give the same bytes, whenever and wherever they are built.
struct Binary {
  Target target;
  Plan plan;
  OperandContract operands;
  std::vector<Entry> entries;
  std::vector<std::byte> code;   ///< cubin, or ELF object
  std::vector<ModuleData> data;  ///< CUDA's
  std::string ptx;               ///< empty on the cpu target
  std::string log;               ///< the compiler's, timings stripped; may be empty
  std::string compiler;          ///< "NVRTC 13.0", "LLVM 19.1.7"
  std::string options;           ///< as passed to it
  Digest source;                 ///< of the emitted source

  /// Whether this was made for attached tables and no layout is attached: then it is what all layouts share,
  /// and cannot be launched. Its contract has no features and no blocks.
  [[nodiscard]] bool lacks_layout() const {
    return std::any_of(entries.begin(), entries.end(),
                       [](const Entry& entry) { return entry.takes_tables() && entry.tables.bytes.empty(); });
  }

  /// The size of a workspace that serves every launch with a batch of at most n, whichever entry it is for:
  /// never less for a larger n.
  [[nodiscard]] std::int64_t workspace_bytes(std::int64_t n) const {
    std::int64_t bytes = 0;
    for (const Entry& entry : entries) {
      bytes = std::max(bytes, entry.workspace_bytes(std::min(n, entry.up_to)));
      if (n <= entry.up_to) break;
    }
    return bytes;
  }
  /// The bytes at the front of a workspace that must be zero before its first launch, whatever its batch and
  /// entry; what follows them may hold anything.
  [[nodiscard]] std::int64_t workspace_counter_bytes() const {
    std::int64_t bytes = 0;
    for (const Entry& entry : entries) bytes = std::max(bytes, entry.workspace.counter_bytes);
    return bytes;
  }
  friend bool operator==(const Binary&, const Binary&) = default;
};

/// A self-contained, versioned byte form. `deserialize` checks everything, and throws `cache` where anything
/// is wrong.
[[nodiscard]] std::vector<std::byte> serialize(const Binary& binary);
[[nodiscard]] Binary deserialize(std::span<const std::byte> bytes);

}  // namespace sparsekiln

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparsekiln {

/// A family of kernels: one template, one emitter.
enum class Variant : std::uint8_t {
  simt,    ///< CUDA cores, float32, one fused multiply-add a product in ascending order of k
  mma,     ///< tensor cores: types of 8 and 16 bits, and f32 rounded to tf32, summed in float32 or int32
  stream,  ///< small batches, on CUDA cores or tensor cores: each warp streams its own blocks of the weight
  vector,  ///< the cpu target's vector units, through LLVM
  wgmma,   ///< sm_90a: tensor cores fed by the copy engine; the types of mma, blocks of 64 and more
  direct,  ///< tensor cores fed from registers, for small batches
  /// sm_90a: tensor cores fed by the copy engine, whose warpgroups have block rows of their own
  wgmma_rows,
  grouped,  ///< sm_90a: grad_weight of large batches, whose CTAs sum many blocks at once
  halo,     ///< sm_90a: convolutions, whose taps read one tile of the image with its border; f16 and bf16
};
/// The most numbers of its own that a family has.
inline constexpr std::size_t kMostKnobs = 4;
struct NamedVariant {
  Variant value;
  std::string_view name;
  /// The names of Config::knobs, of which the family's own file says what they mean. A name of no other
  /// field.
  std::array<std::string_view, kMostKnobs> knobs = {};
};
/// Every variant, in the order of the enumerators: configs are written and read by it, and a stored Binary is
/// checked against its last row.
inline constexpr NamedVariant kVariants[] = {
    {Variant::simt, "simt"},
    {Variant::mma, "mma"},
    {Variant::stream, "stream"},
    {Variant::vector, "vector"},
    {Variant::wgmma, "wgmma"},
    {Variant::direct, "direct", {"panels"}},
    {Variant::wgmma_rows, "wgmma_rows"},
    {Variant::grouped, "grouped"},
    {Variant::halo, "halo"},
};
[[nodiscard]] std::string_view name(Variant variant);

/// Where the coordinates of the schedule live.
enum class TableForm : std::uint8_t {
  constant,  ///< `__constant__`, 64 KB at most
  global,    ///< `__device__`: constants of the code, or beside it (Binary::data) where they are large
  unrolled,  ///< `__device__ const`, and each step has its own code with its coordinates; for very short work
  attached,  ///< none: it comes when the kernel is loaded, so that all layouts share one Binary
};
[[nodiscard]] std::string_view name(TableForm form);

/// Which operand is the tensor core's A, 16 rows a tile; the other is B, 8 columns.
enum class OperandA : std::uint8_t {
  x,  ///< rows are batch rows
  w,  ///< rows are outputs: for batches that do not fill tiles of 16 rows, and in wgmma_rows
};
[[nodiscard]] std::string_view name(OperandA operand);

/// Config::in_flight: all batch tiles; and as many as follow from the rest, which `compile` puts in its place
/// before it looks for a kernel.
inline constexpr std::int32_t kAllInFlight = 0;
inline constexpr std::int32_t kDerivedInFlight = -1;

/// Config::split of products with attached tables: what suits the layout, chosen when it is attached.
inline constexpr std::int32_t kDerivedSplit = 0;

/// The tuned numbers of one kernel. They decide its speed, never its precision.
struct Config {
  Variant variant = Variant::simt;
  std::int32_t tile_n = 64;  ///< batch rows of one output tile
  /// simt: outputs of a thread. mma: of a warp; 0: automatic. stream, direct: outputs of a block that a warp
  /// computes; 0: all. vector: outputs of a register tile.
  std::int32_t tile_out = 0;
  std::int32_t stages = 1;  ///< operand buffers in flight
  std::int32_t warps = 4;   ///< warps of a CTA; 1 on the cpu target
  std::int32_t split = 1;   ///< CTAs the schedule plans for each worker, or kDerivedSplit; rows may be
                            ///< split between them
  std::int32_t rows = 1;    ///< output tiles that one item computes side by side, from the same tiles of x;
                            ///< grouped, halo's grad_weight: pieces that a CTA sums at once, at most
  std::int32_t merge = 1;   ///< block rows stacked into one output tile; absent blocks are filled with zeros
  /// Steps that splitting rows must save the worker that has most; if it saves no more, they stay whole. CUDA
  /// targets.
  std::int32_t split_saves = 0;
  /// Batch tiles that are computed at the same time, so that their x stays in L2; or kAllInFlight, or
  /// kDerivedInFlight. Products on CUDA targets.
  std::int32_t in_flight = kDerivedInFlight;
  /// CTAs that compute neighbouring batch tiles and share the blocks of the weight that the copy engine
  /// brings them: a cluster. wgmma and wgmma_rows.
  std::int32_t cluster = 1;
  /// CTAs of a cluster that compute other block rows of the same batch tile, and share the tiles of x that
  /// the copy engine brings them. wgmma.
  std::int32_t cluster_rows = 1;
  /// Numbers of the family's own, by their names in its row of kVariants; 0, where they are not given.
  std::array<std::int32_t, kMostKnobs> knobs{};
  TableForm table = TableForm::constant;
  OperandA operand_a = OperandA::x;  ///< on tensor cores
  bool packed = false;               ///< reads the weight as `Kernel::pack` lays it out

  friend bool operator==(const Config&, const Config&) = default;
};
/// "simt tile_n=64 tile_out=4 stages=2 …": every field, in the order above, but those of clusters only
/// where there are some, knobs only where they are not 0, and in_flight, which may be "all", only where it is
/// given; split may be "derived". `parse_config` reads it back.
[[nodiscard]] std::string to_string(const Config& config);
[[nodiscard]] Config parse_config(std::string_view text);
/// Throws `invalid_argument` where a knob is not 0 that the variant has no name for.
void check_knobs(const Config& config);

/// A config and the largest n it serves.
struct RangedConfig {
  std::int64_t up_to = 0;
  Config config;
  friend bool operator==(const RangedConfig&, const RangedConfig&) = default;
};
/// Ascending by `up_to`; a fixed batch has one entry.
using Plan = std::vector<RangedConfig>;
/// "64: simt …" joined by "; "; `parse_plan` reads it back.
[[nodiscard]] std::string to_string(const Plan& plan);
/// Throws `invalid_argument`.
[[nodiscard]] Plan parse_plan(std::string_view text);

}  // namespace sparsekiln

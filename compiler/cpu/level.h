#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

namespace sparsekiln::cpu {

/// What the emitter knows of an instruction set level. Nothing is read from the host: objects for a level are
/// the same bytes on every machine.
struct Level {
  std::string_view name;      ///< as in Target::arch
  std::string_view triple;    ///< empty: LLVM's default, the host's
  std::string_view cpu;       ///< LLVM's name of the level
  std::string_view features;  ///< beyond it
  std::int32_t lanes;         ///< 32-bit lanes of a vector register
  std::int32_t tile_outputs;  ///< the most outputs of a register tile two or three vectors of tokens wide
  std::int32_t wide_outputs;  ///< of one four vectors wide; 0: such tiles are not used
  /// Of the blocks whose packed weight is read in vectors of outputs; 0: none are. Two vectors.
  std::int32_t broadcast_outputs;
  std::int32_t tile_tokens;  ///< the most tokens of such a block's register tile
  std::int32_t most_sums;    ///< vectors of a register tile, beside what it multiplies
  bool fused;                ///< has a fused multiply-add
  bool dot_bf16;             ///< has vdpbf16ps
  bool f16c;                 ///< converts between f16 and f32 in one instruction
};

/// The level of a cpu target. Throws `invalid_argument` and lists the levels.
[[nodiscard]] const Level& level_of(const Target& target);

/// What the lanes of a vector stand for.
enum class Axis : std::uint8_t {
  token,   ///< on x packed into panels; the weight is broadcast
  output,  ///< on the weight packed by words of k; x is broadcast
  k,       ///< for batch tiles with fewer tokens than lanes: the weight streams by at full width
};
/// k, where tile_n has fewer tokens than a vector has lanes. Outputs, where the weight is packed, in blocks
/// of Level::broadcast_outputs outputs, in float32, and Config::tile_out leaves the register tile open. Else
/// tokens. None changes a bit of the results but k.
[[nodiscard]] Axis axis_of(const Level& level, std::int32_t block_out, DType dtype, const Config& config);

/// The share of one output tile that is held in registers.
struct RegisterTile {
  std::vector<std::int32_t> outputs;  ///< of each tile of a block, in order; they add up to block.out
  /// Axis::token: of tokens, `lanes` each; a tile has outputs × vectors sums. Axis::output: of a tile's
  /// outputs; it has tokens × vectors sums.
  std::int32_t vectors = 1;
  std::vector<std::int32_t> tokens;  ///< Axis::output: of each tile of a batch tile; they add up to tile_n
  [[nodiscard]] std::int32_t largest() const;
};

/// Splits a block's outputs, and along outputs the tokens too, evenly into the fewest tiles that fit the
/// registers. Config::tile_out caps a tile's outputs; 0: only the registers do. Tiles along k are of one
/// output each. `by_columns`: the weight is read turned, as grad_input does.
[[nodiscard]] RegisterTile register_tile(const Level& level, std::int32_t block_out, DType dtype,
                                         const Config& config, bool by_columns = false);

}  // namespace sparsekiln::cpu

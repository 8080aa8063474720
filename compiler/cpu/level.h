#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

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
  bool fused;                 ///< has a fused multiply-add
  bool dot_bf16;              ///< has vdpbf16ps
};

/// The level of a cpu target. Throws `invalid_argument` and lists the levels.
[[nodiscard]] const Level& level_of(const Target& target);

/// Whether a batch tile has fewer tokens than a vector: then vectors run along k instead.
[[nodiscard]] bool is_thin(const Level& level, std::int32_t tile_n);

/// The share of one output tile that is held in registers: `outputs` × `vectors` accumulators.
struct RegisterTile {
  std::vector<std::int32_t> outputs;  ///< of each tile of a block, in order; they add up to block.out
  std::int32_t vectors = 1;           ///< of tokens, `lanes` each
  [[nodiscard]] std::int32_t largest() const;
};

/// Splits a block's outputs evenly into the fewest tiles that fit the registers. `tile_out` caps a tile's
/// outputs; 0: only the registers do. Thin tiles are of one output each.
[[nodiscard]] RegisterTile register_tile(const Level& level, std::int32_t block_out, std::int32_t tile_n,
                                         std::int32_t tile_out);

}  // namespace sparsekiln::cpu

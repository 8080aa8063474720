#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <sparsekiln/target.h>

namespace sparsekiln::cpu {

/// The properties of an instruction set level of the cpu target, with LLVM in the build or without. Nothing
/// is read from the host: objects for a level are the same bytes on every machine.
struct Level {
  std::string_view name;  ///< as in Target::arch

  // What LLVM is told.
  std::string_view triple;    ///< empty: LLVM's default, the host's
  std::string_view cpu;       ///< LLVM's name of the level
  std::string_view features;  ///< beyond it
  /// What a host has that runs the level and not only those before it, by LLVM's names.
  std::span<const std::string_view> host_features;

  // What the processor has.
  std::int32_t lanes;      ///< 32-bit lanes of a vector register
  std::int32_t registers;  ///< vector registers
  bool fused;              ///< a fused multiply-add
  bool dot_bf16;           ///< vdpbf16ps
  bool f16c;               ///< conversions between f16 and f32 in one instruction
  bool streaming_stores;   ///< stores that go past the caches

  // What suits it: see the table.
  std::int32_t tile_outputs;  ///< the most outputs of a register tile two or three vectors of batch rows wide
  std::int32_t wide_outputs;  ///< of one four vectors wide; 0: such tiles are not used
  /// Outputs of the blocks whose packed weight is read in vectors of outputs: two vectors; 0: there are none.
  std::int32_t broadcast_outputs;
  std::int32_t tile_batch_rows;  ///< the most batch rows of such a block's register tile
  std::int32_t gradient_sums;    ///< vectors of sums of a register tile of grad_weight

  /// wide_outputs, where bf16 is multiplied as the `halves` of pairs, which take a register more than
  /// float32.
  [[nodiscard]] std::int32_t wide_outputs_of(bool halves) const {
    const bool room = registers > 4 * wide_outputs + 4;
    return wide_outputs - (halves && !room ? 1 : 0);
  }
  /// Vectors of sums of any other register tile, besides what it multiplies.
  [[nodiscard]] std::int32_t most_sums() const { return registers - 2; }
};

/// All levels: those of x86-64, each with what the one before has, and "generic".
[[nodiscard]] std::span<const Level> levels();
/// Null where no level has the name.
[[nodiscard]] const Level* find_level(std::string_view name);
/// The level of a cpu target. Throws `invalid_argument` and lists the levels.
[[nodiscard]] const Level& level_of(const Target& target);
/// Whether a host of one level runs code for another. Code for "generic" is for a host's family, which
/// linking checks.
[[nodiscard]] bool runs(std::string_view host, std::string_view level);
/// "x86-64, x86-64-v3, …"
[[nodiscard]] std::string level_names();

}  // namespace sparsekiln::cpu

#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/column.h"

namespace sparsekiln::conformance {

// clang-format off
/// One kernel, and the answers that the ISA specifies for it.
///
/// A case file consists of lines. Those that begin with # are comments, and indented lines belong to the word
/// above them:
///
///     case mul.hi.s32 keeps the upper half    name of the case
///     target 80                               least compute capability × 10; 75 by default; 90a: that alone
///     threads 8 4 2                           of the block; 32 by default
///     blocks 2                                of the grid, in up to three dimensions; 1 by default
///     shared 1024                             bytes of dynamic shared memory; 0 by default
///     refused .cc is not implemented          the emulator must say so and not run it; hardware runs it
///     in s32 a, s32 b                         registers of each thread with its inputs
///     out s32 d, f32 c[4]                     registers of each thread with its answers; c0 … c3
///     judge c relative 1e-3                   or `ulp 2`, `absolute 0.5`, `unordered`; by default bit for bit
///     module                                  text next to the entry: variables, functions
///       .shared .align 4 .b32 cell;
///     ptx                                     the body
///       mul.hi.s32 d, a, b;
///     rows                                    one per thread; repeated from the first if there are too few
///       0x40000000 8 -> 2 0 0 0 0
///     lanes                                   or one column each: `0..31` counts, `7*32` repeats
///       a: 0..31
///
/// In the body, `tid` is the thread's number in the grid, `lane` that in its warp, `scratch` the address of
/// 64 KiB of zeros in global memory, `out_row` that of the thread's answers.
// clang-format on
struct Case {
  std::string family;  ///< name of the file
  std::string name;
  std::string file;
  int line = 0;
  int target = 75;
  bool for_target_alone = false;          ///< needs what only this architecture has: sm_90a
  std::array<int, 3> block = {32, 1, 1};  ///< threads
  std::array<int, 3> grid = {1, 1, 1};    ///< blocks
  int shared_bytes = 0;
  std::string refused;  ///< what the emulator says where it refuses the case by design; else empty
  std::vector<Column> in, out;
  std::string module_text, body;
  std::vector<std::vector<std::uint64_t>> given;  ///< by thread of the grid, then by column
  std::vector<std::vector<Expected>> expected;    ///< likewise

  [[nodiscard]] int rows() const { return block[0] * block[1] * block[2] * grid[0] * grid[1] * grid[2]; }
  [[nodiscard]] std::string title() const { return family + ": " + name; }
};

inline constexpr int kScratchBytes = 65536;

/// Bytes of a thread's row of these columns, a multiple of 16.
[[nodiscard]] int row_bytes(const std::vector<Column>& columns);

/// Throws `invalid_argument`, naming file and line.
[[nodiscard]] std::vector<Case> parse_cases(std::string_view text, const std::string& file,
                                            const std::string& family);

/// All cases of the folder's *.cases, by family.
[[nodiscard]] std::vector<Case> load_cases(const std::filesystem::path& folder);

}  // namespace sparsekiln::conformance

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sparsekiln/layout.h>

namespace sparsekiln {

/// A coarse view of a layout: width × height cells, row-major, each with the share of its blocks that is
/// present (0 to 1).
struct Coverage {
  std::int32_t width = 0;
  std::int32_t height = 0;
  std::vector<float> cells;

  [[nodiscard]] float at(std::int32_t x, std::int32_t y) const { return cells[std::size_t(y) * width + x]; }
};

/// Distributes the blocks over width × height cells, in runs of rows and columns whose lengths differ by at
/// most one. If there are more cells than rows or columns, cells repeat them. A grid without cells gives
/// zeros. Sizes are at least 1 and width · height is at most 2^28; otherwise it throws `invalid_argument`.
/// O(blocks + cols + cells).
[[nodiscard]] Coverage coverage(const Layout& layout, std::int32_t width, std::int32_t height);

/// Draws the layout in characters (UTF-8), with at most `max_width` in a line and `max_lines` lines, each
/// ended by a newline. A grid that fits is drawn exactly, one character for two block rows (▀▄█); a larger
/// one in shades (░▒▓█) with its aspect ratio, where a shade represents the square root of the coverage, so
/// that a cell with any block is visible.
[[nodiscard]] std::string draw(const Layout& layout, std::int32_t max_width, std::int32_t max_lines);

}  // namespace sparsekiln

#include "compiler/layout_picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln {

namespace {

/// How the rows, or columns, of a grid are assigned to the cells of one axis of a picture.
class Axis {
 public:
  Axis(std::int64_t blocks, std::int64_t cells) : blocks_(blocks), cells_(cells) {}

  /// The cells [first, last) that show a block; one cell if blocks share cells.
  [[nodiscard]] std::int64_t first_cell(std::int64_t block) const {
    return blocks_ < cells_ ? (block * cells_ + blocks_ - 1) / blocks_ : ((block + 1) * cells_ - 1) / blocks_;
  }
  [[nodiscard]] std::int64_t last_cell(std::int64_t block) const {
    return blocks_ < cells_ ? first_cell(block + 1) : first_cell(block) + 1;
  }
  /// The number of blocks that share a cell.
  [[nodiscard]] std::int64_t blocks_in(std::int64_t cell) const {
    return blocks_ < cells_ ? 1 : (cell + 1) * blocks_ / cells_ - cell * blocks_ / cells_;
  }

 private:
  std::int64_t blocks_;
  std::int64_t cells_;
};

std::string draw_exactly(const Layout& layout) {
  static constexpr std::array<std::string_view, 4> kHalves{" ", "▀", "▄", "█"};
  std::string text;
  std::vector<std::uint8_t> halves(static_cast<std::size_t>(layout.cols()));
  for (std::int32_t row = 0; row < layout.rows(); row += 2) {
    std::fill(halves.begin(), halves.end(), std::uint8_t{0});
    for (const std::int32_t col : layout.row(row)) halves[col] |= 1;
    if (row + 1 < layout.rows())
      for (const std::int32_t col : layout.row(row + 1)) halves[col] |= 2;
    for (const std::uint8_t half : halves) text += kHalves[half];
    text += '\n';
  }
  return text;
}

std::string_view shade(float coverage) {
  static constexpr std::array<std::string_view, 4> kShades{"░", "▒", "▓", "█"};
  if (coverage <= 0) return " ";
  return kShades[static_cast<std::size_t>(std::min(3.0F, 4 * std::sqrt(coverage)))];
}

}  // namespace

Coverage coverage(const Layout& layout, std::int32_t width, std::int32_t height) {
  constexpr std::int64_t kMostCells = std::int64_t{1} << 28;
  if (width < 1 || height < 1 || std::int64_t{width} * height > kMostCells)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format(
            "picture: {} × {} cells are out of range; expected sides of at least 1 and at most {} cells",
            width, height, kMostCells));
  Coverage picture{width, height, std::vector<float>(std::size_t(width) * height)};
  if (layout.rows() == 0 || layout.cols() == 0) return picture;
  const Axis down(layout.rows(), height);
  const Axis across(layout.cols(), width);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(width));
  for (std::int32_t row = 0; row < layout.rows();) {
    // All rows that share a line of cells, then that line, as often as it is repeated.
    const std::int64_t line = down.first_cell(row);
    const std::int64_t last_line = down.last_cell(row);
    std::fill(counts.begin(), counts.end(), 0);
    for (; row < layout.rows() && down.first_cell(row) == line; ++row)
      for (const std::int32_t col : layout.row(row))
        for (std::int64_t x = across.first_cell(col); x < across.last_cell(col); ++x) ++counts[x];
    for (std::int64_t y = line; y < last_line; ++y)
      for (std::int64_t x = 0; x < width; ++x)
        picture.cells[y * width + x] =
            static_cast<float>(counts[x]) / static_cast<float>(across.blocks_in(x) * down.blocks_in(line));
  }
  return picture;
}

std::string draw(const Layout& layout, std::int32_t max_width, std::int32_t max_lines) {
  if (max_width < 1 || max_lines < 1)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("picture: {} × {} characters are too few; expected 1 or more", max_width, max_lines));
  if (layout.rows() == 0 || layout.cols() == 0) return {};
  if (layout.cols() <= max_width && (layout.rows() + 1) / 2 <= max_lines) return draw_exactly(layout);

  // Characters are twice as high as wide.
  const double aspect = static_cast<double>(layout.rows()) / layout.cols() / 2;
  std::int32_t width = std::min(max_width, layout.cols());
  auto lines = static_cast<std::int32_t>(std::clamp(std::round(width * aspect), 1.0, double(layout.rows())));
  if (lines > max_lines) {
    lines = max_lines;
    width = static_cast<std::int32_t>(std::clamp(std::round(lines / aspect), 1.0, double(width)));
  }
  const Coverage picture = coverage(layout, width, lines);
  std::string text;
  for (std::int32_t y = 0; y < lines; ++y) {
    for (std::int32_t x = 0; x < width; ++x) text += shade(picture.at(x, y));
    text += '\n';
  }
  return text;
}

}  // namespace sparsekiln

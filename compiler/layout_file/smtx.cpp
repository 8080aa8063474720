#include "compiler/layout_file/smtx.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compiler/layout_file/line_reader.h"

namespace sparsekiln::layout_file {

namespace {

// The collection's files have commas in the first line and blanks in the others; either is taken anywhere.
constexpr std::string_view kSeparators = " \t,";

void expect_line_end(const LineReader& lines, std::string_view rest) {
  expect_end(lines, rest, "the line", kSeparators);
}

}  // namespace

Layout parse_smtx(std::string_view text, std::string_view name) {
  LineReader lines(text, name);
  std::string_view line = lines.next().value_or("");
  const std::int64_t rows = read_integer(lines, line, "rows", 0, Layout::kMaxExtent, kSeparators);
  const std::int64_t cols = read_integer(lines, line, "columns", 0, Layout::kMaxExtent, kSeparators);
  const std::int64_t blocks =
      read_integer(lines, line, "non-zeros", 0, std::min(rows * cols, Layout::kMaxBlocks), kSeparators);
  expect_line_end(lines, line);

  // Reserved memory is bounded by what the lines can hold, whatever the first one says.
  line = lines.next().value_or("");
  std::vector<std::int32_t> crow;
  crow.reserve(std::min(static_cast<std::size_t>(rows) + 1, line.size() / 2 + 1));
  for (std::int64_t i = 0; i <= rows; ++i) {
    const std::int64_t least = i == 0 ? 0 : i == rows ? blocks : crow.back();
    const std::int64_t most = i == 0 ? 0 : std::min(blocks, least + cols);
    crow.push_back(
        static_cast<std::int32_t>(read_integer(lines, line, "the row offset", least, most, kSeparators)));
  }
  expect_line_end(lines, line);

  line = lines.next().value_or("");
  std::vector<std::int32_t> col;
  col.reserve(std::min(static_cast<std::size_t>(blocks), line.size() / 2 + 1));
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t least = 0;
    while (std::ssize(col) < crow[row + 1]) {
      col.push_back(static_cast<std::int32_t>(
          read_integer(lines, line, "the column index", least, cols - 1, kSeparators)));
      least = col.back() + 1;
    }
  }
  expect_line_end(lines, line);
  while (const auto rest = lines.next()) expect_line_end(lines, *rest);
  return Layout::from_csr(rows, cols, std::move(crow), std::move(col));
}

void write_smtx(const Layout& layout, const Sink& sink) {
  sink(fmt::format("{}, {}, {}\n", layout.rows(), layout.cols(), layout.blocks()));
  constexpr std::size_t kPieceBytes = 1 << 16;
  std::string piece;
  for (const auto& numbers : {layout.crow(), layout.col()}) {
    for (const std::int32_t& number : numbers) {
      if (&number != numbers.data()) piece += ' ';
      piece += std::to_string(number);
      if (piece.size() < kPieceBytes) continue;
      sink(piece);
      piece.clear();
    }
    piece += '\n';
  }
  sink(piece);
}

}  // namespace sparsekiln::layout_file

#include "compiler/layout_file/text.h"

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/layout_file/line_reader.h"
#include "compiler/layout_file/refusal.h"

namespace sparsekiln::layout_file {

Layout parse_text(std::string_view text, std::string_view name) {
  LineReader lines(text, name);
  std::vector<std::int32_t> crow{0};
  std::vector<std::int32_t> col;
  std::int64_t cols = 0;
  std::size_t empty_line = 0;
  while (const auto line = lines.next()) {
    std::int64_t cells = 0;
    for (std::size_t at = 0; at < line->size(); ++at) {
      const char cell = (*line)[at];
      if (cell == ' ' || cell == '\t') continue;
      if (cell != '0' && cell != '1')
        lines.refuse(fmt::format(
            "expected 0 or 1 in column {}, found {} (a layout's ending decides how it is read: .npy, "
            ".mtx, .smtx; any other is text of 0 and 1)",
            at + 1, quoted(line->substr(at, 8))));
      if (cells == Layout::kMaxExtent) lines.refuse(fmt::format("more than {} columns", Layout::kMaxExtent));
      if (cell == '1') col.push_back(static_cast<std::int32_t>(cells));
      ++cells;
    }
    if (cells == 0) {
      if (empty_line == 0) empty_line = lines.line();
      continue;
    }
    if (empty_line != 0)
      refuse_at_line(name, empty_line,
                     "an empty line is possible only at the end; expected a row of 0 and 1");
    if (crow.size() == 1) cols = cells;
    if (cells != cols)
      lines.refuse(fmt::format("the row has {} columns; expected {}, as in line 1", cells, cols));
    if (std::ssize(crow) > Layout::kMaxExtent)
      lines.refuse(fmt::format("more than {} rows", Layout::kMaxExtent));
    if (std::ssize(col) > Layout::kMaxBlocks)
      lines.refuse(fmt::format("more than {} blocks", Layout::kMaxBlocks));
    crow.push_back(static_cast<std::int32_t>(col.size()));
  }
  if (crow.size() == 1) refuse_at_line(name, 1, "expected a row of 0 and 1, found the end of the file");
  const auto rows = static_cast<std::int64_t>(crow.size()) - 1;
  return Layout::from_csr(rows, cols, std::move(crow), std::move(col));
}

void write_text(const Layout& layout, const Sink& sink) {
  if (layout.rows() == 0 || layout.cols() == 0)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format(
            "a layout of {} × {} blocks has no cells to write as text; .npy, .mtx and .smtx can hold it",
            layout.rows(), layout.cols()));
  check_dense(layout, "text");
  std::string line(static_cast<std::size_t>(layout.cols()), '0');
  line += '\n';
  for (std::int32_t row = 0; row < layout.rows(); ++row) {
    for (const std::int32_t col : layout.row(row)) line[col] = '1';
    sink(line);
    for (const std::int32_t col : layout.row(row)) line[col] = '0';
  }
}

}  // namespace sparsekiln::layout_file

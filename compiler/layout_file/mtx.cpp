#include "compiler/layout_file/mtx.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compiler/layout_file/line_reader.h"
#include "compiler/layout_file/mtx_banner.h"
#include "compiler/layout_file/number.h"
#include "compiler/layout_file/refusal.h"

// file    = banner, { comment | blank line }, sizes, { entry | blank line | comment }
// banner  = mtx_banner.h
// comment = "%" …
// sizes   = rows columns [entries]        entries: in coordinate files
// entry   = row column value              in coordinate files; counted from 1
//         | value                         in array files, column by column: where a matrix is not general, of
//                                         its lower triangle, without the diagonal if it is skew-symmetric
// value   = nothing, an integer, a number or two numbers, by the field

namespace sparsekiln::layout_file {

namespace {

using Format = MtxBanner::Format;
using Field = MtxBanner::Field;
using Symmetry = MtxBanner::Symmetry;

/// The part of a value that is kept: the signs of its real and imaginary parts.
struct Signs {
  std::int8_t real;
  std::int8_t imaginary;

  [[nodiscard]] bool zero() const { return real == 0 && imaginary == 0; }
  bool operator==(const Signs&) const = default;
};

struct Entry {
  std::int32_t row;
  std::int32_t col;
  std::uint32_t line;  ///< for the message about a contradiction; wraps after 2^32 lines
  Signs value;
};

/// The next line that is neither blank nor a comment.
std::optional<std::string_view> next_data_line(LineReader& lines) {
  while (const auto line = lines.next()) {
    const std::size_t first = line->find_first_not_of(" \t");
    if (first != std::string_view::npos && (*line)[first] != '%') return line;
  }
  return std::nullopt;
}

std::int8_t read_sign(const LineReader& lines, std::string_view& rest, Field field) {
  const std::string_view word = next_word(rest);
  const std::optional<Number> number = parse_number(word);
  const bool integer = field == Field::integer || field == Field::unsigned_integer;
  const bool fits =
      number && (number->whole || !integer) && (field != Field::unsigned_integer || !word.starts_with('-'));
  if (fits) return static_cast<std::int8_t>(number->sign);
  lines.refuse(fmt::format("the value is {}; expected {}", word.empty() ? "missing" : quoted(word),
                           field == Field::unsigned_integer ? "an integer without a minus"
                           : integer                        ? "an integer"
                           : field == Field::complex ? "two numbers, of the real and the imaginary part"
                                                     : "a number"));
}

Signs read_value(const LineReader& lines, std::string_view& rest, Field field) {
  if (field == Field::pattern) return {1, 0};
  const std::int8_t real = read_sign(lines, rest, field);
  return {real, field == Field::complex ? read_sign(lines, rest, field) : std::int8_t{0}};
}

/// The line after the comments: "ROWS COLUMNS ENTRIES", of an array "ROWS COLUMNS".
struct Sizes {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t entries = 0;  ///< of a coordinate file
};

Sizes read_sizes(LineReader& lines, const MtxBanner& banner) {
  const bool array = banner.format == Format::array;
  auto line = next_data_line(lines);
  if (!line)
    lines.refuse(fmt::format("expected the line of {}, found the end of the file",
                             array ? "rows and columns" : "rows, columns and entries"));
  Sizes sizes;
  sizes.rows = read_integer(lines, *line, "rows", 0, Layout::kMaxExtent);
  sizes.cols = read_integer(lines, *line, "columns", 0, Layout::kMaxExtent);
  // Entries may appear again, so there can be more of them than cells.
  if (!array)
    sizes.entries =
        read_integer(lines, *line, "entries", 0, sizes.rows == 0 || sizes.cols == 0 ? 0 : Layout::kMaxBlocks);
  expect_end(lines, *line);
  if (banner.symmetry != Symmetry::general && sizes.rows != sizes.cols)
    lines.refuse(fmt::format("a {} matrix is square, this one has {} rows and {} columns",
                             name_of(banner.symmetry), sizes.rows, sizes.cols));
  return sizes;
}

/// Takes entries in the order of the file, and adds what the symmetry says of the other triangle.
class Entries {
 public:
  Entries(const LineReader& lines, Symmetry symmetry) : lines_(lines), symmetry_(symmetry) {}

  void reserve(std::size_t count) { entries_.reserve(symmetry_ == Symmetry::general ? count : 2 * count); }

  void add(std::int32_t row, std::int32_t col, Signs value) {
    const auto line = static_cast<std::uint32_t>(lines_.line());
    entries_.push_back({row, col, line, value});
    if (symmetry_ == Symmetry::general) return;
    const Signs mirrored = mirror(value);
    if (row != col)
      entries_.push_back({col, row, line, mirrored});
    else if (mirrored != value)
      lines_.refuse(fmt::format("entry ({}, {}) is on the diagonal, where the {} of a {} matrix is zero",
                                row + 1, col + 1,
                                symmetry_ == Symmetry::hermitian ? "imaginary part" : "value",
                                symmetry_ == Symmetry::hermitian ? "hermitian" : "skew-symmetric"));
  }

  [[nodiscard]] std::vector<Entry> take() { return std::move(entries_); }

 private:
  [[nodiscard]] Signs mirror(Signs value) const {
    const auto negated = [](std::int8_t sign) { return static_cast<std::int8_t>(-sign); };
    if (symmetry_ == Symmetry::skew_symmetric) return {negated(value.real), negated(value.imaginary)};
    if (symmetry_ == Symmetry::hermitian) return {value.real, negated(value.imaginary)};
    return value;
  }

  const LineReader& lines_;
  Symmetry symmetry_;
  std::vector<Entry> entries_;
};

std::vector<Entry> read_coordinates(LineReader& lines, const MtxBanner& banner, const Sizes& sizes) {
  Entries entries(lines, banner.symmetry);
  // The shortest entry is "1 1\n": a false count cannot make us reserve more than the file's size allows.
  entries.reserve(std::min(static_cast<std::size_t>(sizes.entries), lines.bytes_left() / 4 + 1));
  for (std::int64_t i = 0; i < sizes.entries; ++i) {
    auto line = next_data_line(lines);
    if (!line) lines.refuse(fmt::format("the file ends after {} of {} entries", i, sizes.entries));
    const auto row = static_cast<std::int32_t>(read_integer(lines, *line, "the row", 1, sizes.rows) - 1);
    const auto col = static_cast<std::int32_t>(read_integer(lines, *line, "the column", 1, sizes.cols) - 1);
    const Signs value = read_value(lines, *line, banner.field);
    expect_end(lines, *line);
    entries.add(row, col, value);
  }
  if (next_data_line(lines))
    lines.refuse(fmt::format("expected the end of the file after {} entries", sizes.entries));
  return entries.take();
}

std::vector<Entry> read_array(LineReader& lines, const MtxBanner& banner, const Sizes& sizes) {
  Entries entries(lines, banner.symmetry);
  for (std::int64_t col = 0; col < sizes.cols; ++col) {
    const std::int64_t first = banner.symmetry == Symmetry::general          ? 0
                               : banner.symmetry == Symmetry::skew_symmetric ? col + 1
                                                                             : col;
    for (std::int64_t row = first; row < sizes.rows; ++row) {
      auto line = next_data_line(lines);
      if (!line)
        lines.refuse(fmt::format("the file ends where entry ({}, {}) of {} rows and {} columns was expected",
                                 row + 1, col + 1, sizes.rows, sizes.cols));
      const Signs value = read_value(lines, *line, banner.field);
      expect_end(lines, *line, "the line (an array has an entry in each, column by column)");
      if (!value.zero()) entries.add(static_cast<std::int32_t>(row), static_cast<std::int32_t>(col), value);
    }
  }
  if (next_data_line(lines)) lines.refuse("expected the end of the file after the last entry of the array");
  return entries.take();
}

/// Sorts row by row, each entry once. Programs that read such a file add up what appears again, or take the
/// first or the last: an entry whose values have different signs is refused, because it could be zero to some
/// of them.
void sort_entries(std::vector<Entry>& entries, std::string_view name) {
  const auto before = [](const Entry& a, const Entry& b) {
    return std::tie(a.row, a.col, a.line) < std::tie(b.row, b.col, b.line);
  };
  const auto same_place = [](const Entry& a, const Entry& b) { return a.row == b.row && a.col == b.col; };
  if (!std::is_sorted(entries.begin(), entries.end(), before))
    std::sort(entries.begin(), entries.end(), before);
  const auto other = std::adjacent_find(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    return same_place(a, b) && a.value != b.value;
  });
  if (other != entries.end())
    refuse_at_line(
        name, other[1].line,
        fmt::format("entry ({}, {}) is also that of line {}, whose value has another sign: whether "
                    "there is a block depends on who reads it",
                    other->row + 1, other->col + 1, other->line));
  entries.erase(std::unique(entries.begin(), entries.end(), same_place), entries.end());
}

Layout to_layout(const Sizes& sizes, const std::vector<Entry>& entries) {
  std::vector<std::int32_t> crow(static_cast<std::size_t>(sizes.rows) + 1);
  std::vector<std::int32_t> col;
  col.reserve(entries.size());
  for (const Entry& entry : entries) {
    if (entry.value.zero()) continue;
    ++crow[entry.row + 1];
    col.push_back(entry.col);
  }
  for (std::int64_t row = 0; row < sizes.rows; ++row) crow[row + 1] += crow[row];
  return Layout::from_csr(sizes.rows, sizes.cols, std::move(crow), std::move(col));
}

}  // namespace

Layout parse_mtx(std::string_view text, std::string_view name) {
  LineReader lines(text, name);
  const MtxBanner banner = read_mtx_banner(lines);
  const Sizes sizes = read_sizes(lines, banner);
  std::vector<Entry> entries = banner.format == Format::array ? read_array(lines, banner, sizes)
                                                              : read_coordinates(lines, banner, sizes);
  sort_entries(entries, name);
  if (std::ssize(entries) > Layout::kMaxBlocks)
    refuse_at_line(
        name, 1,
        fmt::format("{} blocks are too many; at most {} are possible", entries.size(), Layout::kMaxBlocks));
  return to_layout(sizes, entries);
}

void write_mtx(const Layout& layout, const Sink& sink) {
  sink(fmt::format("%%MatrixMarket matrix coordinate pattern general\n{} {} {}\n", layout.rows(),
                   layout.cols(), layout.blocks()));
  fmt::memory_buffer lines;
  for (std::int32_t row = 0; row < layout.rows(); ++row) {
    for (const std::int32_t col : layout.row(row))
      fmt::format_to(std::back_inserter(lines), "{} {}\n", row + 1, col + 1);
    sink({lines.data(), lines.size()});
    lines.clear();
  }
}

}  // namespace sparsekiln::layout_file

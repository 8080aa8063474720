#include "compiler/layout_file/mtx.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "compiler/layout_file/line_reader.h"
#include "compiler/layout_file/refusal.h"

// file    = banner, { comment | blank line }, sizes, { entry | blank line | comment }
// banner  = "%%MatrixMarket matrix coordinate" field symmetry     in any case
// comment = "%" …
// sizes   = rows columns entries
// entry   = row column [value]                                    counted from 1; no value where field is
// pattern

namespace sparsekiln::layout_file {

namespace {

enum class Field { pattern, integer, real };

struct Banner {
  Field field = Field::pattern;
  bool symmetric = false;
};

struct Entry {
  std::int32_t row;
  std::int32_t col;
  std::uint32_t line;  ///< for the message about a duplicate; wraps after 2^32 lines
  bool present;
};

std::string lower_case(std::string_view word) {
  std::string text(word);
  for (char& letter : text)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return text;
}

Banner read_banner(LineReader& lines) {
  std::string_view rest = lines.next().value_or("");
  const auto expect = [&](std::string_view what, std::initializer_list<std::string_view> choices) {
    const std::string_view word = next_word(rest);
    const std::string lower = lower_case(word);
    const auto* const found = std::find(choices.begin(), choices.end(), lower);
    if (found == choices.end()) {
      std::string expected;
      for (const std::string_view choice : choices)
        expected.append(expected.empty() ? "" : " or ").append(choice);
      lines.refuse(
          fmt::format("the {} is {}; expected {}", what, word.empty() ? "missing" : quoted(word), expected));
    }
    return found - choices.begin();
  };
  static_cast<void>(expect("banner's first word", {"%%matrixmarket"}));
  static_cast<void>(expect("object", {"matrix"}));
  static_cast<void>(expect("format", {"coordinate"}));
  Banner banner;
  banner.field = std::array{Field::pattern, Field::integer, Field::real}.at(
      static_cast<std::size_t>(expect("field", {"pattern", "integer", "real"})));
  banner.symmetric = expect("symmetry", {"general", "symmetric"}) == 1;
  if (const auto word = next_word(rest); !word.empty())
    lines.refuse(fmt::format("expected the end of the banner, found {}", quoted(word)));
  return banner;
}

/// The next line that is neither blank nor a comment.
std::optional<std::string_view> next_data_line(LineReader& lines) {
  while (const auto line = lines.next()) {
    const std::size_t first = line->find_first_not_of(" \t");
    if (first != std::string_view::npos && (*line)[first] != '%') return line;
  }
  return std::nullopt;
}

bool all_digits(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Whether a value differs from zero; an integer may have any number of digits.
bool read_value(const LineReader& lines, std::string_view& rest, Field field) {
  const std::string_view word = next_word(rest);
  const std::string_view digits = word.substr(word.starts_with('-') || word.starts_with('+') ? 1 : 0);
  if (all_digits(digits)) return digits.find_first_not_of('0') != std::string_view::npos;
  if (field == Field::real && !digits.starts_with('-')) {
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    // Out of a double's range is not zero: 1e-400 is a present block, 0e-400 is none.
    if (end == digits.data() + digits.size() && error == std::errc::result_out_of_range) return true;
    if (end == digits.data() + digits.size() && error == std::errc{}) return value != 0;
  }
  lines.refuse(fmt::format("the value is {}; expected {}", word.empty() ? "missing" : quoted(word),
                           field == Field::real ? "a number" : "an integer"));
}

void expect_line_end(const LineReader& lines, std::string_view rest) {
  if (const auto word = next_word(rest); !word.empty())
    lines.refuse(fmt::format("expected the end of the line, found {}", quoted(word)));
}

Layout to_layout(std::int64_t rows, std::int64_t cols, const std::vector<Entry>& entries) {
  std::vector<std::int32_t> crow(static_cast<std::size_t>(rows) + 1);
  std::vector<std::int32_t> col;
  col.reserve(entries.size());
  for (const Entry& entry : entries) {
    if (!entry.present) continue;
    ++crow[entry.row + 1];
    col.push_back(entry.col);
  }
  for (std::int64_t row = 0; row < rows; ++row) crow[row + 1] += crow[row];
  return Layout::from_csr(rows, cols, std::move(crow), std::move(col));
}

/// The line after the comments: "ROWS COLUMNS ENTRIES".
struct Sizes {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t entries = 0;
};

Sizes read_sizes(LineReader& lines, const Banner& banner) {
  auto line = next_data_line(lines);
  if (!line) lines.refuse("expected the line of rows, columns and entries, found the end of the file");
  Sizes sizes;
  sizes.rows = read_integer(lines, *line, "rows", 0, Layout::kMaxExtent);
  sizes.cols = read_integer(lines, *line, "columns", 0, Layout::kMaxExtent);
  sizes.entries =
      read_integer(lines, *line, "entries", 0, std::min(sizes.rows * sizes.cols, Layout::kMaxBlocks));
  expect_line_end(lines, *line);
  if (banner.symmetric && sizes.rows != sizes.cols)
    lines.refuse(fmt::format("a symmetric matrix is square, this one has {} rows and {} columns", sizes.rows,
                             sizes.cols));
  return sizes;
}

/// The entries in the order of the file; of a symmetric one both triangles.
std::vector<Entry> read_entries(LineReader& lines, const Banner& banner, const Sizes& sizes) {
  std::vector<Entry> entries;
  // The shortest entry is "1 1\n": a false count cannot make us reserve more than the file's size allows.
  entries.reserve(std::min(static_cast<std::size_t>(sizes.entries), lines.bytes_left() / 4 + 1) *
                  (banner.symmetric ? 2 : 1));
  for (std::int64_t i = 0; i < sizes.entries; ++i) {
    auto line = next_data_line(lines);
    if (!line) lines.refuse(fmt::format("the file ends after {} of {} entries", i, sizes.entries));
    const auto row = static_cast<std::int32_t>(read_integer(lines, *line, "the row", 1, sizes.rows) - 1);
    const auto col = static_cast<std::int32_t>(read_integer(lines, *line, "the column", 1, sizes.cols) - 1);
    const bool present = banner.field == Field::pattern || read_value(lines, *line, banner.field);
    expect_line_end(lines, *line);
    if (banner.symmetric && col > row)
      lines.refuse(
          fmt::format("entry ({}, {}) is above the diagonal; a symmetric file holds the lower triangle",
                      row + 1, col + 1));
    entries.push_back({row, col, static_cast<std::uint32_t>(lines.line()), present});
    if (banner.symmetric && row != col)
      entries.push_back({col, row, static_cast<std::uint32_t>(lines.line()), present});
  }
  if (next_data_line(lines))
    lines.refuse(fmt::format("expected the end of the file after {} entries", sizes.entries));
  return entries;
}

/// Row by row; refuses an entry that appears twice.
void sort_entries(std::vector<Entry>& entries, std::string_view name) {
  const auto place = [](const Entry& entry) { return std::tuple(entry.row, entry.col); };
  const auto before = [](const Entry& a, const Entry& b) {
    return std::tie(a.row, a.col, a.line) < std::tie(b.row, b.col, b.line);
  };
  if (!std::is_sorted(entries.begin(), entries.end(), before))
    std::sort(entries.begin(), entries.end(), before);
  const auto twice = std::adjacent_find(entries.begin(), entries.end(),
                                        [&](const Entry& a, const Entry& b) { return place(a) == place(b); });
  if (twice != entries.end())
    refuse_at_line(name, twice[1].line,
                   fmt::format("entry ({}, {}) appears twice, first in line {}", twice->row + 1,
                               twice->col + 1, twice->line));
}

}  // namespace

Layout parse_mtx(std::string_view text, std::string_view name) {
  LineReader lines(text, name);
  const Banner banner = read_banner(lines);
  const Sizes sizes = read_sizes(lines, banner);
  std::vector<Entry> entries = read_entries(lines, banner, sizes);
  if (std::ssize(entries) > Layout::kMaxBlocks)
    refuse_at_line(
        name, 1,
        fmt::format("{} blocks are too many; at most {} are possible", entries.size(), Layout::kMaxBlocks));
  sort_entries(entries, name);
  return to_layout(sizes.rows, sizes.cols, entries);
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

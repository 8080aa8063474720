#include "compiler/layout_file/line_reader.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "compiler/layout_file/refusal.h"

namespace sparsekiln::layout_file {

LineReader::LineReader(std::string_view text, std::string_view name) : rest_(text), name_(name) {
  constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";
  if (text.starts_with(kUtf8Mark)) rest_.remove_prefix(kUtf8Mark.size());
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    refuse_at_line(name, 1, "the text is in UTF-16; the same text in UTF-8 can be read");
}

std::optional<std::string_view> LineReader::next() {
  // Counted past the end as well, so that a refusal points to where the missing line should be.
  ++line_;
  current_ = {};
  if (rest_.empty()) return std::nullopt;
  const std::size_t end = rest_.find('\n');
  std::string_view line = rest_.substr(0, end);
  rest_ = end == std::string_view::npos ? std::string_view{} : rest_.substr(end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  current_ = line;
  return line;
}

void LineReader::refuse(std::string_view what) const { refuse_at_line(name_, line_, what); }

void LineReader::refuse_word(std::string_view word, std::string_view what) const {
  if (current_.empty()) refuse(what);
  refuse(fmt::format("character {}: {}", word.data() - current_.data() + 1, what));
}

std::string_view next_word(std::string_view& rest, std::string_view separators) {
  rest.remove_prefix(std::min(rest.find_first_not_of(separators), rest.size()));
  const std::size_t end = std::min(rest.find_first_of(separators), rest.size());
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(end);
  return word;
}

void expect_end(const LineReader& lines, std::string_view rest, std::string_view what,
                std::string_view separators) {
  if (const auto word = next_word(rest, separators); !word.empty())
    lines.refuse(fmt::format("expected the end of {}, found {}", what, quoted(word)));
}

bool is_in_any_case(std::string_view word, std::string_view lower) {
  const auto lowered = [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  };
  return std::ranges::equal(word, lower, {}, lowered);
}

std::optional<std::int64_t> parse_integer(std::string_view word) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

std::int64_t read_integer(const LineReader& lines, std::string_view& rest, std::string_view what,
                          std::int64_t least, std::int64_t most, std::string_view separators) {
  const std::string_view word = next_word(rest, separators);
  const auto value = parse_integer(word);
  if (value && *value >= least && *value <= most) return *value;
  const std::string expected =
      most < least ? "none is possible here" : fmt::format("expected an integer from {} to {}", least, most);
  lines.refuse_word(word,
                    fmt::format("{} is {}; {}", what, word.empty() ? "missing" : quoted(word), expected));
}

}  // namespace sparsekiln::layout_file

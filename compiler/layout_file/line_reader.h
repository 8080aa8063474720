#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sparsekiln::layout_file {

/// Walks over a text line by line. Lines end in LF or CR LF; the last one may lack its end. UTF-8's byte
/// order mark, which some editors put in front, is no part of the first line.
class LineReader {
 public:
  /// Throws `invalid_argument` naming the file where the text begins with the mark of UTF-16.
  LineReader(std::string_view text, std::string_view name);

  /// The next line without its end; nothing once the text is used up.
  [[nodiscard]] std::optional<std::string_view> next();
  /// The number, from 1, of the line that next() gave last.
  [[nodiscard]] std::size_t line() const { return line_; }
  /// Bytes that are still to come: a bound on how many numbers can.
  [[nodiscard]] std::size_t bytes_left() const { return rest_.size(); }

  /// Throws `invalid_argument` naming the file and the current line.
  [[noreturn]] void refuse(std::string_view what) const;
  /// As above, naming also where in the current line `word`, a part of it, begins.
  [[noreturn]] void refuse_word(std::string_view word, std::string_view what) const;

 private:
  std::string_view rest_;
  std::string_view current_;
  std::string_view name_;
  std::size_t line_ = 0;
};

/// Cuts the next word off `rest`, skipping the separators around it; empty where there is none.
[[nodiscard]] std::string_view next_word(std::string_view& rest, std::string_view separators = " \t");

/// Throws `invalid_argument` where `rest` has a word; `what` names what should have ended before it.
void expect_end(const LineReader& lines, std::string_view rest, std::string_view what = "the line",
                std::string_view separators = " \t");

/// Whether `word` is `lower`, which is in lower case, in any case of its letters.
[[nodiscard]] bool is_in_any_case(std::string_view word, std::string_view lower);

/// A whole decimal integer; nothing where `word` is anything else or does not fit.
[[nodiscard]] std::optional<std::int64_t> parse_integer(std::string_view word);

/// Reads the next word as an integer within [least, most]; `what` names it in the refusal.
[[nodiscard]] std::int64_t read_integer(const LineReader& lines, std::string_view& rest,
                                        std::string_view what, std::int64_t least, std::int64_t most,
                                        std::string_view separators = " \t");

}  // namespace sparsekiln::layout_file

#include "compiler/layout_file/text.h"

#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/compiler/layout_file/refusal_check.h"

using sparsekiln::Layout;
namespace layout_file = sparsekiln::layout_file;

namespace {

Layout parse(const std::string& text) { return layout_file::parse_text(text, "L.txt"); }

Layout sample() { return Layout::from_mask(2, 3, std::vector<std::uint8_t>{1, 0, 1, 0, 0, 1}); }

bool refuses(const std::string& text, const std::string& place_and_part) {
  return refuses_with([&] { return parse(text); }, "layout file 'L.txt', " + place_and_part);
}

}  // namespace

TEST_CASE("text: lines of 0 and 1 are block rows") {
  CHECK(parse("101\n001\n") == sample());
  CHECK(parse("101\n001") == sample());
}

TEST_CASE("text: blanks between the digits and empty lines at the end do not count") {
  CHECK(parse(" 1 0\t1 \r\n0 01\r\n\r\n \n") == sample());
}

TEST_CASE("text: a byte order mark of UTF-8 is no part of the first line, and one of UTF-16 is refused") {
  CHECK(parse("\xef\xbb\xbf"
              "101\r\n001\r\n") == sample());
  CHECK(
      refuses("\xef\xbb\xbf"
              "1x\n",
              "line 1: expected 0 or 1 in column 2, found 'x'"));
  for (const std::string mark : {"\xff\xfe", "\xfe\xff"})
    CHECK(refuses(mark + "1\n", "line 1: the text is in UTF-16; the same text in UTF-8 can be read"));
}

TEST_CASE("text: what is written is bare digits") {
  std::string text;
  layout_file::write_text(sample(), [&](std::string_view piece) { text += piece; });
  CHECK(text == "101\n001\n");
}

TEST_CASE("text: other characters are refused by line and column") {
  CHECK(refuses("101\n0 2\n", "line 2: expected 0 or 1 in column 3, found '2'"));
  CHECK(refuses(std::string("\x93NUMPY\x01\x00", 8),
                "line 1: expected 0 or 1 in column 1, found '\\x93NUMPY\\x01\\x00'"));
}

TEST_CASE("text: rows of different lengths are refused") {
  CHECK(refuses("101\n01\n", "line 2: the row has 2 columns; expected 3, as in line 1"));
}

TEST_CASE("text: an empty line before a row is refused, and an empty file") {
  CHECK(refuses("101\n\n\n001\n", "line 2: an empty line is possible only at the end"));
  CHECK(refuses("\n101\n", "line 1: an empty line is possible only at the end"));
  CHECK(refuses("", "line 1: expected a row of 0 and 1, found the end of the file"));
  CHECK(refuses("\n\n", "line 1: expected a row of 0 and 1, found the end of the file"));
}

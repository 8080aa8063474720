#include "compiler/layout_file/mtx.h"

#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/compiler/layout_file/refusal_check.h"

using sparsekiln::Layout;
namespace layout_file = sparsekiln::layout_file;

namespace {

const std::string kPattern = "%%MatrixMarket matrix coordinate pattern general\n";
const std::string kInteger = "%%MatrixMarket matrix coordinate integer general\n";
const std::string kReal = "%%MatrixMarket matrix coordinate real general\n";
const std::string kSymmetric = "%%MatrixMarket matrix coordinate pattern symmetric\n";

Layout parse(const std::string& text) { return layout_file::parse_mtx(text, "L.mtx"); }

Layout mask(std::int64_t rows, std::int64_t cols, const std::vector<std::uint8_t>& cells) {
  return Layout::from_mask(rows, cols, cells);
}

bool refuses(const std::string& text, const std::string& place_and_part) {
  return refuses_with([&] { return parse(text); }, "layout file 'L.mtx', " + place_and_part);
}

}  // namespace

TEST_CASE("mtx: entries in any order are present blocks, counted from 1") {
  CHECK(parse(kPattern + "2 3 3\n2 3\n1 1\n1 3\n") == mask(2, 3, {1, 0, 1, 0, 0, 1}));
}

TEST_CASE("mtx: comments, blank lines, tabs, CR LF and a missing last newline do no harm") {
  CHECK(parse("%%MATRIXMARKET Matrix COORDINATE Pattern General\r\n% a comment\r\n\r\n \t2\t3 2 \r\n%\r\n1 "
              "1\r\n\r\n 2  3 ") == mask(2, 3, {1, 0, 0, 0, 0, 1}));
}

TEST_CASE("mtx: zeros of integer and real files are absent") {
  CHECK(parse(kInteger + "1 5 5\n1 1 0\n1 2 7\n1 3 -000\n1 4 -1\n1 5 123456789012345678901234567890\n") ==
        mask(1, 5, {0, 1, 0, 1, 1}));
  CHECK(parse(kReal + "1 7 7\n1 1 0.0\n1 2 -0e5\n1 3 +1.5\n1 4 1e-400\n1 5 -2\n1 6 .5\n1 7 0\n") ==
        mask(1, 7, {0, 0, 1, 1, 1, 1, 0}));
}

TEST_CASE("mtx: a symmetric file holds the lower triangle") {
  CHECK(parse(kSymmetric + "3 3 3\n1 1\n3 1\n3 2\n") == mask(3, 3, {1, 0, 1, 0, 0, 1, 1, 1, 0}));
  CHECK(refuses(kSymmetric + "3 3 1\n1 2\n", "line 3: entry (1, 2) is above the diagonal"));
  CHECK(refuses(kSymmetric + "2 3 0\n",
                "line 2: a symmetric matrix is square, this one has 2 rows and 3 columns"));
}

TEST_CASE("mtx: the largest grid without entries is legal") {
  const Layout layout = parse(kPattern + "16777216 1 0\n");
  CHECK(layout.rows() == 1 << 24);
  CHECK(layout.blocks() == 0);
}

TEST_CASE("mtx: what is written can be read by anyone") {
  std::string text;
  layout_file::write_mtx(mask(2, 3, {1, 0, 1, 0, 0, 1}), [&](std::string_view piece) { text += piece; });
  CHECK(text == kPattern + "2 3 3\n1 1\n1 3\n2 3\n");
}

TEST_CASE("mtx: a banner of another kind is refused with what would work") {
  CHECK(refuses("", "line 1: the banner's first word is missing; expected %%matrixmarket"));
  CHECK(refuses("1 0 1\n", "line 1: the banner's first word is '1'"));
  CHECK(refuses("%%MatrixMarket vector\n", "line 1: the object is 'vector'; expected matrix"));
  CHECK(refuses("%%MatrixMarket matrix array real general\n",
                "line 1: the format is 'array'; expected coordinate"));
  CHECK(refuses("%%MatrixMarket matrix coordinate complex general\n",
                "line 1: the field is 'complex'; expected pattern or integer or real"));
  CHECK(refuses("%%MatrixMarket matrix coordinate real hermitian\n",
                "line 1: the symmetry is 'hermitian'; expected general or symmetric"));
  CHECK(refuses("%%MatrixMarket matrix coordinate real\n", "line 1: the symmetry is missing"));
  CHECK(refuses("%%MatrixMarket matrix coordinate real general x\n",
                "line 1: expected the end of the banner, found 'x'"));
}

TEST_CASE("mtx: sizes that are negative, too large, missing or lying are refused") {
  CHECK(
      refuses(kPattern, "line 2: expected the line of rows, columns and entries, found the end of the file"));
  CHECK(refuses(kPattern + "% only a comment\n", "line 3: expected the line of rows"));
  CHECK(refuses(kPattern + "-2 3 0\n",
                "line 2: character 1: rows is '-2'; expected an integer from 0 to 16777216"));
  CHECK(refuses(kPattern + "2 16777217 0\n", "line 2: character 3: columns is '16777217'"));
  CHECK(refuses(kPattern + "99999999999999999999 3 0\n",
                "line 2: character 1: rows is '99999999999999999999'"));
  CHECK(
      refuses(kPattern + "2 3 7\n", "line 2: character 5: entries is '7'; expected an integer from 0 to 6"));
  CHECK(refuses(kPattern + "2 3 -1\n", "line 2: character 5: entries is '-1'"));
  CHECK(refuses(kPattern + "2 3\n", "line 2: character 4: entries is missing"));
  CHECK(refuses(kPattern + "2 3 0 0\n", "line 2: expected the end of the line, found '0'"));
  CHECK(refuses(kPattern + "2 3.0 0\n", "line 2: character 3: columns is '3.0'"));
  CHECK(refuses(kPattern + "16777216 16777216 1073741824\n1 1\n",
                "line 4: the file ends after 1 of 1073741824 entries"));
}

TEST_CASE("mtx: entries that are out of range, malformed or too many are refused by line") {
  CHECK(refuses(kPattern + "2 3 1\n3 1\n",
                "line 3: character 1: the row is '3'; expected an integer from 1 to 2"));
  CHECK(refuses(kPattern + "2 3 1\n0 1\n", "line 3: character 1: the row is '0'"));
  CHECK(refuses(kPattern + "2 3 1\n1 4\n",
                "line 3: character 3: the column is '4'; expected an integer from 1 to 3"));
  CHECK(refuses(kPattern + "2 3 1\n1\n", "line 3: character 2: the column is missing"));
  CHECK(refuses(kPattern + "2 3 1\n1 1 5\n", "line 3: expected the end of the line, found '5'"));
  CHECK(refuses(kPattern + "2 3 1\n1 1\n2 2\n", "line 4: expected the end of the file after 1 entries"));
  CHECK(refuses(kInteger + "2 3 1\n1 1\n", "line 3: the value is missing; expected an integer"));
  CHECK(refuses(kInteger + "2 3 1\n1 1 1.5\n", "line 3: the value is '1.5'; expected an integer"));
  for (const std::string value : {"x", "1.5x", "1,5", "--1", "+-1", "1e", "-", "+"}) {
    CAPTURE(value);
    CHECK(refuses(kReal + "2 3 1\n1 1 " + value + "\n",
                  "line 3: the value is '" + value + "'; expected a number"));
  }
}

TEST_CASE("mtx: an entry that appears twice is refused with both lines") {
  CHECK(refuses(kPattern + "2 3 3\n1 2\n2 2\n1 2\n", "line 5: entry (1, 2) appears twice, first in line 3"));
  CHECK(refuses(kInteger + "2 3 2\n1 2 0\n1 2 1\n", "line 4: entry (1, 2) appears twice"));
}

TEST_CASE("mtx: foreign bytes in a message are escaped and cut") {
  CHECK(refuses("\x1b[31m\xff" + std::string(100, 'a'),
                "line 1: the banner's first word is '\\x1b[31m\\xffaaaaaaaaaaaaaaaaaaaaaaaaaa…'"));
}

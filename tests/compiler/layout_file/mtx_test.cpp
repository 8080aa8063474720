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

std::string banner(const std::string& kind) { return "%%MatrixMarket matrix " + kind + "\n"; }

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

TEST_CASE("mtx: values are numbers in the notation of C or Fortran, however small, large, or not a number") {
  CHECK(parse(banner("coordinate double general") +
              "1 9 9\n1 1 0.D0\n1 2 -0d-5\n1 3 1.0D+00\n1 4 1-400\n1 5 0+400\n1 6 2.q3\n1 7 NaN\n1 8 "
              "-Infinity\n1 9 1e99999999999999999999\n") == mask(1, 9, {0, 0, 1, 1, 0, 1, 1, 1, 1}));
}

TEST_CASE("mtx: whole numbers of integer files may be written as real ones") {
  CHECK(parse(kInteger + "1 4 4\n1 1 1.0\n1 2 0.\n1 3 2e+06\n1 4 +3\n") == mask(1, 4, {1, 0, 1, 1}));
  CHECK(refuses(kInteger + "1 1 1\n1 1 0.5\n", "line 3: the value is '0.5'; expected an integer"));
  CHECK(refuses(kInteger + "1 1 1\n1 1 1e-1\n", "line 3: the value is '1e-1'; expected an integer"));
  CHECK(refuses(kInteger + "1 1 1\n1 1 nan\n", "line 3: the value is 'nan'; expected an integer"));
}

TEST_CASE("mtx: unsigned integers have no minus") {
  const std::string unsigned_integer = banner("coordinate unsigned-integer general");
  CHECK(parse(unsigned_integer + "1 2 2\n1 1 0\n1 2 18446744073709551616\n") == mask(1, 2, {0, 1}));
  CHECK(refuses(unsigned_integer + "1 1 1\n1 1 -1\n",
                "line 3: the value is '-1'; expected an integer without a minus"));
  CHECK(refuses(banner("array unsigned-integer skew-symmetric") + "1 1\n",
                "line 1: a skew-symmetric matrix has values of both signs; integer would work"));
}

TEST_CASE("mtx: a complex number is zero where both of its parts are") {
  const std::string complex = banner("coordinate complex general");
  CHECK(parse(complex + "1 4 4\n1 1 0 0.0\n1 2 0 -1\n1 3 1 0\n1 4 1D0 1\n") == mask(1, 4, {0, 1, 1, 1}));
  CHECK(refuses(complex + "1 1 1\n1 1 1\n",
                "line 3: the value is missing; expected two numbers, of the real and the imaginary part"));
  CHECK(refuses(complex + "1 1 1\n1 1 1 2 3\n", "line 3: expected the end of the line, found '3'"));
}

TEST_CASE("mtx: an array has a value for each block, column by column") {
  CHECK(parse(banner("array integer general") + "2 3\n1\n0\n\n0\n0\n% a comment\n-1\n2\n") ==
        mask(2, 3, {1, 0, 1, 0, 0, 1}));
  CHECK(parse(banner("array real general") + "2 1\n0.0\n1.5") == mask(2, 1, {0, 1}));
  CHECK(parse(banner("array complex general") + "1 2\n0 0\n0 1\n") == mask(1, 2, {0, 1}));
  CHECK(parse(banner("array real general") + "0 16777216\n").cols() == 1 << 24);
}

TEST_CASE("mtx: an array that is not general has its lower triangle alone") {
  const auto lower = mask(3, 3, {0, 1, 0, 1, 1, 0, 0, 0, 1});
  CHECK(parse(banner("array integer symmetric") + "3 3\n0\n1\n0\n1\n0\n1\n") == lower);
  CHECK(parse(banner("array complex hermitian") + "3 3\n0 0\n1 1\n0 0\n1 0\n0 0\n1 0\n") == lower);
  CHECK(parse(banner("array real skew-symmetric") + "3 3\n1\n0\n2\n") ==
        mask(3, 3, {0, 1, 0, 1, 0, 1, 0, 1, 0}));
}

TEST_CASE("mtx: arrays with too few, too many or no values, or several in a line, are refused") {
  const std::string array = banner("array integer general");
  CHECK(
      refuses(banner("array pattern general"),
              "line 1: an array has a value for each block, and a pattern has none; coordinate would work"));
  CHECK(refuses(array, "line 2: expected the line of rows and columns, found the end of the file"));
  CHECK(refuses(array + "2 2 4\n", "line 2: expected the end of the line, found '4'"));
  CHECK(refuses(array + "2 2\n1 0\n0 1\n",
                "line 3: expected the end of the line (an array has an entry in each, column by column)"));
  CHECK(refuses(array + "2 1\n1\n",
                "line 4: the file ends where entry (2, 1) of 2 rows and 1 columns was expected"));
  CHECK(refuses(array + "1 1\n1\n1\n", "line 4: expected the end of the file after the last entry"));
  CHECK(refuses(array + "16777216 16777216\n", "line 3: the file ends where entry (1, 1) of 16777216 rows"));
}

TEST_CASE("mtx: entries of a symmetric file are those of both triangles, whichever it holds") {
  CHECK(parse(kSymmetric + "3 3 3\n1 1\n3 1\n3 2\n") == mask(3, 3, {1, 0, 1, 0, 0, 1, 1, 1, 0}));
  CHECK(parse(kSymmetric + "3 3 2\n1 2\n3 1\n") == mask(3, 3, {0, 1, 1, 1, 0, 0, 1, 0, 0}));
  CHECK(parse(kSymmetric + "2 2 3\n1 1\n1 2\n2 1\n") == mask(2, 2, {1, 1, 1, 0}));
  CHECK(refuses(kSymmetric + "2 3 0\n",
                "line 2: a symmetric matrix is square, this one has 2 rows and 3 columns"));
  CHECK(refuses(banner("coordinate real skew-symmetric") + "2 3 0\n",
                "line 2: a skew-symmetric matrix is square, this one has 2 rows and 3 columns"));
}

TEST_CASE("mtx: the mirror image of a skew-symmetric entry has the other sign") {
  const std::string skew = banner("coordinate real skew-symmetric");
  const Layout both = mask(2, 2, {0, 1, 1, 0});
  CHECK(parse(skew + "2 2 1\n2 1 -2.0\n") == both);
  CHECK(parse(skew + "2 2 3\n1 1 0\n2 1 -2.0\n1 2 2.0\n") == both);
  CHECK(parse(banner("coordinate pattern skew-symmetric") + "2 2 1\n2 1\n") == both);
  CHECK(refuses(skew + "2 2 2\n2 1 2.0\n1 2 2.0\n", "line 4: entry (1, 2) is also that of line 3"));
  CHECK(
      refuses(skew + "2 2 1\n1 1 3\n",
              "line 3: entry (1, 1) is on the diagonal, where the value of a skew-symmetric matrix is zero"));
}

TEST_CASE("mtx: the mirror image of a hermitian entry is its conjugate") {
  const std::string hermitian = banner("coordinate complex hermitian");
  const Layout both = mask(2, 2, {1, 1, 1, 0});
  CHECK(parse(hermitian + "2 2 2\n1 1 3 0\n2 1 0 1\n") == both);
  CHECK(parse(hermitian + "2 2 3\n1 1 3 0\n2 1 1 1\n1 2 1 -1\n") == both);
  CHECK(parse(banner("coordinate real hermitian") + "2 2 2\n1 1 3\n2 1 1\n") == both);
  CHECK(refuses(hermitian + "2 2 2\n2 1 1 1\n1 2 1 1\n", "line 4: entry (1, 2) is also that of line 3"));
  CHECK(
      refuses(hermitian + "2 2 1\n2 2 0 1\n",
              "line 3: entry (2, 2) is on the diagonal, where the imaginary part of a hermitian matrix is"));
}

TEST_CASE("mtx: a banner may have one percent sign, blanks around it, and a byte order mark in front") {
  const std::string rest = "MatrixMarket matrix coordinate pattern general \n1 2 1\n1 2\n";
  for (const std::string front : {"%", " %%", "\xef\xbb\xbf%%"})
    CHECK(parse(front + rest) == mask(1, 2, {0, 1}));
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
  CHECK(refuses("", "line 1: the banner's first word is missing; expected %%MatrixMarket"));
  CHECK(refuses("1 0 1\n", "line 1: the banner's first word is '1'"));
  CHECK(refuses("%%MatrixMarket vector\n", "line 1: the object is 'vector'; expected matrix"));
  CHECK(refuses("%%MatrixMarket matrix sparse real general\n",
                "line 1: the format is 'sparse'; expected coordinate or array"));
  CHECK(refuses("%%MatrixMarket matrix coordinate logical general\n",
                "line 1: the field is 'logical'; expected pattern or integer or unsigned-integer or real or "
                "double or complex"));
  CHECK(refuses("%%MatrixMarket matrix coordinate real banded\n",
                "line 1: the symmetry is 'banded'; expected general or symmetric or skew-symmetric or "
                "hermitian"));
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
      refuses(kPattern + "0 3 1\n", "line 2: character 5: entries is '1'; expected an integer from 0 to 0"));
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
  for (const std::string value : {"x", "1.5x", "1,5", "--1", "+-1", "1e", "-", "+", ".", "1-", "1ee5", "1e5.",
                                  "0x1p3", "nano", "1.0+5+5"}) {
    CAPTURE(value);
    CHECK(refuses(kReal + "2 3 1\n1 1 " + value + "\n",
                  "line 3: the value is '" + value + "'; expected a number"));
  }
}

TEST_CASE("mtx: an entry that appears again is one block, where its values cannot add up to zero") {
  CHECK(parse(kPattern + "1 2 3\n1 2\n1 2\n1 2\n") == mask(1, 2, {0, 1}));
  CHECK(parse(kReal + "1 2 4\n1 1 0\n1 2 1.5\n1 1 0\n1 2 2\n") == mask(1, 2, {0, 1}));
  CHECK(
      refuses(kReal + "2 3 3\n1 2 1\n2 2 1\n1 2 -1\n",
              "line 5: entry (1, 2) is also that of line 3, whose value has another sign: whether there is a "
              "block depends on who reads it"));
  CHECK(refuses(kInteger + "2 3 2\n1 2 0\n1 2 1\n", "line 4: entry (1, 2) is also that of line 3"));
  CHECK(refuses(banner("coordinate complex general") + "1 1 2\n1 1 1 1\n1 1 1 -1\n",
                "line 4: entry (1, 1) is also that of line 3"));
}

TEST_CASE("mtx: foreign bytes in a message are escaped and cut") {
  CHECK(refuses("\x1b[31m\xff" + std::string(100, 'a'),
                "line 1: the banner's first word is '\\x1b[31m\\xffaaaaaaaaaaaaaaaaaaaaaaaaaa…'"));
}

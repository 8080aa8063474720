#include "compiler/layout_file/smtx.h"

#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/compiler/layout_file/refusal_check.h"

using sparsekiln::Layout;
namespace layout_file = sparsekiln::layout_file;

namespace {

Layout parse(const std::string& text) { return layout_file::parse_smtx(text, "L.smtx"); }

Layout sample() {
  return Layout::from_mask(3, 4, std::vector<std::uint8_t>{1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1});
}

bool refuses(const std::string& text, const std::string& place_and_part) {
  return refuses_with([&] { return parse(text); }, "layout file 'L.smtx', " + place_and_part);
}

}  // namespace

TEST_CASE("smtx: sizes, row offsets and column indices are read") {
  CHECK(parse("3, 4, 5\n0 2 2 5\n0 2 1 2 3\n") == sample());
  CHECK(parse("3, 4, 5 \r\n0 2 2 5 \r\n0 2 1 2 3 \r\n\r\n") == sample());
  CHECK(parse("3 4 5\n0,2,2,5\n0,2,1,2,3") == sample());
}

TEST_CASE("smtx: a byte order mark of UTF-8 is no part of the first line") {
  CHECK(parse("\xef\xbb\xbf"
              "3, 4, 5\r\n0 2 2 5\r\n0 2 1 2 3\r\n") == sample());
}

TEST_CASE("smtx: a matrix without entries needs no line of column indices") {
  CHECK(parse("2, 3, 0\n0 0 0\n").blocks() == 0);
  CHECK(parse("2, 3, 0\n0 0 0\n\n").cols() == 3);
  CHECK(parse("0, 3, 0\n0\n").rows() == 0);
}

TEST_CASE("smtx: what is written has the collection's form") {
  std::string text;
  layout_file::write_smtx(sample(), [&](std::string_view piece) { text += piece; });
  CHECK(text == "3, 4, 5\n0 2 2 5\n0 2 1 2 3\n");
}

TEST_CASE("smtx: sizes out of range are refused") {
  CHECK(refuses("", "line 1: rows is missing; expected an integer from 0 to 16777216"));
  CHECK(refuses("-3, 4, 5\n", "line 1: character 1: rows is '-3'"));
  CHECK(refuses("3, 16777217, 5\n", "line 1: character 4: columns is '16777217'"));
  CHECK(refuses("3, 4, 13\n", "line 1: character 7: non-zeros is '13'; expected an integer from 0 to 12"));
  CHECK(refuses("3, 4, 5, 6\n", "line 1: expected the end of the line, found '6'"));
  CHECK(refuses("16777216, 16777216, 1073741824\n0 ", "line 2: character 3: the row offset is missing"));
}

TEST_CASE("smtx: row offsets that descend, jump or miss the total are refused") {
  CHECK(refuses("3, 4, 5\n1 2 2 5\n0 2 1 2 3\n",
                "line 2: character 1: the row offset is '1'; expected an integer from 0 to 0"));
  CHECK(refuses("3, 4, 5\n0 2 1 5\n0 2 1 2 3\n",
                "line 2: character 5: the row offset is '1'; expected an integer from 2 to 5"));
  CHECK(refuses("3, 4, 5\n0 5 5 5\n0 1 2 3 4\n",
                "line 2: character 3: the row offset is '5'; expected an integer from 0 to 4"));
  CHECK(refuses("3, 4, 5\n0 2 2 4\n0 2 1 2 3\n",
                "line 2: character 7: the row offset is '4'; expected an integer from 5 to 5"));
  CHECK(refuses("3, 4, 5\n0 2 2\n0 2 1 2 3\n", "line 2: character 6: the row offset is missing"));
  CHECK(refuses("3, 4, 5\n0 2 2 5 5\n0 2 1 2 3\n", "line 2: expected the end of the line, found '5'"));
}

TEST_CASE("smtx: column indices that are out of range, unsorted, double or too few are refused") {
  CHECK(refuses("3, 4, 5\n0 2 2 5\n0 4 1 2 3\n",
                "line 3: character 3: the column index is '4'; expected an integer from 1 to 3"));
  CHECK(refuses("3, 4, 5\n0 2 2 5\n2 0 1 2 3\n",
                "line 3: character 3: the column index is '0'; expected an integer from 3 to 3"));
  CHECK(refuses("3, 4, 5\n0 2 2 5\n0 2 1 1 3\n",
                "line 3: character 7: the column index is '1'; expected an integer from 2 to 3"));
  CHECK(refuses("3, 4, 5\n0 2 2 5\n0 3 1 3 3\n",
                "line 3: character 9: the column index is '3'; none is possible here"));
  CHECK(refuses("3, 4, 5\n0 2 2 5\n0 2 1 2\n", "line 3: character 8: the column index is missing"));
  CHECK(refuses("3, 4, 5\n0 2 2 5\n", "line 3: the column index is missing"));
  CHECK(refuses("3, 4, 5\n0 2 2 5\n0 2 1 2 3 3\n", "line 3: expected the end of the line, found '3'"));
  CHECK(refuses("3, 4, 5\n0 2 2 5\n0 2 1 2 3\n\n7\n", "line 5: expected the end of the line, found '7'"));
}

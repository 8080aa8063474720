#include "tests/conformance/case_file.h"

#include <doctest/doctest.h>

#include <string>

#include <sparsekiln/error.h>

#include "tests/conformance/assemble.h"
#include "tests/conformance/judge.h"

using namespace sparsekiln;
using namespace sparsekiln::conformance;

namespace {

Case parse_one(const std::string& lines) { return parse_cases("case it\n" + lines, "it.cases", "it").at(0); }

std::string refusal(const std::string& text) {
  try {
    (void)parse_cases(text, "it.cases", "it");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// "" where a thread that leaves `got` in a column of this type is right, having to leave `expected`.
std::string check_result(const std::string& type, const std::string& judge, const std::string& expected,
                         std::uint64_t got) {
  const Case test =
      parse_one("threads 1\nout " + type + " d\n" + judge + "ptx\n  nothing;\nrows\n  -> " + expected + "\n");
  return differences(test, {{got}});
}

}  // namespace

TEST_CASE("values of every type are read as the bits that they are") {
  const Case test = parse_one(
      "in s16 a, u64 b, f32 c, f16 d, bf16 e, f16x2 f, pred g, f64 h, f32 i\nout b32 z\nptx\n  "
      "nothing;\nrows\n"
      "  -2 0x100000001 1.5 -0.5 1 1|-2 1 inf 0x1p-149 -> 0\n");
  CHECK(test.given.at(0) == std::vector<std::uint64_t>{0xfffe, 0x100000001, 0x3fc00000, 0xb800, 0x3f80,
                                                       0xc0003c00, 1, 0x7ff0000000000000, 1});
}

TEST_CASE("rows are given to the threads from the first again") {
  const Case test =
      parse_one("in u32 a\nout u32 d\nptx\n  nothing;\nrows\n  1 -> 10\n  2 -> 20\n  3 -> 30\n");
  CHECK(test.given.size() == 32);
  CHECK(test.given.at(31).at(0) == 2);
  CHECK(test.expected.at(30).at(0).bits == 10);
}

TEST_CASE("columns count, repeat, and continue in a further line") {
  const Case test = parse_one("threads 8\nout u32 d\nptx\n  nothing;\nlanes\n  d: 3..5 9*2\n  d: 2..1 7\n");
  std::vector<std::uint64_t> values;
  for (const auto& row : test.expected) values.push_back(row.at(0).bits);
  CHECK(values == std::vector<std::uint64_t>{3, 4, 5, 9, 9, 2, 1, 7});
}

TEST_CASE("values that are packed for the device are unpacked to the same values") {
  const Case test =
      parse_one("in b16 a, b64 b, b32 c[2]\nout b32 z\nptx\n  nothing;\nrows\n  1 2 3 4 -> 0\n");
  CHECK(row_bytes(test.in) == 32);
  std::vector<std::uint8_t> row(32);
  pack(test.in, test.given.at(0), row.data());
  CHECK(row.at(8) == 2);
  CHECK(unpack(test.in, row.data()) == test.given.at(0));
}

TEST_CASE("an invalid case is refused with its line") {
  CHECK(refusal("in u32 a\n").find("the first word of a file is `case`") != std::string::npos);
  CHECK(refusal("case a\nin u31 a\n").find("it.cases:2: type 'u31' is not known") != std::string::npos);
  const std::string start = "case a\nthreads 2\nout u16 d\nptx\n  nothing;\n";
  CHECK(refusal(start + "rows\n  -> 65536\n").find("does not fit into 16 bits") != std::string::npos);
  CHECK(refusal(start + "rows\n  1 -> 1\n").find("a row has 0 values, -> and 1 values") != std::string::npos);
  CHECK(refusal(start + "rows\n  -> 1\n  -> 1\n  -> 1\n").find("3 rows for 2 threads") != std::string::npos);
  CHECK(refusal(start + "lanes\n  d: 1\n").find("d has 1 values for 2 threads") != std::string::npos);
  CHECK(refusal(start).find("a case needs `rows` or `lanes`") != std::string::npos);
  CHECK(refusal("case a\nout f16 d\nptx\n  x;\nrows\n  -> 0.1\n").find("is not exact") != std::string::npos);
  CHECK(refusal("case a\nout u32 d\njudge e ulp 1\n").find("no such column") != std::string::npos);
  CHECK(refusal(start + "rows\n  -> 1\n" + start + "rows\n  -> 1\n").find("a second case 'a'") !=
        std::string::npos);
}

TEST_CASE("an answer is compared bit for bit by default") {
  CHECK(check_result("u32", "", "7", 7).empty());
  CHECK(check_result("u32", "", "7", 8).find("d is 0x00000008, not 0x00000007") != std::string::npos);
  CHECK_FALSE(check_result("f32", "", "0", 0x80000000).empty());
  CHECK(check_result("f32", "", "nan", 0x7fc00001).empty());
  CHECK_FALSE(check_result("f32", "", "nan", 0x7f800000).empty());
  CHECK_FALSE(check_result("f32", "", "0x7fffffff", 0x7fc00000).empty());
  CHECK(check_result("f16x2", "", "nan|1", 0x3c007e00).empty());
  CHECK_FALSE(check_result("f16x2", "", "1|nan", 0x3c007e00).empty());
}

TEST_CASE("a thread that must store nothing must leave its memory unchanged") {
  CHECK(check_result("u32", "", "-", 0xa5a5a5a5).empty());
  CHECK_FALSE(check_result("u32", "", "-", 0).empty());
  CHECK(check_result("u32", "", "*", 12345).empty());
}

TEST_CASE("tolerances are no wider than they say") {
  CHECK(check_result("f32", "judge d ulp 2\n", "1", 0x3f800002).empty());
  CHECK_FALSE(check_result("f32", "judge d ulp 2\n", "1", 0x3f800003).empty());
  CHECK(check_result("f32", "judge d ulp 2\n", "0", 0x80000001).empty());
  CHECK(check_result("f32", "judge d absolute 0.25\n", "1", 0x3f400000).empty());
  CHECK_FALSE(check_result("f32", "judge d absolute 0.25\n", "1", 0x3f3fffff).empty());
  CHECK(check_result("f32", "judge d relative 0.25\n", "2", 0x3fc00000).empty());
  CHECK_FALSE(check_result("f32", "judge d relative 0.25\n", "2", 0x3fbfffff).empty());
  CHECK_FALSE(check_result("f32", "judge d absolute 9\n", "1", 0x7fffffff).empty());
}

TEST_CASE("unordered columns are compared as sets with their counts") {
  const Case test =
      parse_one("threads 3\nout u32 d\njudge d unordered\nptx\n  nothing;\nlanes\n  d: 1 2 2\n");
  CHECK(differences(test, {{2}, {1}, {2}}).empty());
  CHECK_FALSE(differences(test, {{2}, {1}, {1}}).empty());
}

TEST_CASE("another device's answer is the expectation, except where the ISA leaves it open") {
  const Case test = parse_one("threads 1\nout u32 d, u32 e, f32 f\nptx\n  nothing;\nrows\n  -> 1 * nan\n");
  CHECK(differences(test, {{1, 5, 0x7fffffff}}, {{1, 6, 0x7fc00000}}).empty());
  CHECK_FALSE(differences(test, {{1, 5, 0x7fffffff}}, {{2, 5, 0x7fffffff}}).empty());
}

TEST_CASE("two devices may each deviate by the tolerance, in opposite directions") {
  const Case test = parse_one("threads 1\nout f32 d\njudge d ulp 1\nptx\n  nothing;\nrows\n  -> 1\n");
  CHECK(differences(test, {{0x3f800001}}, {{0x3f7fffff}}).empty());
  CHECK_FALSE(differences(test, {{0x3f800002}}, {{0x3f7fffff}}).empty());
}

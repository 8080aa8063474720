#include <bit>
#include <initializer_list>

#include "tests/emulator/ptx/text.h"

using namespace sparsekiln::ptx;
using Kind = Operand::Kind;

namespace {

/// The only operand of `op OPERAND;` in a kernel that has a few names.
Operand operand_of(std::string_view text) {
  const Function function =
      kernel_of(".reg .b32 %r<8>; .reg .pred %p<4>; .reg .b64 %rd<4>; .shared .b8 smem[64];\nop " +
                    std::string(text) + ";",
                ".param .u64 argument");
  REQUIRE(function.statements.size() == 1);
  REQUIRE(function.statements.front().operands.size() == 1);
  return function.statements.front().operands.front();
}

}  // namespace

TEST_SUITE_BEGIN("emulator/ptx operands");

TEST_CASE("a register is named by its index, a special register by its name") {
  CHECK(operand_of("%r3").kind == Kind::reg);
  CHECK(operand_of("%r3").index == 0);  // the first that is used
  CHECK(operand_of("%tid.x").kind == Kind::special);
  for (const char* name : {"%tid.x", "%ntid.y", "%ctaid.z", "%nctaid.x", "%laneid", "%warpid", "%lanemask_lt",
                           "%clock64", "%clusterid.x", "%cluster_ctarank", "%dynamic_smem_size"}) {
    CHECK(operand_of(name).kind == Kind::special);
    CHECK(operand_of(name).text == name);
  }
}

TEST_CASE("integers are two's complement of 64 bits") {
  CHECK(operand_of("7").kind == Kind::integer);
  CHECK(operand_of("7").bits == 7);
  CHECK(operand_of("-8").bits == ~std::uint64_t{7});
  CHECK(operand_of("0xFFFFffffFFFFffffU").bits == ~std::uint64_t{0});
  CHECK(operand_of("18446744073709551615").bits == ~std::uint64_t{0});
  CHECK(operand_of("-9223372036854775808").bits == std::uint64_t{1} << 63);
  CHECK(operand_of("0").bits == 0);
  CHECK(operand_of("0777").bits == 0777);
  CHECK(operand_of("WARP_SZ").bits == 32);
}

TEST_CASE("reals are images, or decimals of 64 bits") {
  CHECK(operand_of("0f3F800000").kind == Kind::real32);
  CHECK(operand_of("0f3F800000").bits == 0x3f800000);
  CHECK(operand_of("-0f3F800000").bits == 0xbf800000);
  CHECK(operand_of("0D400921fb54442d18").kind == Kind::real64);
  CHECK(operand_of("0D400921fb54442d18").bits == 0x400921fb54442d18);
  for (const double value : {0.5, 1.0, -2.25, 1e10, 0.0}) {
    const char* text = value == 0.5    ? "0.5"
                       : value == 1.0  ? "1.0"
                       : value == 1e10 ? "1e10"
                       : value == 0.0  ? "0.0"
                                       : "-2.25";
    CHECK(operand_of(text).kind == Kind::real64);
    CHECK(std::bit_cast<double>(operand_of(text).bits) == value);
  }
}

TEST_CASE("a variable is its address, with an offset") {
  CHECK(operand_of("smem").kind == Kind::variable);
  CHECK(operand_of("smem").text == "smem");
  CHECK(operand_of("smem").offset == 0);
  CHECK(operand_of("smem+8").offset == 8);
  CHECK(operand_of("smem-8").offset == -8);
}

TEST_CASE("an address has a base and an offset") {
  struct Expected {
    const char* text;
    Kind base;
    std::int64_t offset;
  };
  for (const Expected& expected : std::initializer_list<Expected>{
           {"[%rd1]", Kind::reg, 0},
           {"[%rd1+16]", Kind::reg, 16},
           {"[%rd1 + -4]", Kind::reg, -4},
           {"[%rd1-4]", Kind::reg, -4},
           {"[smem]", Kind::variable, 0},
           {"[smem+0x10]", Kind::variable, 16},
           {"[argument+4]", Kind::variable, 4},
           {"[4096]", Kind::integer, 0},
           {"[4096+8]", Kind::integer, 8},
       }) {
    CAPTURE(expected.text);
    const Operand operand = operand_of(expected.text);
    REQUIRE(operand.kind == Kind::address);
    REQUIRE(operand.elements.size() == 1);
    CHECK(operand.elements[0].kind == expected.base);
    CHECK(operand.elements[0].offset == 0);
    CHECK(operand.offset == expected.offset);
  }
  CHECK(operand_of("[argument]").elements[0].text == "argument");
  CHECK(operand_of("[4096]").elements[0].bits == 4096);
}

TEST_CASE("an address of a tensor map has coordinates") {
  const Operand operand = operand_of("[%rd1, {%r1, -2, %r2}]");
  REQUIRE(operand.kind == Kind::address);
  REQUIRE(operand.elements.size() == 2);
  CHECK(operand.elements[0].kind == Kind::reg);
  CHECK(operand.offset == 0);
  REQUIRE(operand.elements[1].kind == Kind::vector);
  REQUIRE(operand.elements[1].elements.size() == 3);
  CHECK(operand.elements[1].elements[0].kind == Kind::reg);
  CHECK(operand.elements[1].elements[1].kind == Kind::integer);
}

TEST_CASE("a vector has elements: registers, numbers, sinks") {
  const Operand vector = operand_of("{%r1, _, -1, 0f00000000}");
  REQUIRE(vector.kind == Kind::vector);
  REQUIRE(vector.elements.size() == 4);
  CHECK(vector.elements[0].kind == Kind::reg);
  CHECK(vector.elements[1].kind == Kind::sink);
  CHECK(vector.elements[2].kind == Kind::integer);
  CHECK(vector.elements[3].kind == Kind::real32);
}

TEST_CASE("two results are a pair") {
  const Operand pair = operand_of("%p1|%p2");
  REQUIRE(pair.kind == Kind::pair);
  REQUIRE(pair.elements.size() == 2);
  CHECK(pair.elements[0].index == 0);
  CHECK(pair.elements[1].index == 1);
  CHECK(operand_of("_|%p2").elements[0].kind == Kind::sink);
}

TEST_CASE("a predicate may be negated") {
  CHECK(operand_of("!%p1").negated);
  CHECK_FALSE(operand_of("%p1").negated);
}

TEST_SUITE_END();

#include "tests/emulator/ptx/text.h"

using namespace sparsekiln::ptx;

namespace {

const Register& used(const Function& function, std::size_t statement, std::size_t operand = 0) {
  return function.registers.at(function.statements.at(statement).operands.at(operand).index);
}

}  // namespace

TEST_SUITE_BEGIN("emulator/ptx scopes");

TEST_CASE("registers are those that are used, with the type of their declaration") {
  const Function function =
      kernel_of(".reg .b32 %r<4000000000>; .reg .f64 %fd<3>, x;\nop %r3999999999, %fd2, x, %fd2;");
  REQUIRE(function.registers.size() == 3);
  CHECK(used(function, 0, 0).name == "%r3999999999");
  CHECK(used(function, 0, 0).type == Type::b32);
  CHECK(used(function, 0, 1).type == Type::f64);
  CHECK(used(function, 0, 2).name == "x");
  CHECK(function.statements[0].operands[1].index == function.statements[0].operands[3].index);
}

TEST_CASE("a name in braces hides the one outside, until they close") {
  const Function function = kernel_of(
      ".reg .b32 t;\nop t;\n{ .reg .f32 t; op t; { .reg .b64 t; op t; } op t; }\n{ .reg .b16 t; op t; }\nop "
      "t;");
  CHECK(function.registers.size() == 4);
  const Type types[] = {Type::b32, Type::f32, Type::b64, Type::f32, Type::b16, Type::b32};
  for (std::size_t i = 0; i < 6; ++i) CHECK(used(function, i).type == types[i]);
  CHECK(function.statements[0].operands[0].index == function.statements[5].operands[0].index);
}

TEST_CASE("a name that is used in braces only still belongs to where it was declared") {
  const Function function = kernel_of(".reg .b32 %r<3>;\n{ op %r1; }\n{ op %r1; }\nop %r1;");
  CHECK(function.registers.size() == 1);
}

TEST_CASE("a range in braces hides registers outside, and a register in braces one of a range") {
  const Function function = kernel_of(
      ".reg .b32 %r<3>;\nop %r1;\n{ .reg .f64 %r<2>; op %r1; op %r2; }\nop %r1;\n{ .reg .f32 %r1; op %r1; "
      "}\nop %r1;");
  const Type types[] = {Type::b32, Type::f64, Type::b32, Type::b32, Type::f32, Type::b32};
  for (std::size_t i = 0; i < 6; ++i) CHECK(used(function, i).type == types[i]);
}

TEST_CASE("the number of a register may be split between prefix and index in one way only") {
  const Function function = kernel_of(".reg .b32 %r<5>; .reg .b64 %r1<5>;\nop %r3;\nop %r14;");
  CHECK(used(function, 0).type == Type::b32);
  CHECK(used(function, 1).type == Type::b64);
  CHECK(kernel_refusal(".reg .b32 %r<5>;\nop %r5;") == "line 7: no register '%r5'");
  CHECK(kernel_refusal(".reg .b32 %r<5>;\nop %r01;") == "line 7: no register '%r01'");
  CHECK(kernel_refusal(".reg .b32 %r<5>;\nop %r;") == "line 7: no register '%r'");
  CHECK(kernel_refusal(".reg .b32 %r<5>;\nop %r99999999999999999999999;") ==
        "line 7: no register '%r99999999999999999999999'");
}

TEST_CASE("a name is declared once in a scope") {
  CHECK(kernel_refusal(".reg .b32 a;\n.reg .b64 a;") == "line 7: 'a' is declared twice");
  CHECK(kernel_refusal(".reg .b32 a<2>;\n.reg .b64 a<3>;") == "line 7: 'a' is declared twice");
  CHECK(kernel_refusal(".reg .b32 a<2>;\n.reg .b64 a1;") == "line 7: 'a1' is declared twice");
  CHECK(kernel_refusal(".reg .b64 a1;\n.reg .b32 a<2>;") == "line 6: 'a1' is declared twice");
  CHECK(kernel_refusal(".reg .b64 a2;\n.reg .b32 a<2>;").empty());
}

TEST_CASE("a name is unknown after its braces close") {
  CHECK(kernel_refusal("{ .reg .b32 t; }\nop t;") == "line 7: nothing is named 't'");
  CHECK(kernel_refusal("{ .reg .b32 %t<3>; op %t1; }\nop %t1;") == "line 7: no register '%t1'");
}

TEST_CASE("labels are statements, before and after the branch") {
  const Function function =
      kernel_of("A: op;\nbra A;\nbra.uni $B;\nop;\n$B:\nC:\nop;\nbra C;\nbra END;\nEND:");
  const std::uint32_t targets[] = {0, 0, 4, 0, 0, 4, 7};
  for (const std::size_t branch : {1, 2, 5, 6}) {
    const Operand& target = function.statements.at(branch).operands.at(0);
    CHECK(target.kind == Operand::Kind::label);
    CHECK(target.index == targets[branch]);
  }
  CHECK(function.statements.size() == 7);  // END is after the last
}

TEST_CASE("a label in braces is known only there, and may be used again elsewhere") {
  const Function function = kernel_of(
      "{ L: op; bra L; bra DONE; bra OUT; DONE: }\n{ L: op; bra L; bra DONE; bra OUT; DONE: }\nOUT: op;");
  const auto target = [&](std::size_t statement) {
    return function.statements.at(statement).operands.at(0).index;
  };
  CHECK(target(1) == 0);
  CHECK(target(2) == 4);
  CHECK(target(3) == 8);
  CHECK(target(5) == 4);
  CHECK(target(6) == 8);
  CHECK(target(7) == 8);
  CHECK(kernel_refusal("{ L: op; }\nbra L;") == "line 7: no label 'L'");
  CHECK(kernel_refusal("L: op;\nL: op;") == "line 7: the label 'L' is there twice");
}

TEST_CASE("braces nest up to a limit") {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '{') + "op;" + std::string(depth, '}');
  };
  CHECK(kernel_refusal(nested(63)).empty());
  CHECK(kernel_refusal(nested(64)) == "line 6: more than 64 braces within braces");
  CHECK_FALSE(kernel_refusal(nested(1000000)).empty());
}

TEST_SUITE_END();

#include <vector>

#include "tests/emulator/ptx/text.h"

using namespace sparsekiln::ptx;
using Modifiers = std::vector<std::string>;

TEST_SUITE_BEGIN("emulator/ptx statements");

TEST_CASE("an instruction is an opcode, its modifiers in order, and operands") {
  const Function function = kernel_of(
      ".reg .b32 %r<9>; .reg .b64 %rd<2>;\nld.global.L2::128B.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1+16];");
  REQUIRE(function.statements.size() == 1);
  const Statement& statement = function.statements[0];
  CHECK(statement.line == kFirstBodyLine + 1);
  CHECK(statement.opcode == "ld");
  CHECK(statement.modifiers == Modifiers{"global", "L2::128B", "v4", "u32"});
  REQUIRE(statement.operands.size() == 2);
  CHECK(statement.operands[0].elements.size() == 4);
  CHECK(statement.operands[1].offset == 16);
  CHECK_FALSE(statement.guarded);
}

TEST_CASE("modifiers keep their colons and digits") {
  const Function function = kernel_of(
      "mbarrier.try_wait.parity.shared::cta.b64;\nmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32;\n"
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes;");
  CHECK(function.statements[0].modifiers == Modifiers{"try_wait", "parity", "shared::cta", "b64"});
  CHECK(function.statements[1].modifiers.at(2) == "m16n8k16");
  CHECK(function.statements[2].modifiers.back() == "mbarrier::complete_tx::bytes");
}

TEST_CASE("a guard is a predicate, perhaps negated") {
  const Function function = kernel_of(".reg .pred %p<3>;\n@%p1 op;\n@!%p2 op;\n@ ! %p1 op;\nop;");
  REQUIRE(function.statements.size() == 4);
  CHECK(function.statements[0].guarded);
  CHECK_FALSE(function.statements[0].guard_negated);
  CHECK(function.registers[function.statements[0].guard].name == "%p1");
  CHECK(function.statements[1].guard_negated);
  CHECK(function.registers[function.statements[1].guard].name == "%p2");
  CHECK(function.statements[2].guard == function.statements[0].guard);
  CHECK_FALSE(function.statements[3].guarded);
}

TEST_CASE("an instruction may span lines, several may share one, and empty ones are ignored") {
  const Function function = kernel_of("op\n 1,\n 2; op 3; op;;\n");
  REQUIRE(function.statements.size() == 3);
  CHECK(function.statements[0].line == kFirstBodyLine);
  CHECK(function.statements[1].line == kFirstBodyLine + 2);
  CHECK(function.statements[0].operands.size() == 2);
}

TEST_CASE("an instruction has the source position of the .loc before it") {
  const Function function = kernel_of(
      "op;\n.loc 1 12 5\nop;\nop;\n.loc\t2 30 1, function_name $L__info_string0, inlined_at 1 14 9\nop;\n"
      ".loc 2 31 1, function_name $L__info_string0+35, inlined_at 1 14 9\nop;\n.pragma \"nounroll\";\nop;");
  const SourcePlace places[] = {{0, 0}, {1, 12}, {1, 12}, {2, 30}, {2, 31}, {2, 31}};
  REQUIRE(function.statements.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(function.statements[i].source.file == places[i].file);
    CHECK(function.statements[i].source.line == places[i].line);
  }
}

TEST_CASE("the source positions of one kernel do not apply to the next") {
  const Module module = module_of(".entry a() { .loc 1 5 1\n op; }\n.entry b() { op; }");
  CHECK(module.functions[0].statements[0].source.line == 5);
  CHECK(module.functions[1].statements[0].source.line == 0);
}

TEST_CASE("inline assembly with scopes and comments is read like the code around it") {
  const Function function = kernel_of(
      ".reg .b32 %r<4>; .reg .f32 %f<3>;\n// begin inline asm\n{ .reg .b64 t; cvt.u64.u32 t, %r1;\n"
      "cp.async.cg.shared.global [%r2], [t], 16, %r3; }\n// end inline asm\nfma.rn.f32 %f1, %f2, %f2, "
      "0f3F800000;");
  REQUIRE(function.statements.size() == 3);
  CHECK(function.statements[1].operands.size() == 4);
  CHECK(function.registers.size() == 6);
}

TEST_CASE("a module is named by the variables that it declared before") {
  const Module module =
      module_of(".global .b32 table[4];\n.entry k() { .reg .b64 %rd<2>; mov.u64 %rd1, table; }");
  CHECK(module.functions[0].statements[0].operands[1].text == "table");
  CHECK(module_refusal(".entry k() { op table; }\n.global .b32 table[4];") ==
        "line 4: nothing is named 'table'");
}

TEST_SUITE_END();

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "emulator/machine/memory.h"
#include "emulator/program/decode.h"
#include "emulator/program/decoder.h"
#include "emulator/program/flow.h"
#include "emulator/ptx/parse.h"

namespace sparsekiln::emulator {
namespace {

ptx::Module module_of(std::string_view body, std::string_view outside = "",
                      std::string_view parameters = "") {
  std::string text = ".version 9.0\n.target sm_90\n.address_size 64\n";
  text.append(outside).append("\n.visible .entry k(").append(parameters).append(") {\n");
  text.append(".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f32 %f<9>;\n");
  text.append(body).append("\n}\n");
  return ptx::parse(text);
}

Program program_of(std::string_view body, std::string_view outside = "", std::string_view parameters = "") {
  const ptx::Module module = module_of(body, outside, parameters);
  return decode(module, module.functions.at(0), {{"table", 0x0600'0000'0100}});
}

/// With what a body is refused; empty: it is not.
std::string refusal(std::string_view body) {
  try {
    static_cast<void>(program_of(body));
  } catch (const ptx::Error& error) {
    return error.what();
  }
  return {};
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::size_t joins(const Program& program) {
  return static_cast<std::size_t>(std::count_if(program.code.begin(), program.code.end(),
                                                [](const Instruction& i) { return i.run == join; }));
}

TEST_CASE("an instruction that is not known is refused by its text and line") {
  const std::string message = refusal("@!%p1 frobnicate.x.u32 %r1, [%d2+8];");
  CHECK(has(message, "@!%p1 frobnicate.x.u32 %r1, [%d2+8]; is not implemented"));
  CHECK(has(message, "line 7"));
}

TEST_CASE("a modifier that an instruction does not have is refused") {
  CHECK(has(refusal("add.rn.s32 %r1, %r2, %r3;"), ".rn"));
  CHECK(has(refusal("add.s32.trans %r1, %r2, %r3;"), ".trans"));
  CHECK(has(refusal("bra.sideways L; L: ret;"), "modifier"));
}

TEST_CASE("modifiers come in any order that ptxas takes") {
  for (const char* const accepted :
       {"add.s32.sat %r1, %r2, %r3;", "red.global.gpu.relaxed.add.u32 [%d2], %r1;",
        "red.add.gpu.global.relaxed.u32 [%d2], %r1;", "atom.gpu.add.global.acq_rel.u32 %r1, [%d2], %r3;",
        "ld.u32.global %r1, [%d2];", "ld.global.gpu.acquire.u32 %r1, [%d2];",
        "st.v2.release.sys.global.u32 [%d2], {%r1, %r2};", "fence.gpu.acq_rel;",
        "ld.nc.v2.global.L1::no_allocate.u32 {%r1, %r2}, [%d2];"}) {
    CAPTURE(std::string(accepted));
    CHECK(refusal(accepted) == "");
  }
  for (const char* const refused : {"cvt.rn.s32.f32 %r1, %r2;", "cp.async.ca.global.shared [%d2], [%d2], 16;",
                                    "bar.0.sync 0;", "ld.global.global.u32 %r1, [%d2];"}) {
    CAPTURE(std::string(refused));
    CHECK(refusal(refused) != "");
  }
}

TEST_CASE("carry is refused") { CHECK(has(refusal("add.cc.u32 %r1, %r2, %r3;"), ".cc")); }

TEST_CASE("a register of another width is refused") {
  CHECK(has(refusal("add.s32 %r1, %d2, %r3;"), "%d2 has 64 bits where 32 are expected"));
  CHECK(has(refusal("add.s64 %r1, %d2, %d3;"), "%r1 has 32 bits"));
}

TEST_CASE("too few and too many operands are refused") {
  CHECK(has(refusal("add.s32 %r1, %r2;"), "2 operands"));
  CHECK(has(refusal("add.s32 %r1, %r2, %r3, %r4;"), "4 operands"));
}

TEST_CASE("an indirect branch is refused") { CHECK(!refusal("brx.idx %r1, L; L: ret;").empty()); }

TEST_CASE("a clock is refused") { CHECK(has(refusal("mov.u32 %r1, %clock;"), "%clock")); }

TEST_CASE("only a predicate is negated") { CHECK(!refusal("not.b32 %r1, !%r2;").empty()); }

TEST_CASE("the same constant has one row, and another one another") {
  const Program program = program_of("add.s32 %r1, %r2, 5; add.s32 %r2, %r1, 5; add.s32 %r1, %r2, 6; ret;");
  const auto constants = [&](std::uint64_t value) {
    return std::count_if(program.fixed_rows.begin(), program.fixed_rows.end(), [&](const FixedRow& row) {
      return row.source == FixedRow::Source::constant && row.bytes == 4 && row.value == value;
    });
  };
  CHECK(constants(5) == 1);
  CHECK(constants(6) == 1);
}

TEST_CASE("a negative constant has the width of its type") {
  const Program program = program_of("add.s16 %h1, %h2, -1; ret;");
  const auto row = std::find_if(program.fixed_rows.begin(), program.fixed_rows.end(),
                                [](const FixedRow& fixed) { return fixed.value != 0; });
  REQUIRE(row != program.fixed_rows.end());
  CHECK(row->bytes == 2);
  CHECK(row->value == 0xffff);
}

TEST_CASE("code that runs over its end ends there") {
  const Program program = program_of("add.s32 %r1, %r2, %r3;");
  CHECK((program.code.back().run == end_lanes));
  CHECK(program.statement(program.code.back()).opcode == "ret");
}

TEST_CASE("a label at the end of a function is its end") {
  const Program program = program_of("@%p1 bra DONE; add.s32 %r1, %r2, %r3; DONE:");
  CHECK((program.code[0].run == end_lanes));
  CHECK(program.code[0].guard != kNoGuard);
}

TEST_CASE("a branch to ret ends its lanes, and no join is needed") {
  const Program program = program_of("@%p1 bra DONE; add.s32 %r1, %r2, %r3; DONE: ret;");
  CHECK((program.code[0].run == end_lanes));
  CHECK(joins(program) == 0);
}

TEST_CASE("lanes of a branch join where its ways meet") {
  const Program program = program_of(R"(
    @%p1 bra ELSE;
    add.s32 %r1, %r2, 1;
    bra.uni DONE;
  ELSE: add.s32 %r1, %r2, 2;
  DONE: st.shared.u32 [%r1], %r1;
    ret;)");
  REQUIRE(joins(program) == 1);
  const auto at = std::find_if(program.code.begin(), program.code.end(),
                               [](const Instruction& i) { return i.run == join; });
  CHECK(at->immediate == at - program.code.begin());
  CHECK(at->traits == kMadeByDecoder);
  CHECK(program.code[0].detail == static_cast<std::uint64_t>(at->immediate));
  CHECK(program.code[2].immediate == at->immediate);
}

TEST_CASE("a branch that is said to be uniform has no join") {
  const Program program = program_of("@%p1 bra.uni OVER; add.s32 %r1, %r2, 1; OVER: mov.u32 %r2, %r1; ret;");
  CHECK(joins(program) == 0);
  CHECK((program.code[0].run == branch_uniform));
}

TEST_CASE("parameters lie one after the other, and what reaches beyond one is refused") {
  const std::string_view two = ".param .u32 a, .param .u64 b";
  const Program program = program_of("ld.param.u64 %d1, [b]; ret;", "", two);
  CHECK(program.param_bytes == 16);
  CHECK_THROWS_AS(static_cast<void>(program_of("ld.param.u64 %d1, [a]; ret;", "", two)), ptx::Error);
  CHECK_THROWS_AS(static_cast<void>(program_of("ld.param.u64 %d1, [c]; ret;", "", two)), ptx::Error);
}

TEST_CASE("shared variables follow each other at their alignment, dynamic ones after all others") {
  const Program program = program_of(
      ".shared .align 4 .b8 a[5]; .shared .align 16 .b8 b[16];"
      "mov.u32 %r1, a; mov.u32 %r2, b; mov.u32 %r3, dynamic; mov.u32 %r4, never; ret;",
      ".extern .shared .align 64 .b8 dynamic[]; .shared .align 4 .b8 never[400];");
  const auto holds = [&](std::uint64_t address) {
    return std::any_of(program.fixed_rows.begin(), program.fixed_rows.end(),
                       [&](const FixedRow& row) { return row.value == address; });
  };
  CHECK(holds(kSharedBase));
  CHECK(holds(kSharedBase + 16));
  CHECK(program.shared_bytes == 448);
  CHECK(holds(kSharedBase + 448));
  CHECK(program.shared_alignment == 64);
}

TEST_CASE("a shared variable of the module that a kernel does not name takes no space in it") {
  CHECK(program_of("ret;", ".shared .align 4 .b8 never[400];").shared_bytes == 0);
}

TEST_CASE("a global variable's address is what the module was given") {
  const Program program = program_of("mov.u64 %d1, table; ret;", ".const .align 4 .b8 table[8];");
  CHECK(std::any_of(program.fixed_rows.begin(), program.fixed_rows.end(),
                    [](const FixedRow& row) { return row.value == 0x0600'0000'0100 && row.bytes == 8; }));
  CHECK(has(refusal("mov.u64 %d1, unknown; ret;"), "unknown"));
}

TEST_CASE("the narrowest access is that of any instruction, at most four bytes") {
  CHECK(program_of("ld.shared.u64 %d1, [%r1]; ret;").narrowest_access == 4);
  CHECK(program_of("ld.shared.u8 %h1, [%r1]; ld.shared.u16 %h2, [%r1]; ret;").narrowest_access == 1);
}

TEST_CASE("an address in 32 bits is widened before its use, and nothing counts that") {
  const Program program = program_of("ld.shared.u32 %r2, [%r1+4]; ret;");
  REQUIRE(program.code.size() == 3);
  CHECK(program.code[0].traits == kMadeByDecoder);
  CHECK(program.code[1].operands[1] == program.code[0].operands[0]);
  CHECK(program.code[1].immediate == 4);
}

TEST_CASE("a negated predicate is read from a row of its own") {
  const Program program = program_of("and.pred %p1, %p2, !%p3; ret;");
  REQUIRE(program.code.size() == 3);
  CHECK(program.code[0].traits == kMadeByDecoder);
  CHECK(program.code[1].operands[2] == program.code[0].operands[0]);
}

TEST_CASE("no two families read the same opcode of the same domain") {
  std::set<std::pair<std::string_view, Domain>> known;
  for (const auto& family : {integer_opcodes, logic_opcodes, comparison_opcodes, move_opcodes, warp_opcodes,
                             load_store_opcodes, atomic_opcodes, barrier_opcodes, async_copy_opcodes,
                             matrix_opcodes, tensor_opcodes, conversion_opcodes, float_opcodes, half_opcodes})
    for (const Opcode& opcode : family()) {
      CAPTURE(std::string(opcode.name));
      CHECK(known.emplace(opcode.name, opcode.domain).second);
    }
}

TEST_CASE("a program keeps its pointers when it is moved") {
  Program program = program_of("add.s32 %r1, %r2, 5; ret;");
  const std::uint32_t* operands = program.code[0].operands;
  const Program moved = std::move(program);
  CHECK(moved.code[0].operands == operands);
  CHECK(operands == moved.operand_pool.data());
}

}  // namespace
}  // namespace sparsekiln::emulator

#include <vector>

#include "emulator/ptx/parse.h"
#include "tests/emulator/ptx/text.h"

using namespace sparsekiln::ptx;

namespace {

using Bytes = std::vector<std::uint8_t>;

Variable variable_of(std::string_view text) {
  const Module module = module_of(text);
  REQUIRE(module.variables.size() == 1);
  return module.variables.front();
}

}  // namespace

TEST_SUITE_BEGIN("emulator/ptx declarations");

TEST_CASE("a module says its version and its target") {
  const Module module = parse(".version 8.7 .target sm_100a, debug .address_size 64");
  CHECK(module.version == 87);
  CHECK(module.compute_capability == 100);
  CHECK(module.architecture_specific);
  CHECK_FALSE(parse(".version 6.0 .target sm_75, texmode_unified .address_size 64").architecture_specific);
}

TEST_CASE("comments count as white space, and their lines as lines") {
  const std::string text =
      "// one\n/* two\nthree */ .version 9.0 /**/\n.target sm_80 // four\n.address_size 32";
  CHECK(refusal(text) == "line 5: addresses of other than 64 bits are not implemented");
}

TEST_CASE("an array of bytes keeps the values that are written, and its full size") {
  const Variable variable = variable_of(".const .align 2 .b8 columns[38] = {1, 0, 255, -1};");
  CHECK(variable.name == "columns");
  CHECK(variable.space == Space::constant);
  CHECK(variable.bytes == 38);
  CHECK(variable.alignment == 2);
  CHECK(variable.initialised);
  CHECK(variable.initial == Bytes{1, 0, 255, 255});
}

TEST_CASE("variables in global or constant memory are zero by default, and undefined in shared memory") {
  const Module module = module_of(".global .u32 a; .const .f64 b[2]; .shared .f32 c;");
  REQUIRE(module.variables.size() == 3);
  CHECK(module.variables[0].initialised);
  CHECK(module.variables[0].initial.empty());
  CHECK(module.variables[1].initialised);
  CHECK_FALSE(module.variables[2].initialised);
}

TEST_CASE("a variable has the alignment of its type by default") {
  CHECK(variable_of(".global .u64 a[3];").alignment == 8);
  CHECK(variable_of(".global .b8 a[3];").alignment == 1);
  CHECK(variable_of(".global .align 1 .u64 a;").alignment == 1);
}

TEST_CASE("values are stored little-endian in the width of their type") {
  CHECK(variable_of(".global .u16 a[2] = {0x1234, -2};").initial == Bytes{0x34, 0x12, 0xfe, 0xff});
  CHECK(variable_of(".global .s64 a = -9223372036854775808;").initial == Bytes{0, 0, 0, 0, 0, 0, 0, 0x80});
  CHECK(variable_of(".visible .global .f32 a = 0f3F800000;").initial == Bytes{0, 0, 0x80, 0x3f});
  CHECK(variable_of(".weak .global .f32 a = -1.5;").initial == Bytes{0, 0, 0xc0, 0xbf});
  CHECK(variable_of(".global .f64 a = 0d3FF0000000000000;").initial == Bytes{0, 0, 0, 0, 0, 0, 0xf0, 0x3f});
}

TEST_CASE("integers are read in each base") {
  CHECK(variable_of(".global .b8 a[6] = {10, 0x1F, 017, 0b101, 7U, 0};").initial ==
        Bytes{10, 31, 15, 5, 7, 0});
}

TEST_CASE("nested values are stored row after row, and short rows are filled with zeros") {
  const Variable variable = variable_of(".global .b8 a[3][4] = {{1, 2}, {}, {3}};");
  CHECK(variable.bytes == 12);
  CHECK(variable.initial == Bytes{1, 2, 0, 0, 0, 0, 0, 0, 3});
}

TEST_CASE("the values determine the size of an array without one") {
  CHECK(variable_of(".global .b16 a[] = {1, 2, 3};").bytes == 6);
  CHECK(variable_of(".global .b16 a[][4] = {{1}, {2}};").bytes == 16);
}

TEST_CASE("dynamic shared memory has no size of its own") {
  const Variable variable = variable_of(".extern .shared .align 16 .b8 smem[];");
  CHECK(variable.external);
  CHECK(variable.bytes == 0);
  CHECK(variable.alignment == 16);
  CHECK(variable.space == Space::shared);
}

TEST_CASE("one directive may declare several variables") {
  const Module module = module_of(".global .align 4 .b8 a[3], b, c[2] = {1, 2};");
  REQUIRE(module.variables.size() == 3);
  CHECK(module.variables[1].name == "b");
  CHECK(module.variables[1].alignment == 4);
  CHECK(module.variables[2].initial == Bytes{1, 2});
}

TEST_CASE("parameters are laid out as the launch passes them") {
  const Function function = kernel_of("ret;",
                                      ".param .u32 n, .param .u64 .ptr .global .align 16 x,\n"
                                      ".param .align 64 .b8 map[128], .param .u8 last, .param .f64 y");
  REQUIRE(function.parameters.size() == 5);
  const std::uint64_t offsets[] = {0, 8, 64, 192, 200};
  const std::uint64_t sizes[] = {4, 8, 128, 1, 8};
  for (int i = 0; i < 5; ++i) {
    CHECK(function.parameters[i].offset == offsets[i]);
    CHECK(function.parameters[i].bytes == sizes[i]);
  }
  CHECK(function.parameters[2].name == "map");
  CHECK(function.parameters[2].alignment == 64);
}

TEST_CASE("a kernel needs no parameters, and no parentheses then") {
  const Module module = module_of(".entry a() { ret; }\n.weak .entry b { ret; }");
  REQUIRE(module.functions.size() == 2);
  CHECK(module.functions[0].name == "a");
  CHECK(module.functions[1].name == "b");
  CHECK(module.functions[1].line == kFirstModuleLine + 1);
}

TEST_CASE("a kernel says how many threads it takes") {
  const Module module = module_of(
      ".entry a() .maxntid 16, 8 .minnctapersm 2 .maxnreg 64 .pragma \"nounroll\"; { ret; }\n"
      ".entry b() .reqntid 32, 2, 1 { ret; }\n.entry c() { ret; }");
  CHECK(module.functions[0].max_threads == 128);
  CHECK(module.functions[1].required_threads[0] == 32);
  CHECK(module.functions[1].required_threads[1] == 2);
  CHECK(module.functions[1].required_threads[2] == 1);
  CHECK(module.functions[2].max_threads == 0);
  CHECK(module.functions[2].required_threads[0] == 0);
}

TEST_CASE("a kernel says how many blocks its clusters have") {
  const Module module = module_of(
      ".entry a() .explicitcluster .reqnctapercluster 2, 3 .maxclusterrank 8 { ret; }\n.entry b() { ret; }");
  CHECK(module.functions[0].needs_cluster);
  CHECK(module.functions[0].required_cluster[0] == 2);
  CHECK(module.functions[0].required_cluster[1] == 3);
  CHECK(module.functions[0].required_cluster[2] == 1);
  CHECK_FALSE(module.functions[1].needs_cluster);
  CHECK(module.functions[1].required_cluster[0] == 0);
}

TEST_CASE("a kernel has shared and local variables of its own") {
  const Function function = kernel_of(".shared .align 16 .b8 tile[27648];\n.local .align 8 .b8 depot[32];");
  REQUIRE(function.variables.size() == 2);
  CHECK(function.variables[0].space == Space::shared);
  CHECK(function.variables[0].bytes == 27648);
  CHECK(function.variables[1].space == Space::local);
}

TEST_CASE("files are known by their numbers, wherever the text names them") {
  const Module module = module_of(
      ".file 1 \"first.cu\", 1700000000, 123\n.pragma \"x\", \"y\";\n"
      ".entry k() { .loc 3 7 1\n ret; }\n.file 3 \"third.cu\"");
  REQUIRE(module.files.size() == 4);
  CHECK(module.files[1] == "first.cu");
  CHECK(module.files[2].empty());
  CHECK(module.files[3] == "third.cu");
}

TEST_CASE("a file that a .loc names has an entry even without a .file") {
  CHECK(module_of(".entry k() { .loc 9 7 1\n ret; }").files.size() == 10);
}

TEST_CASE("sections of DWARF are skipped") {
  const Module module = module_of(
      ".section .debug_str\n{\n$L__info_string0:\n.b8 115,0\n.b64 $L__a+12\n.b32 .debug_abbrev\n}\n"
      ".section\t.debug_loc\t{\t}\n.entry k() { ret; }");
  CHECK(module.functions.size() == 1);
}

TEST_SUITE_END();

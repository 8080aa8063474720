#include <initializer_list>

#include "tests/emulator/ptx/text.h"

using namespace sparsekiln::ptx;

namespace {

struct Refused {
  std::string_view text;
  std::string_view message;  ///< in full
};

}  // namespace

TEST_SUITE_BEGIN("emulator/ptx refusals");

TEST_CASE("a text must start as a module") {
  for (const Refused& refused : std::initializer_list<Refused>{
           {"", "line 1: expected '.version', found the end of the text"},
           {"\n.target sm_90", "line 2: expected '.version', found '.target'"},
           {".version 9", "line 1: not a version of PTX: '9'"},
           {".version 9.0", "line 1: expected '.target', found the end of the text"},
           {".version 9.0\n.target compute_90",
            "line 2: not a target that this emulator knows: 'compute_90'"},
           {".version 9.0\n.target sm_100f", "line 2: not a target that this emulator knows: 'sm_100f'"},
           {".version 9.0\n.target sm_9", "line 2: not a target that this emulator knows: 'sm_9'"},
           {".version 9.0\n.target sm_90, map_f64_to_f32",
            "line 2: an option of .target that is not implemented: 'map_f64_to_f32'"},
           {".version 9.0 .target sm_90\n.entry", "line 2: expected '.address_size', found '.entry'"},
           {".version 9.0 .target sm_90 .address_size 32",
            "line 1: addresses of other than 64 bits are not implemented"},
       })
    CHECK(refusal(refused.text) == refused.message);
}

TEST_CASE("valid module content that this emulator does not implement is refused by name") {
  for (const Refused& refused : std::initializer_list<Refused>{
           {".visible .func f() { ret; }", "line 4: not implemented: .func"},
           {"\n.extern .func (.param .b32 r) vprintf(.param .b64 a);", "line 5: not implemented: .func"},
           {".alias a, b;", "line 4: not implemented: .alias"},
           {".common .global .b32 a;", "line 4: not implemented: .common"},
           {".global .texref t;", "line 4: not a type that this emulator declares anything with: '.texref'"},
           {".global .v4 .f32 t;", "line 4: not a type that this emulator declares anything with: '.v4'"},
           {".global .bf16 t;", "line 4: not a type that this emulator declares anything with: '.bf16'"},
           {".global .attribute(.managed) .b32 t;",
            "line 4: not a type that this emulator declares anything with: '.attribute'"},
           {".extern .global .b32 t;", "line 4: 't' is .extern: there is nothing to link with"},
           {".extern .entry k();", "line 4: not implemented: .entry"},
           {".entry k();", "line 4: a kernel that is declared only"},
           {".entry k() .blocksareclusters { ret; }", "line 4: not implemented: .blocksareclusters"},
           {"add.s32 a, b;", "line 4: expected a directive, found 'add'"},
           {".reg .b32 r;", "line 4: not implemented: .reg"},
           {".local .b32 r;", "line 4: a .local variable outside of a kernel"},
       })
    CHECK(module_refusal(refused.text) == refused.message);
}

TEST_CASE("an invalid variable is refused") {
  for (const Refused& refused : std::initializer_list<Refused>{
           {".global .pred p;", "line 4: a variable of type .pred"},
           {".global .align 3 .b8 a;", "line 4: an alignment that is not a power of two"},
           {".global .align 0 .b8 a;", "line 4: an alignment that is not a power of two"},
           {".global .align 131072 .b8 a;", "line 4: an alignment is 131072, more than 65536"},
           {".global .b8 a[0];", "line 4: an array of no elements"},
           {".global .b8 a[];", "line 4: 'a' has no size"},
           {".global .b8 a[] = {};", "line 4: 'a' has no elements"},
           {".global .b8 a[2][];", "line 4: expected an array's size, found ']'"},
           {".global .b8 a[1][1][1][1][1][1][1][1][1];", "line 4: an array of more than 8 dimensions"},
           {".global .b8 a[4294967297];", "line 4: an array's size is 4294967297, more than 4294967296"},
           {".global .b64 a[4294967296];", "line 4: 'a' has more than 4294967296 bytes"},
           {".global .b8 a[4294967296][4294967296];", "line 4: 'a' has more than 4294967296 bytes"},
           {".global .b32 a;\n.global .b32 a;", "line 5: 'a' is declared twice"},
           {".global .b32 k;\n.entry k() { }", "line 5: 'k' is declared twice"},
           {".const .b8 a[65536];\n.const .b8 b;", "line 5: more than 65536 bytes of .const variables"},
           {".extern .shared .b8 a[4];", "line 4: 'a' is .extern .shared, but its size is given"},
           {".global .b32 %a;", "line 4: not a variable's name: '%a'"},
           {".global .b32 a", "line 4: expected ';', found the end of the text"},
       })
    CHECK(module_refusal(refused.text) == refused.message);
}

TEST_CASE("an initial value must fit its variable") {
  for (const Refused& refused : std::initializer_list<Refused>{
           {".global .b8 a = 256;", "line 4: an initial value that does not fit .b8"},
           {".global .b8 a = -129;", "line 4: an initial value that does not fit .b8"},
           {".global .b8 a[2] = {1, 2, 3};", "line 4: more initial values than the 2 that the array has"},
           {".global .b8 a[2] = 1;", "line 4: expected '{', found '1'"},
           {".global .b8 a[2][2] = {1, 2};", "line 4: expected '{', found '1'"},
           {".global .b8 a = {1};", "line 4: expected an initial value of type .b8, found '{'"},
           {".global .b32 a = 1.5;", "line 4: expected an initial value of type .b32, found '1.5'"},
           {".global .b128 a = 1;", "line 4: expected an initial value of type .b128, found '1'"},
           {".global .f16 a = 1.0;", "line 4: expected an initial value of type .f16, found '1.0'"},
           {".global .f32 a = 1;", "line 4: expected a real as initial value, found '1'"},
           {".global .f64 a = 0f00000000;",
            "line 4: expected a real of 64 bits as initial value, found '0f00000000'"},
           {".global .b64 a = generic(b);",
            "line 4: an address as initial value is not implemented: 'generic'"},
           {".shared .b8 a = 1;", "line 4: 'a' cannot have initial values: only .global and .const can"},
           {".global .b8 a[2][1073741824] = {{1}, {2}};",
            "line 4: initial values with gaps too large to be stored"},
       })
    CHECK(module_refusal(refused.text) == refused.message);
}

TEST_CASE("parameters are bounded and named once") {
  for (const Refused& refused : std::initializer_list<Refused>{
           {".param .b8 a[32764], .param .b8 b", "line 4: parameters of more than 32764 bytes"},
           {".param .b8 a[]", "line 4: 'a' has no size"},
           {".param .b32 a, .param .b32 a", "line 4: 'a' is declared twice"},
           {".reg .b32 a", "line 4: expected '.param', found '.reg'"},
           {".param .samplerref a",
            "line 4: not a type that this emulator declares anything with: '.samplerref'"},
           {".param .pred a", "line 4: a parameter of type .pred"},
       })
    CHECK(kernel_refusal("ret;", refused.text) == refused.message);
  CHECK(kernel_refusal("ret;", ".param .b8 a[32764]").empty());
}

TEST_CASE("a launch bound must be one that a block can have") {
  CHECK(module_refusal(".entry k() .maxntid 64, 32 { }") ==
        "line 4: .maxntid asks for 2048 threads, not 1 to 1024");
  CHECK(module_refusal(".entry k() .reqntid 0 { }") == "line 4: .reqntid asks for 0 threads, not 1 to 1024");
  CHECK(module_refusal(".entry k() .reqntid 1, 1, 1, 1 { }") ==
        "line 4: expected at most three sizes, found '1'");
}

TEST_CASE("valid kernel content that this emulator does not implement is refused by name and line") {
  for (const Refused& refused : std::initializer_list<Refused>{
           {"ret;\ncall.uni f, ();", "line 7: not implemented: call"},
           {".reg .b32 r;\nbrx.idx r, table;", "line 7: not implemented: brx"},
           {"table: .branchtargets A, B;", "line 6: not implemented: .branchtargets"},
           {".param .b32 a;", "line 6: not implemented: .param"},
           {".global .b32 a;", "line 6: not implemented: .global"},
           {".callprototype _;", "line 6: not implemented: .callprototype"},
           {".reg .v2 .f32 v;", "line 6: not a type that this emulator declares anything with: '.v2'"},
           {".reg .bf16 v;", "line 6: not a type that this emulator declares anything with: '.bf16'"},
       })
    CHECK(kernel_refusal(refused.text) == refused.message);
}

TEST_CASE("a malformed statement is refused with its line") {
  for (const Refused& refused : std::initializer_list<Refused>{
           {"op %r1;", "line 6: no register '%r1'"},
           {"op a;", "line 6: nothing is named 'a'"},
           {"op %tid;", "line 6: no register '%tid'"},
           {"op %tid.q;", "line 6: no register '%tid.q'"},
           {"op %envreg3;", "line 6: no register '%envreg3'"},
           {"@a op;", "line 6: no register 'a'"},
           {".reg .b32 a;\n@a op;", "line 7: 'a' is no predicate"},
           {".reg .b32 a;\nop a.x;", "line 7: an element of 'a': registers are scalars"},
           {".reg .pred p;\n@p L: op;", "line 7: expected an operand, found ':'"},
           {".reg .pred p;\n@p { op; }", "line 7: expected an instruction, found '{'"},
           {"op 1 2;", "line 6: expected ';', found '2'"},
           {"op 1,;", "line 6: expected an operand, found ';'"},
           {"op", "line 7: expected an operand, found '}'"},
           {"op (1);", "line 6: expected an operand, found '('"},
           {"op 1|2;", "line 6: '|' joins two registers, nothing else"},
           {"op !1;", "line 6: expected an operand, found '1'"},
           {"op !%tid.x;", "line 6: '!' without a register"},
           {"op {};", "line 6: expected an operand, found '}'"},
           {"op {1, {2}};", "line 6: expected a register or a number in a vector, found '{'"},
           {"op [];", "line 6: expected an operand, found ']'"},
           {"op [%tid.x];", "line 6: an address that is neither register, variable nor integer"},
           {"op [16+a];", "line 6: expected an offset, found 'a'"},
           {"op [16+9223372036854775808];",
            "line 6: an offset is 9223372036854775808, more than 9223372036854775807"},
           {"op -a;", "line 6: expected a number, found 'a'"},
           {"op -9223372036854775809;", "line 6: an integer below -2^63: -9223372036854775809"},
           {"bra 12;", "line 6: expected a label, found '12'"},
           {"bra NOWHERE;", "line 6: no label 'NOWHERE'"},
           {"bra A, B;", "line 6: expected ';', found ','"},
           {"\"text\";", "line 6: expected a statement, found the string 'text'"},
           {"= 1;", "line 6: expected a statement, found '='"},
           {".loc 1 2 3, color red", "line 6: not an attribute of .loc: 'color'"},
           {".loc 65536 2 3", "line 6: a file's number is 65536, more than 65535"},
       })
    CHECK(kernel_refusal(refused.text) == refused.message);
}

TEST_CASE("a malformed token is refused with its line") {
  using namespace std::string_literals;
  const auto refused = [](const std::string& token) { return kernel_refusal("\nop " + token + ";"); };
  CHECK(refused("0x") == "line 7: a number without digits");
  CHECK(refused("0b2") == "line 7: a number without digits");
  CHECK(refused("08") == "line 7: a number that goes on as a name");
  CHECK(refused("12ab") == "line 7: a number that goes on as a name");
  CHECK(refused("0f3F8") == "line 7: a real's image has too few digits");
  CHECK(refused("0f3F8000001") == "line 7: a number that goes on as a name");
  CHECK(refused("18446744073709551616") == "line 7: an integer of more than 64 bits");
  CHECK(refused("0x10000000000000000") == "line 7: an integer of more than 64 bits");
  CHECK(refused("1e999") == "line 7: a real out of the range of 64 bits");
  CHECK(refused("1.5e") == "line 7: a number that goes on as a name");
  CHECK(refused("% r") == "line 7: a '%' that no name follows");
  CHECK(refused("a. b") == "line 7: a '.' that no name follows");
  CHECK(refused("\0"s) == "line 7: a character that PTX does not have: 0");
  CHECK(refused("\xff") == "line 7: a character that PTX does not have: 255");
  CHECK(refused("\"a\nb\"") == "line 7: a string that does not end");
  CHECK(refused("/* a") == "line 7: a comment that does not end");
}

TEST_CASE("a text that stops anywhere is refused") {
  const std::string text =
      kernel_text(".reg .b32 %r<3>;\nadd.s32 %r0, %r1, %r2;\nL: bra L;", ".param .b64 a");
  CHECK(refusal(text).empty());
  const std::size_t last = text.rfind('}');
  for (std::size_t length = kHead.size() + 1; length <= last; ++length) {
    CAPTURE(length);
    CHECK_FALSE(refusal(text.substr(0, length)).empty());
  }
}

TEST_CASE("long names are shortened in messages, and unprintable characters are left out") {
  const std::string message = kernel_refusal("op " + std::string(5000, 'x') + ";");
  CHECK(message == "line 6: nothing is named '" + std::string(80, 'x') + "…'");
  CHECK(module_refusal(".file 1 2 \"\x01\"").size() < 200);
}

TEST_CASE("sections and strings that do not end are refused") {
  CHECK(module_refusal(".section .debug_str { .b8 1") == "line 4: a section that does not end");
  CHECK(module_refusal(".section .debug_str { { } }") == "line 4: expected '}', found '{'");
  CHECK(module_refusal(".file 1 \"a") == "line 4: a string that does not end");
}

TEST_SUITE_END();

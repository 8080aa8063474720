#include <doctest/doctest.h>

#include <cfenv>
#include <string>

#include "emulator/program/decode.h"
#include "emulator/ptx/parse.h"
#include "tests/emulator/one_warp.h"

using namespace sparsekiln;
using namespace sparsekiln::emulator;

namespace {

/// Decodes a kernel of one parameter `a` for an architecture.
void decode_for(const char* arch, const std::string& body) {
  const ptx::Module module =
      ptx::parse(std::string(".version 8.0\n.target ") + arch +
                 "\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n" + body + "\nret;\n}\n");
  static_cast<void>(decode(module, module.functions.at(0), {}));
}

}  // namespace

TEST_CASE("a predicate parameter cannot be loaded") {
  CHECK_THROWS_AS(decode_for("sm_80", ".reg .pred %p1; ld.param.pred %p1, [a];"), ptx::Error);
}

TEST_CASE("variables that are too large for every device are refused") {
  CHECK_THROWS_AS(decode_for("sm_80", ".reg .b32 %r1; .shared .b8 x[2147483648]; mov.u32 %r1, x;"),
                  ptx::Error);
  CHECK_THROWS_AS(decode_for("sm_80", ".reg .b32 %r1; .local .b8 x[1048576]; mov.u32 %r1, x;"), ptx::Error);
}

TEST_CASE("an instruction is refused for architectures that do not have it") {
  const struct {
    const char* has;
    const char* has_not;
    const char* body;
  } rows[] = {
      {"sm_80", "sm_75", "cp.async.wait_all;"},
      {"sm_80", "sm_75", ".reg .b32 %r1; redux.sync.add.u32 %r1, 1, 0xffffffff;"},
      {"sm_90", "sm_80", ".reg .b32 %r1; .reg .pred %p1; elect.sync %r1|%p1, 0xffffffff;"},
      {"sm_90", "sm_89", "fence.acq_rel.cluster;"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.body);
    CHECK_NOTHROW(decode_for(row.has, row.body));
    CHECK_THROWS_AS(decode_for(row.has_not, row.body), ptx::Error);
  }
}

TEST_CASE("an atomic operation is refused for architectures that do not have it") {
  const struct {
    const char* has;
    const char* has_not;
    const char* body;
  } rows[] = {
      {"sm_90", "sm_89", "atom.global.add.noftz.bf16 %h1, [%rd1], %h1;"},
      {"sm_90", "sm_80", "atom.shared.add.noftz.bf16x2 %r1, [%rd1], %r1;"},
      {"sm_90", "sm_89", "red.global.add.noftz.bf16 [%rd1], %h1;"},
      {"sm_90", "sm_80", "red.global.add.noftz.bf16x2 [%rd1], %r1;"},
      {"sm_70", "sm_60", "atom.global.add.noftz.f16 %h1, [%rd1], %h1;"},
      {"sm_60", "sm_53", "red.global.add.noftz.f16x2 [%rd1], %r1;"},
      {"sm_70", "sm_60", "atom.global.cas.b16 %h1, [%rd1], %h1, %h1;"},
      {"sm_60", "sm_53", "atom.global.add.f64 %fd1, [%rd1], %fd1;"},
      {"sm_60", "sm_53", "red.shared.add.f64 [%rd1], %fd1;"},
      {"sm_50", "sm_30", "atom.global.min.u64 %rd2, [%rd1], %rd2;"},
      {"sm_50", "sm_30", "red.global.and.b64 [%rd1], %rd2;"},
      {"sm_30", "sm_13", "atom.global.add.u64 %rd2, [%rd1], %rd2;"},
      {"sm_70", "sm_60", "atom.acquire.gpu.global.add.u32 %r1, [%rd1], %r1;"},
      {"sm_60", "sm_53", "atom.gpu.global.add.u32 %r1, [%rd1], %r1;"},
      {"sm_90", "sm_80", "red.relaxed.cluster.global.add.u32 [%rd1], %r1;"},
  };
  const std::string registers =
      ".reg .b16 %h<3>; .reg .b32 %r<3>; .reg .b64 %rd<3>; .reg .f64 %fd<3>; mov.u64 %rd1, 0; ";
  for (const auto& row : rows) {
    CAPTURE(row.body);
    CHECK_NOTHROW(decode_for(row.has, registers + row.body));
    CHECK_THROWS_WITH_AS(decode_for(row.has_not, registers + row.body), doctest::Contains("needs sm_"),
                         ptx::Error);
  }
}

TEST_CASE(
    "a caller that rounds upwards gets the same results as others, and still rounds upwards afterwards") {
  const Given one = lanes_of(32, [](int) { return 0x3f800000u; });   // 1
  const Given tiny = lanes_of(32, [](int) { return 0x30000000u; });  // 2^-31
  std::fesetround(FE_UPWARD);
  const WarpRun run = run_warp("add.rn.f32 %out0, %in0, %in1;", {one, tiny}, {32});
  const int after = std::fegetround();
  std::fesetround(FE_TONEAREST);
  CHECK(run.results[0][0] == 0x3f800000u);
  CHECK(after == FE_UPWARD);
}

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

TEST_CASE("what sm_90a alone has is refused for sm_90") {
  for (const char* const body :
       {"wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;",
        "setmaxnreg.inc.sync.aligned.u32 232;"}) {
    CAPTURE(std::string(body));
    CHECK_NOTHROW(decode_for("sm_90a", body));
    CHECK_THROWS_AS(decode_for("sm_90", body), ptx::Error);
    CHECK_THROWS_AS(decode_for("sm_100a", body), ptx::Error);
  }
}

TEST_CASE("wgmmas and numbers of registers that the ISA does not have are refused") {
  const auto refused = [](const std::string& text) {
    CAPTURE(text);
    CHECK_THROWS_AS(decode_for("sm_90a", ".reg .b32 %r<32>; .reg .b64 %rd<2>; .reg .pred %p<2>; " + text),
                    ptx::Error);
  };
  const auto wgmma = [](const std::string& types, int registers, const std::string& rest) {
    std::string text = "wgmma.mma_async.sync.aligned." + types + " {%r0";
    for (int i = 1; i < registers; ++i) text += ", %r" + std::to_string(i);
    return text + "}, %rd0, %rd1, %p0" + rest + ";";
  };
  CHECK_NOTHROW(decode_for("sm_90a", ".reg .b32 %r<32>; .reg .b64 %rd<2>; .reg .pred %p<2>; " +
                                         wgmma("m64n8k16.f32.f16.f16", 4, ", 1, -1, 0, 1")));
  refused(wgmma("m64n8k16.f32.f16.f16", 4, ""));
  refused(wgmma("m64n8k16.f32.f16.f16", 4, ", 1, 2, 0, 0"));
  refused(wgmma("m64n8k16.f32.f16.f16", 4, ", 1, 1, 0, 2"));
  refused(wgmma("m64n8k16.f32.f16.f16", 3, ", 1, 1, 0, 0"));
  refused(wgmma("m64n8k16.f32.f16.bf16", 4, ", 1, 1, 0, 0"));
  refused(wgmma("m64n8k16.f16.bf16.bf16", 2, ", 1, 1, 0, 0"));
  refused(wgmma("m64n8k8.f32.tf32.tf32", 4, ", 1, 1, 0, 0"));
  refused(wgmma("m64n8k32.f32.e4m3.e4m3", 4, ", 1, 1, 0, 0"));
  refused(wgmma("m64n8k16.f32.e4m3.e4m3", 4, ", 1, 1"));
  refused(wgmma("m64n40k32.s32.s8.s8", 20, ""));
  refused(wgmma("m64n8k32.s32.s8.s8", 4, ", 1, 1"));
  refused(wgmma("m64n8k16.satfinite.f32.f16.f16", 4, ", 1, 1, 0, 0"));
  refused("wgmma.wait_group.sync.aligned %r0;");
  refused("setmaxnreg.inc.sync.aligned.u32 100;");
  refused("setmaxnreg.dec.sync.aligned.u32 16;");
  refused("setmaxnreg.inc.sync.aligned.u32 264;");
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

#include <doctest/doctest.h>

#include "kernel.h"

using namespace sparsekiln::emulator;

namespace {

constexpr const char* kShared = ".shared .align 16 .b8 s[1024];";
/// %r2 = s + 4 · thread, %r3 = s + 4 · (the thread `ahead` further, of 64)
std::string words(int ahead) {
  return "mov.u32 %r9, s;\nshl.b32 %r2, %r0, 2;\nadd.u32 %r2, %r2, %r9;\nadd.u32 %r3, %r0, " +
         std::to_string(ahead) + ";\nand.b32 %r3, %r3, 63;\nshl.b32 %r3, %r3, 2;\nadd.u32 %r3, %r3, %r9;\n";
}

Kernel two_warps(const std::string& body) {
  Kernel kernel(body, kShared);
  kernel.threads = 64;
  return kernel;
}

}  // namespace

TEST_CASE("reading what another warp writes without a barrier is a race") {
  Kernel kernel = two_warps(
      words(32) + "st.shared.u32 [%r2], %r0;\nst.shared.u32 [%r2+256], %r0;\nld.shared.u32 %r4, [%r3];");
  kernel.checks.unwritten = false;  // otherwise that is reported first
  CHECK(kernel.always(FaultKind::race,
                      {"st.shared.u32 [%r2], %r0;", "ld.shared.u32 %r4, [%r3];", "races with the"}));
}

TEST_CASE("reading what another warp wrote before a barrier is clean") {
  Kernel kernel = two_warps(words(32) + "st.shared.u32 [%r2], %r0;\nbar.sync 0;\nld.shared.u32 %r4, [%r3];");
  CHECK(kernel.clean());
}

TEST_CASE("overwriting what another warp still reads is a race") {
  const std::string before =
      words(32) + "st.shared.u32 [%r2], %r0;\nbar.sync 0;\nld.shared.u32 %r4, [%r3];\n";
  Kernel races = two_warps(before + "st.shared.u32 [%r2], %r4;");
  CHECK(races.always(FaultKind::race));
  Kernel clean = two_warps(before + "bar.sync 0;\nst.shared.u32 [%r2], %r4;");
  CHECK(clean.clean());
}

TEST_CASE("lanes of one warp need a warp barrier between them") {
  const std::string write =
      words(1) + "and.b32 %r5, %r0, 31;\nsetp.eq.u32 %p0, %r5, 31;\nst.shared.u32 [%r2], %r0;\n";
  Kernel races = two_warps(write + "@!%p0 ld.shared.u32 %r4, [%r3];");
  CHECK(races.always(FaultKind::race));
  Kernel clean = two_warps(write + "bar.warp.sync 0xffffffff;\n@!%p0 ld.shared.u32 %r4, [%r3];");
  CHECK(clean.clean());
}

TEST_CASE("a warp barrier of some lanes orders those, and no others") {
  // Lanes 0 to 15 exchange with their neighbors in pairs, after a barrier of half of the warp.
  const std::string write =
      "mov.u32 %r9, s;\nshl.b32 %r2, %r0, 2;\nadd.u32 %r2, %r2, %r9;\nxor.b32 %r3, %r0, 1;\nshl.b32 %r3, "
      "%r3, 2;\nadd.u32 "
      "%r3, %r3, %r9;\nst.shared.u32 [%r2], %r0;\nsetp.ge.u32 %p0, %r0, 16;\n@%p0 bra OTHER;\nbar.warp.sync "
      "0xffff;\n"
      "ld.shared.u32 %r4, [%r3];\nbra END;\nOTHER: ";
  Kernel clean(write + "bar.warp.sync 0xffff0000;\nld.shared.u32 %r5, [%r3];\nEND: ", kShared);
  CHECK(clean.clean());
  Kernel races(write + "ld.shared.u32 %r5, [%r3];\nEND: ", kShared);
  CHECK(races.always(FaultKind::race, {"%r5"}));
}

TEST_CASE("lanes of one instruction may write the same to one place, and nothing else") {
  Kernel same("mov.u32 %r2, 7;\nst.shared.u32 [s], %r2;", kShared);
  CHECK(same.clean());
  Kernel different("st.shared.u32 [s], %r0;", kShared);
  CHECK(different.always(FaultKind::race, {"another lane of the same instruction"}));
  Kernel global("st.global.u32 [%rd0], %r0;");
  global.zeros(4);
  CHECK(global.always(FaultKind::race));
}

TEST_CASE("reads of one place by all threads are no race") {
  Kernel kernel = two_warps(
      "setp.ne.u32 %p0, %r0, 0;\n@!%p0 st.shared.u32 [s], %r0;\nbar.sync 0;\nld.shared.u32 %r4, "
      "[s];\nld.shared.u32 %r4, [s];");
  CHECK(kernel.clean());
}

TEST_CASE("a write is a race with any of several warps that read") {
  Kernel kernel(
      "setp.ne.u32 %p0, %r0, 0;\n@!%p0 st.shared.u32 [s], %r0;\nbar.sync 0;\nld.shared.u32 %r4, [s];\n@!%p0 "
      "st.shared.u32 [s], %r0;",
      kShared);
  kernel.threads = 128;
  CHECK(kernel.always(FaultKind::race));
}

TEST_CASE("neighboring bytes are no race") {
  Kernel kernel = two_warps(
      "cvt.u16.u32 %h0, %r0;\nmov.u32 %r9, s;\nadd.u32 %r2, %r9, %r0;\nst.shared.u8 [%r2], "
      "%h0;\nld.shared.u8 %h1, [%r2];");
  CHECK(kernel.clean());
}

TEST_CASE("blocks that write one place race") {
  Kernel races("setp.eq.u32 %p0, %r0, 0;\n@%p0 st.global.u32 [%rd0], %r1;");
  races.zeros(8);
  races.blocks = 4;
  CHECK(races.always(FaultKind::race, {"races with the write by thread (0,0,0) of block"}));
  races.blocks = 1;
  CHECK(races.clean());
}

TEST_CASE("a block that reads what another writes races") {
  Kernel kernel(
      "setp.eq.u32 %p0, %r1, 0;\nsetp.eq.u32 %p1, %r0, 0;\nand.pred %p2, %p0, %p1;\n@%p2 st.global.u32 "
      "[%rd0], %r1;\n@!%p0 ld.global.u32 %r2, [%rd0];");
  kernel.zeros(8);
  kernel.blocks = 3;
  CHECK(kernel.always(FaultKind::race));
}

TEST_CASE("launches come one after the other") {
  Kernel kernel("setp.eq.u32 %p0, %r0, 0;\n@%p0 st.global.u32 [%rd0], %r1;");
  kernel.zeros(8);
  for (int i = 0; i < 3; ++i) CHECK_NOTHROW((void)kernel.run());
}

TEST_CASE("atomics of all blocks to one place are no race") {
  Kernel kernel("atom.global.add.u32 %r2, [%rd0], 1;\nred.global.add.u32 [%rd0+4], %r0;");
  kernel.zeros(8);
  kernel.blocks = 9;
  kernel.threads = 64;
  REQUIRE(kernel.clean());
  CHECK(kernel.read<std::uint32_t>(kernel.parameters[0]) == 9 * 64);
  CHECK(kernel.read<std::uint32_t>(kernel.parameters[0] + 4) == 9 * 63 * 32);
}

TEST_CASE("an atomic and a weak store of another block race") {
  Kernel kernel(
      "setp.eq.u32 %p0, %r1, 0;\n@%p0 atom.global.add.u32 %r2, [%rd0], 1;\nsetp.eq.u32 %p1, %r0, 0;\n@%p0 "
      "bra END;\n@%p1 st.global.u32 [%rd0], %r1;\nEND: ");
  kernel.zeros(8);
  kernel.blocks = 2;
  CHECK(kernel.always(FaultKind::race));
}

TEST_CASE("atomics with the scope of a block race with those of other blocks") {
  Kernel kernel("atom.relaxed.cta.global.add.u32 %r2, [%rd0], 1;");
  kernel.zeros(8);
  CHECK(kernel.clean());
  kernel.blocks = 2;
  CHECK(kernel.always(FaultKind::race));
}

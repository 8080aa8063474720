#include <doctest/doctest.h>

#include "kernel.h"

using namespace sparsekiln::emulator;

namespace {

constexpr const char* kShared = ".shared .align 16 .b8 s[1024];";

Kernel warps(std::uint32_t count, const std::string& body) {
  Kernel kernel("shr.u32 %r9, %r0, 5;\n" + body, kShared);
  kernel.threads = 32 * count;
  return kernel;
}

}  // namespace

TEST_CASE("a barrier of some threads that a warp leaves out is reported with the warp that is missing") {
  Kernel kernel = warps(4, "setp.eq.u32 %p0, %r9, 2;\n@%p0 bra END;\nbar.sync 0, 128;\nEND: ");
  CHECK(kernel.always(FaultKind::barrier_not_reached,
                      {"bar.sync 0, 128;", "thread (64,0,0) of block (0,0,0) has ended"}));
}

TEST_CASE("a barrier of the whole block waits for no warp that has ended, before it or while others wait") {
  Kernel before = warps(4, "setp.eq.u32 %p0, %r9, 2;\n@%p0 ret;\nbar.sync 0;\nbar.sync 0;");
  CHECK(before.clean());
  Kernel after =
      warps(4,
            "setp.ge.u32 %p0, %r9, 2;\n@%p0 bra.uni LATE;\nbar.sync 0;\nret;\nLATE: mov.u32 %r3, 0;\n"
            "LOOP: add.u32 %r3, %r3, 1;\nsetp.lt.u32 %p1, %r3, 3000;\n@%p1 bra LOOP;");
  CHECK(after.clean());
}

TEST_CASE("a barrier of the whole block counts what living threads say") {
  Kernel kernel(
      "setp.eq.u32 %p0, %r0, 70;\n@%p0 ret;\nsetp.lt.u32 %p0, %r0, 32;\n@%p0 ret;\n"
      "setp.ge.u32 %p1, %r0, 64;\nbar.red.popc.u32 %r2, 0, %p1;\nst.global.u32 [%rd0], %r2;");
  kernel.threads = 96;
  kernel.zeros(4);
  kernel.checks.races = false;  // all store the same
  REQUIRE(kernel.clean());
  CHECK(kernel.read<std::uint32_t>(kernel.parameters[0]) == 31);
}

TEST_CASE("a barrier orders what those did who came, not what a warp did that ended instead") {
  CHECK(warps(3,
              "setp.eq.u32 %p1, %r0, 32;\nmov.u32 %r8, s;\n@%p1 st.shared.u32 [%r8], %r0;\nbar.sync 0;\n"
              "setp.eq.u32 %p0, %r9, 1;\n@%p0 ret;\nbar.sync 0;\nld.shared.u32 %r4, [%r8];")
            .clean());
  const std::string ends =
      "setp.eq.u32 %p1, %r0, 32;\nmov.u32 %r8, s;\n@%p1 st.shared.u32 [%r8], %r0;\n"
      "setp.eq.u32 %p0, %r9, 1;\n@%p0 ret;\nbar.sync 0;\nld.shared.u32 %r4, [%r8];";
  Kernel kernel = warps(3, ends);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) CHECK(kernel.fault(seed).has_value());
}

TEST_CASE("warps that wait at different barriers are reported") {
  Kernel kernel =
      warps(2, "setp.eq.u32 %p0, %r9, 0;\n@%p0 bra A;\nbar.sync 1;\nbra END;\nA: bar.sync 2;\nEND: ");
  CHECK(kernel.always(FaultKind::barrier_not_reached, {"waits at bar.sync 2;", "bar.sync 1;"}));
}

TEST_CASE("of a warp that is missing at a barrier a thread is named that lives") {
  Kernel kernel = warps(2,
                        "setp.eq.u32 %p1, %r0, 0;\n@%p1 ret;\nsetp.eq.u32 %p0, %r9, 0;\n@%p0 bra A;\n"
                        "bar.sync 1;\nbra END;\nA: bar.sync 2;\nEND: ");
  CHECK(kernel.always(FaultKind::barrier_not_reached,
                      {"thread (1,0,0) of block (0,0,0) waits at bar.sync 2;"}));
}

TEST_CASE("a barrier in code that only some lanes of a warp run is reported") {
  Kernel kernel =
      warps(2, "setp.lt.u32 %p0, %r0, 40;\n@%p0 bra END;\nbar.sync 0;\nEND: st.volatile.shared.u32 [s], 0;");
  CHECK(kernel.always(FaultKind::barrier_not_reached));
  Kernel guarded = warps(1, "setp.lt.u32 %p0, %r0, 4;\n@%p0 bar.sync 0;");
  CHECK(guarded.always(FaultKind::barrier_not_reached));
}

TEST_CASE("a thread that has ended is missed at no barrier of its block") {
  CHECK(warps(2, "setp.eq.u32 %p0, %r0, 5;\n@%p0 ret;\nbar.sync 0;").clean());
  CHECK(warps(2, "setp.eq.u32 %p0, %r0, 5;\n@%p0 ret;\nbar.sync 1, 64;").clean());
}

TEST_CASE("a barrier of part of the block lets the others be") {
  Kernel kernel = warps(4, "setp.ge.u32 %p0, %r9, 2;\n@%p0 bra END;\nbar.sync 1, 64;\nEND: bar.sync 0;");
  CHECK(kernel.clean());
}

TEST_CASE("a barrier of part of the block orders those") {
  const std::string exchange =
      "mov.u32 %r8, s;\nshl.b32 %r2, %r0, 2;\nadd.u32 %r2, %r2, %r8;\nxor.b32 %r3, %r0, 32;\nshl.b32 %r3, "
      "%r3, 2;\nadd.u32 %r3, %r3, %r8;\n"
      "st.shared.u32 [%r2], %r0;\nsetp.lt.u32 %p0, %r9, 2;\n";
  CHECK(
      warps(4, exchange + "@%p0 bar.sync 1, 64;\n@!%p0 bar.sync 2, 64;\nld.shared.u32 %r4, [%r3];").clean());
  CHECK(warps(4, exchange + "@%p0 bar.sync 1, 64;\nld.shared.u32 %r4, [%r3];").fault(0).has_value());
}

TEST_CASE("a warp that arrives releases those that wait, and does not come after them") {
  // Warp 0 produces and arrives, warp 1 consumes.
  const std::string body =
      "mov.u32 %r8, s;\nand.b32 %r2, %r0, 31;\nshl.b32 %r2, %r2, 2;\nadd.u32 %r2, %r2, %r8;\nsetp.eq.u32 "
      "%p0, %r9, 1;\n@%p0 bra CONSUME;\n"
      "st.shared.u32 [%r2], %r0;\nbar.arrive 1, 64;\n";
  CHECK(warps(2, body + "ret;\nCONSUME: bar.sync 1, 64;\nld.shared.u32 %r4, [%r2];").clean());
  CHECK(
      warps(2, body + "st.shared.u32 [%r2], %r9;\nret;\nCONSUME: bar.sync 1, 64;\nld.shared.u32 %r4, [%r2];")
          .always(FaultKind::race));
}

TEST_CASE("a barrier reduces what its threads say") {
  Kernel kernel(
      "setp.lt.u32 %p0, %r0, 40;\nbar.red.popc.u32 %r2, 0, %p0;\nbar.red.and.pred %p1, 0, "
      "%p0;\nbar.red.or.pred %p2, 0, %p0;\n"
      "selp.b32 %r3, 1, 0, %p1;\nselp.b32 %r4, 1, 0, %p2;\nmul.wide.u32 %rd3, %r0, 16;\nadd.s64 %rd3, %rd0, "
      "%rd3;\nst.global.v2.u32 [%rd3], {%r2, %r3};\nst.global.u32 [%rd3+8], %r4;");
  kernel.threads = 64;
  kernel.zeros(64 * 16);
  REQUIRE(kernel.clean());
  for (const std::uint64_t thread : {0, 39, 40, 63}) {
    CHECK(kernel.read<std::uint32_t>(kernel.parameters[0] + 16 * thread) == 40);
    CHECK(kernel.read<std::uint32_t>(kernel.parameters[0] + 16 * thread + 4) == 0);
    CHECK(kernel.read<std::uint32_t>(kernel.parameters[0] + 16 * thread + 8) == 1);
  }
}

TEST_CASE("a last warp that is not full takes part in barriers") {
  Kernel kernel = warps(2, "bar.sync 0;\nbar.sync 0;");
  kernel.threads = 40;
  CHECK(kernel.clean());
}

TEST_CASE("a block that spins on a value that is never written is a deadlock") {
  Kernel kernel("LOOP: ld.volatile.global.u32 %r2, [%rd0];\nsetp.eq.u32 %p0, %r2, 0;\n@%p0 bra LOOP;");
  kernel.zeros(4);
  CHECK(kernel.always(FaultKind::deadlock));
  kernel.blocks = 3;
  CHECK(kernel.always(FaultKind::deadlock));
}

TEST_CASE("a warp that spins on what another warp of its block writes is none") {
  Kernel kernel = warps(2,
                        "setp.eq.u32 %p0, %r9, 0;\nsetp.eq.u32 %p1, %r0, 0;\n@%p1 st.volatile.shared.u32 "
                        "[s], 0;\nbar.sync 0;\n@%p0 bra WRITE;\n"
                        "LOOP: ld.volatile.shared.u32 %r2, [s];\nsetp.eq.u32 %p2, %r2, 0;\n@%p2 bra "
                        "LOOP;\nret;\nWRITE: mov.u32 %r3, 0;\nmov.u32 %r4, 1;\n"
                        "COUNT: add.u32 %r3, %r3, 1;\nsetp.lt.u32 %p3, %r3, 30000;\n@%p3 bra COUNT;\n@%p1 "
                        "st.volatile.shared.u32 [s], %r4;");
  CHECK(kernel.clean());
}

TEST_CASE("lanes that spin on lanes of their own warp are refused by name") {
  // A lock that one lane takes, and the others wait for before that lane goes on.
  Kernel kernel(
      "LOOP: atom.global.cas.b32 %r2, [%rd0], 0, 1;\nsetp.ne.u32 %p0, %r2, 0;\n@%p0 bra "
      "LOOP;\natom.global.exch.b32 %r3, [%rd0], 0;");
  kernel.zeros(4);
  CHECK(kernel.always(FaultKind::divergence_not_supported, {"lanes of its own warp wait"}));
}

TEST_CASE("a lock taken by one thread of each block is passed on") {
  Kernel kernel(
      "setp.ne.u32 %p1, %r0, 0;\n@%p1 ret;\nLOOP: atom.acquire.gpu.global.cas.b32 %r2, [%rd0], 0, "
      "1;\nsetp.ne.u32 %p0, %r2, 0;\n@%p0 bra LOOP;\n"
      "ld.global.u32 %r4, [%rd1];\nadd.u32 %r4, %r4, 1;\nst.global.u32 [%rd1], "
      "%r4;\natom.release.gpu.global.exch.b32 %r3, [%rd0], 0;");
  kernel.blocks = 12;
  kernel.zeros(4);
  kernel.zeros(4);
  REQUIRE(kernel.clean());
  CHECK(kernel.read<std::uint32_t>(kernel.parameters[1]) == 12);
}

TEST_CASE("as many blocks wait for one another as the device holds, and a block more is a deadlock") {
  // A barrier of the grid: each block counts itself in, and waits until all have.
  const std::string body =
      "atom.release.gpu.global.add.u32 %r2, [%rd0], 1;\nmov.u32 %r3, %nctaid.x;\n"
      "LOOP: ld.acquire.gpu.global.u32 %r4, [%rd0];\nsetp.lt.u32 %p0, %r4, %r3;\n@%p0 bra LOOP;";
  for (const std::uint32_t blocks : {128u, 129u, 700u}) {
    CAPTURE(blocks);
    Kernel kernel(body);
    kernel.threads = 1;
    kernel.blocks = blocks;
    kernel.resident_blocks = blocks;
    kernel.zeros(4);
    for (const std::uint64_t seed : {0, 1}) CHECK_FALSE(kernel.fault(seed).has_value());
    CHECK(kernel.read<std::uint32_t>(kernel.parameters[0]) == blocks);
    kernel.resident_blocks = blocks - 1;
    const std::optional<Fault> fault = kernel.fault(0);
    REQUIRE(fault.has_value());
    CHECK(fault->kind() == FaultKind::deadlock);
    CHECK(std::string(fault->what())
              .find("1 blocks have not begun: the device holds no more than " + std::to_string(blocks - 1)) !=
          std::string::npos);
  }
}

TEST_CASE("blocks that wait for others and count how often are helped all the same") {
  Kernel kernel(
      "atom.release.gpu.global.add.u32 %r2, [%rd0], 1;\nmov.u32 %r3, %nctaid.x;\nmov.u32 %r5, 0;\n"
      "LOOP: add.u32 %r5, %r5, 1;\nld.acquire.gpu.global.u32 %r4, [%rd0];\nsetp.lt.u32 %p0, %r4, %r3;\n"
      "@%p0 bra LOOP;");
  kernel.threads = 1;
  kernel.blocks = 300;
  kernel.zeros(4);
  CHECK_FALSE(kernel.fault(0).has_value());
}

TEST_CASE("a long computation is no deadlock") {
  Kernel kernel(
      "mov.u32 %r2, 0;\nLOOP: add.u32 %r2, %r2, 1;\nsetp.lt.u32 %p0, %r2, 1000000;\n@%p0 bra LOOP;");
  CHECK_FALSE(kernel.fault(0).has_value());
}

TEST_CASE("a loop without an end is a deadlock") {
  Kernel kernel("LOOP: bra LOOP;");
  CHECK(kernel.always(FaultKind::deadlock));
}

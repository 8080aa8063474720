#include <doctest/doctest.h>

#include "kernel.h"

using namespace sparsekiln::emulator;

namespace {

/// The last block to arrive adds what all blocks wrote: p0 has a counter, p1 a word for each thread of each
/// block, p2 the sums. templates/epilogue.cuh works in the same way.
Kernel last_arriver(const std::string& release, const std::string& acquire,
                    const std::string& load = "ld.relaxed.gpu.global.u32") {
  Kernel kernel(
      "mad.lo.u32 %r2, %r1, 64, %r0;\nmul.wide.u32 %rd4, %r2, 4;\nadd.s64 %rd4, %rd1, %rd4;\nadd.u32 %r3, "
      "%r2, 1;\n"
      "mov.u32 %r5, %nctaid.x;\nst.global.u32 [%rd4], %r3;\nbar.sync 0;\nsetp.ne.u32 %p0, %r0, 0;\n@%p0 bra "
      "WAIT;\n" +
          release +
          "\natom.global.add.u32 %r4, [%rd0], 1;\nadd.u32 %r4, %r4, 1;\nsetp.eq.u32 %p1, %r4, %r5;\n"
          "selp.b32 %r6, 1, 0, %p1;\nst.shared.u32 [last], %r6;\n" +
          acquire +
          "\nWAIT: bar.sync 0;\nld.shared.u32 %r7, [last];\nsetp.eq.u32 %p2, %r7, 0;\n@%p2 ret;\n"
          "mul.wide.u32 %rd5, %r0, 4;\nadd.s64 %rd6, %rd1, %rd5;\nmov.u32 %r8, 0;\nmov.u32 %r10, 0;\nLOOP: " +
          load +
          " %r9, [%rd6];\nadd.u32 %r8, %r8, %r9;\nadd.s64 %rd6, %rd6, 256;\nadd.u32 %r10, %r10, "
          "1;\nsetp.lt.u32 %p3, %r10, %r5;\n"
          "@%p3 bra LOOP;\nadd.s64 %rd7, %rd2, %rd5;\nst.global.u32 [%rd7], %r8;\nsetp.eq.u32 %p4, %r0, "
          "0;\n@%p4 st.global.u32 [%rd0], %r10;\n",
      ".shared .align 4 .b8 last[4];");
  kernel.threads = 64;
  kernel.blocks = 6;
  kernel.zeros(4);
  kernel.zeros(64 * 6 * 4);
  kernel.zeros(64 * 4);
  return kernel;
}

/// Block 0 leaves a word and raises a flag; block 1 waits for it.
Kernel flag(const std::string& raise, const std::string& look) {
  Kernel kernel(
      "setp.ne.u32 %p0, %r0, 0;\n@%p0 ret;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra READ;\nmov.u32 %r2, "
      "5;\nst.global.u32 [%rd1], %r2;\nmov.u32 %r3, 1;\n" +
      raise + "\nret;\nREAD: " + look +
      "\nsetp.eq.u32 %p2, %r4, 0;\n@%p2 bra READ;\nld.global.u32 %r5, [%rd1];\nst.global.u32 [%rd2], %r5;");
  kernel.blocks = 2;
  kernel.zeros(4);
  kernel.zeros(4);
  kernel.zeros(4);
  return kernel;
}

}  // namespace

TEST_CASE("the last block may add what others wrote before their fence") {
  for (const char* load : {"ld.relaxed.gpu.global.u32", "ld.global.u32"}) {
    Kernel kernel = last_arriver("membar.gl;", "membar.gl;", load);
    REQUIRE(kernel.clean());
    for (std::uint32_t t = 0; t < 64; ++t)
      CHECK(kernel.read<std::uint32_t>(kernel.parameters[2] + 4 * t) == 6 * (t + 1) + 64 * 15);
  }
}

TEST_CASE("the last block must not add what others wrote without a fence") {
  CHECK(last_arriver("", "membar.gl;")
            .always(FaultKind::race, {"ld.relaxed.gpu", "st.global.u32 [%rd4], %r3;"}));
}

TEST_CASE("the last block needs a fence of its own") {
  CHECK(last_arriver("membar.gl;", "").always(FaultKind::race));
}

TEST_CASE("a fence of the block does not order blocks") {
  CHECK(last_arriver("membar.cta;", "membar.gl;").always(FaultKind::race));
  CHECK(last_arriver("membar.gl;", "membar.cta;").always(FaultKind::race));
}

TEST_CASE("fences before the barrier serve the thread that counts") {
  // As many kernels have it: each thread's own fence, a barrier, then one atomic.
  Kernel kernel(
      "mul.wide.u32 %rd4, %r0, 4;\nadd.s64 %rd4, %rd1, %rd4;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 st.global.u32 "
      "[%rd4], %r0;\nfence.acq_rel.gpu;\nbar.sync 0;\n"
      "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra WAIT;\natom.global.add.u32 %r4, [%rd0], 1;\nst.shared.u32 [last], "
      "%r4;\nWAIT: bar.sync 0;\n"
      "fence.acq_rel.gpu;\nld.shared.u32 %r4, [last];\nsetp.ne.u32 %p2, %r4, 1;\n@%p2 ret;\nld.global.u32 "
      "%r5, [%rd4];",
      ".shared .align 4 .b8 last[4];");
  kernel.threads = 64;
  kernel.blocks = 2;
  kernel.zeros(4);
  kernel.zeros(256);
  CHECK(kernel.clean());
}

TEST_CASE("release and acquire order the accesses before and after them") {
  CHECK(flag("st.release.gpu.global.u32 [%rd0], %r3;", "ld.acquire.gpu.global.u32 %r4, [%rd0];").clean());
  CHECK(flag("atom.release.gpu.global.add.u32 %r6, [%rd0], 1;",
             "atom.acquire.gpu.global.add.u32 %r4, [%rd0], 0;")
            .clean());
  CHECK(flag("fence.acq_rel.gpu;\nst.relaxed.gpu.global.u32 [%rd0], %r3;",
             "ld.relaxed.gpu.global.u32 %r4, [%rd0];\nfence.acq_rel.gpu;")
            .clean());
  CHECK(flag("membar.gl;\nst.volatile.global.u32 [%rd0], %r3;",
             "ld.volatile.global.u32 %r4, [%rd0];\nmembar.gl;")
            .clean());
}

TEST_CASE("relaxed accesses order nothing") {
  CHECK(flag("st.relaxed.gpu.global.u32 [%rd0], %r3;", "ld.relaxed.gpu.global.u32 %r4, [%rd0];")
            .always(FaultKind::race));
  CHECK(flag("st.release.gpu.global.u32 [%rd0], %r3;", "ld.relaxed.gpu.global.u32 %r4, [%rd0];")
            .always(FaultKind::race));
  CHECK(flag("st.relaxed.gpu.global.u32 [%rd0], %r3;", "ld.acquire.gpu.global.u32 %r4, [%rd0];")
            .always(FaultKind::race));
}

TEST_CASE("release and acquire of a block's scope do not reach other blocks") {
  CHECK(flag("st.release.cta.global.u32 [%rd0], %r3;", "ld.acquire.gpu.global.u32 %r4, [%rd0];")
            .always(FaultKind::race));
  CHECK(flag("st.release.gpu.global.u32 [%rd0], %r3;", "ld.acquire.cta.global.u32 %r4, [%rd0];")
            .always(FaultKind::race));
}

TEST_CASE("a weak flag is a race itself") {
  Kernel kernel = flag("fence.acq_rel.gpu;\nst.global.u32 [%rd0], %r3;",
                       "ld.relaxed.gpu.global.u32 %r4, [%rd0];\nfence.acq_rel.gpu;");
  CHECK(kernel.always(FaultKind::race));
}

TEST_CASE("warps of a block order each other by a flag in shared memory") {
  const auto with = [](const std::string& raise, const std::string& look) {
    Kernel kernel(
        "setp.eq.u32 %p0, %r0, 0;\n@%p0 st.shared.u32 [f], 0;\nbar.sync 0;\nsetp.ge.u32 %p1, %r0, 32;\n@%p1 "
        "bra READ;\n@!%p0 ret;\nmov.u32 %r2, 5;\n"
        "st.shared.u32 [d], %r2;\nmov.u32 %r3, 1;\n" +
            raise + "\nret;\nREAD: setp.ne.u32 %p2, %r0, 32;\n@%p2 ret;\nPOLL: " + look +
            "\nsetp.eq.u32 %p3, %r4, 0;\n@%p3 bra POLL;\nld.shared.u32 %r5, [d];",
        ".shared .align 4 .b8 f[4];\n.shared .align 4 .b8 d[4];");
    kernel.threads = 64;
    return kernel;
  };
  CHECK(with("st.release.cta.shared.u32 [f], %r3;", "ld.acquire.cta.shared.u32 %r4, [f];").clean());
  CHECK(with("membar.cta;\nst.volatile.shared.u32 [f], %r3;", "ld.volatile.shared.u32 %r4, [f];\nmembar.cta;")
            .clean());
  CHECK(with("st.volatile.shared.u32 [f], %r3;", "ld.volatile.shared.u32 %r4, [f];").always(FaultKind::race));
}

TEST_CASE("order is passed on through a third block") {
  // 0 writes and releases to 1, 1 acquires and releases to 2, 2 reads what 0 wrote.
  Kernel kernel(
      "setp.ne.u32 %p0, %r0, 0;\n@%p0 ret;\nmul.wide.u32 %rd3, %r1, 4;\nadd.s64 %rd3, %rd0, %rd3;\nmov.u32 "
      "%r3, 1;\nsetp.eq.u32 %p1, %r1, 0;\n"
      "@%p1 st.global.u32 [%rd1], %r3;\n@%p1 bra NEXT;\nPOLL: ld.acquire.gpu.global.u32 %r4, "
      "[%rd3+-4];\nsetp.eq.u32 %p2, %r4, 0;\n@%p2 bra POLL;\n"
      "ld.global.u32 %r5, [%rd1];\nNEXT: st.release.gpu.global.u32 [%rd3], %r3;");
  kernel.blocks = 3;
  kernel.zeros(12);
  kernel.zeros(4);
  CHECK(kernel.clean());
}

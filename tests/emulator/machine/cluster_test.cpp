#include <doctest/doctest.h>

#include "kernel.h"

using namespace sparsekiln::emulator;

namespace {

constexpr const char* kShared = ".shared .align 16 .b8 s[1024];\n.shared .align 8 .b64 b[4];";
constexpr const char* kMeet = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n";

/// %r2 is the rank, %r3 the address of s in the other block, %r4 of b, %r7 of s here.
Kernel pairs(std::uint32_t clusters, const std::string& body) {
  Kernel kernel(
      "mov.u32 %r2, %cluster_ctarank;\nxor.b32 %r5, %r2, 1;\nmov.u32 %r7, s;\nmov.u32 %r6, b;\n"
      "mapa.shared::cluster.u32 %r3, %r7, %r5;\nmapa.shared::cluster.u32 %r4, %r6, %r5;\n"
      "setp.eq.u32 %p8, %r0, 0;\n" +
          body,
      kShared);
  kernel.cluster = 2;
  kernel.blocks = 2 * clusters;
  kernel.threads = 64;
  return kernel;
}

}  // namespace

TEST_CASE("blocks of a cluster read each other's shared memory after the barrier of the cluster") {
  const std::string write = "@%p8 st.shared.u32 [%r7], %r1;\n";
  const std::string read =
      "@%p8 ld.shared::cluster.u32 %r9, [%r3];\nmul.wide.u32 %rd3, %r1, 4;\nadd.u64 %rd3, %rd3, %rd0;\n"
      "@%p8 st.global.u32 [%rd3], %r9;\n";
  Kernel kernel = pairs(3, write + kMeet + read + kMeet);
  kernel.zeros(24);
  REQUIRE(kernel.clean());
  for (std::uint32_t block = 0; block < 6; ++block)
    CHECK(kernel.read<std::uint32_t>(kernel.parameters[0] + 4 * block) == (block ^ 1));
  kernel.host_threads = 2;
  CHECK(kernel.clean());
  Kernel relaxed = pairs(
      3, write + "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;\n" + read + kMeet);
  relaxed.zeros(24);
  CHECK(relaxed.always_races());
  Kernel fenced = pairs(3, write +
                               "fence.acq_rel.cluster;\nbarrier.cluster.arrive.relaxed.aligned;\n"
                               "barrier.cluster.wait.aligned;\n" +
                               read + kMeet);
  fenced.zeros(24);
  CHECK(fenced.clean());
}

TEST_CASE("generic addresses reach the other block, too") {
  Kernel kernel = pairs(2, "@%p8 st.shared.u32 [%r7], %r1;\n" + std::string(kMeet) +
                               "cvt.u64.u32 %rd4, %r7;\ncvta.shared.u64 %rd4, %rd4;\n"
                               "mapa.u64 %rd5, %rd4, %r5;\n@%p8 ld.u32 %r9, [%rd5];\n"
                               "getctarank.u64 %r10, %rd5;\n"
                               "mul.wide.u32 %rd3, %r1, 4;\nadd.u64 %rd3, %rd3, %rd0;\n"
                               "@%p8 st.global.u32 [%rd3], %r9;\n" +
                               kMeet);
  kernel.zeros(16);
  REQUIRE(kernel.clean());
  for (std::uint32_t block = 0; block < 4; ++block)
    CHECK(kernel.read<std::uint32_t>(kernel.parameters[0] + 4 * block) == (block ^ 1));
}

TEST_CASE("a block that ends while its cluster needs its memory is reported") {
  Kernel kernel = pairs(2, "@%p8 st.shared.u32 [%r7], %r1;\n" + std::string(kMeet) +
                               "setp.eq.u32 %p1, %r2, 0;\n@%p1 ret;\nmov.u32 %r10, 0;\nL: add.u32 %r10, "
                               "%r10, 1;\nsetp.lt.u32 %p2, %r10, 20000;\n@%p2 bra L;\n"
                               "@%p8 ld.shared::cluster.u32 %r9, [%r3];\n");
  bool found = false;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) found = found || kernel.fault(seed).has_value();
  CHECK(found);
}

TEST_CASE("an mbarrier counts arrivals from another block, and orders them") {
  const std::string start =
      "@%p8 mbarrier.init.shared::cta.b64 [b], 1;\n"
      "fence.mbarrier_init.release.cluster;\n" +
      std::string(kMeet);
  const std::string send = "@%p8 st.shared::cluster.u32 [%r3], %r1;\n";
  const std::string arrive = "@%p8 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];\n";
  const std::string wait =
      "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [b], 0;\n@!%p1 bra W;\n";
  const std::string use = "ld.shared.u32 %r9, [%r7];\n";
  CHECK(pairs(3, start + send + arrive + wait + use + kMeet).clean());
  CHECK(pairs(3, start + send + arrive + use + kMeet).always_races());
  CHECK(pairs(1, start + send + wait + use + kMeet)
            .always(FaultKind::deadlock, {"phase 0 still needs 1 arrival"}));
}

TEST_CASE("the barrier of a cluster that a warp leaves out is reported") {
  CHECK(pairs(2,
              "setp.eq.u32 %p1, %r1, 1;\n@%p1 bra W;\nbarrier.cluster.arrive.aligned;\nW: "
              "barrier.cluster.wait.aligned;\n")
            .always(FaultKind::invalid_operation, {"has not arrived"}));
  CHECK(pairs(1, std::string("setp.eq.u32 %p1, %r1, 1;\n@%p1 bar.sync 1, 96;\n") + kMeet)
            .always(FaultKind::barrier_not_reached));
}

TEST_CASE("special registers say where a block is in its cluster") {
  Kernel kernel = pairs(3,
                        "mov.u32 %r9, %clusterid.x;\nmov.u32 %r10, %nclusterid.x;\nmov.u32 %r11, "
                        "%cluster_ctaid.x;\nmov.u32 %r12, %cluster_nctarank;\nmad.lo.u32 %r9, %r9, 1000, "
                        "%r11;\nmad.lo.u32 %r10, %r10, 100, %r12;\nadd.u32 %r9, %r9, %r10;\n"
                        "mul.wide.u32 %rd3, %r1, 4;\nadd.u64 %rd3, %rd3, %rd0;\n"
                        "@%p8 st.global.u32 [%rd3], %r9;\n");
  kernel.zeros(24);
  REQUIRE(kernel.clean());
  for (std::uint32_t block = 0; block < 6; ++block)
    CHECK(kernel.read<std::uint32_t>(kernel.parameters[0] + 4 * block) ==
          block / 2 * 1000 + block % 2 + 300 + 2);
}

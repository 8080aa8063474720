#include <doctest/doctest.h>

#include "kernel.h"

using namespace sparsekiln::emulator;

namespace {

constexpr const char* kShared = ".shared .align 16 .b8 s[1024];\n.shared .align 8 .b64 b[4];";

/// %r9 is the warp, %p9 whether a thread is the first of its warp, %p8 whether it is the first of all. An
/// mbarrier at b expects `count`.
Kernel warps(std::uint32_t number, std::uint32_t count, const std::string& body) {
  Kernel kernel(
      "shr.u32 %r9, %r0, 5;\nand.b32 %r8, %r0, 31;\nsetp.eq.u32 %p9, %r8, 0;\n"
      "setp.eq.u32 %p8, %r0, 0;\n@%p8 mbarrier.init.shared::cta.b64 [b], " +
          std::to_string(count) + ";\nbar.sync 0;\n" + body,
      kShared);
  kernel.threads = 32 * number;
  return kernel;
}

/// Waits for the phase of a parity in a loop, as kernels do.
std::string wait(const std::string& parity, const std::string& label) {
  return label + ": mbarrier.try_wait.parity.shared::cta.b64 %p1, [b], " + parity + ";\n@!%p1 bra " + label +
         ";\n";
}

constexpr const char* kProduce =
    "setp.eq.u32 %p0, %r9, 0;\n@!%p0 bra CONSUME;\nmov.u32 %r7, s;\nshl.b32 %r6, %r8, 2;\n"
    "add.u32 %r7, %r7, %r6;\nst.shared.u32 [%r7], %r0;\n";
constexpr const char* kConsume =
    "bra END;\nCONSUME: mov.u32 %r7, s;\nshl.b32 %r6, %r8, 2;\nadd.u32 %r7, %r7, %r6;\n";

}  // namespace

TEST_CASE("who waits for a phase of an mbarrier comes after those who arrived in it") {
  const std::string arrive = "mbarrier.arrive.shared::cta.b64 %rd5, [b];\n";
  const std::string read = "ld.shared.u32 %r5, [%r7];\nEND: ";
  CHECK(warps(2, 32, kProduce + arrive + kConsume + wait("0", "W") + read).clean());
  CHECK(warps(2, 32, kProduce + arrive + kConsume + read).always_races({"ld.shared.u32"}));
  const std::string relaxed = "mbarrier.arrive.relaxed.cta.shared::cta.b64 %rd5, [b];\n";
  CHECK(warps(2, 32, kProduce + relaxed + kConsume + wait("0", "W") + read).always_races());
}

TEST_CASE("a wait for the wrong parity is reported: what follows races, or it never ends") {
  Kernel kernel = warps(2, 32,
                        std::string(kProduce) + "mbarrier.arrive.shared::cta.b64 %rd5, [b];\n" + kConsume +
                            wait("1", "W") + "ld.shared.u32 %r5, [%r7];\nEND: ");
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) CHECK(kernel.fault(seed).has_value());
}

TEST_CASE("an mbarrier whose phase is never complete is reported with what it needs") {
  CHECK(warps(1, 33, "mbarrier.arrive.shared::cta.b64 %rd5, [b];\n" + wait("0", "W"))
            .always(FaultKind::deadlock, {"mbarrier", "phase 0 still needs 1 arrival and 0 bytes"}));
  CHECK(warps(1, 1,
              "@%p8 mbarrier.arrive.expect_tx.shared::cta.b64 %rd5, [b], 128;\n"
              "@%p8 mbarrier.complete_tx.relaxed.cluster.shared::cta.b64 [b], 64;\n" +
                  wait("0", "W"))
            .always(FaultKind::deadlock, {"phase 0 still needs 0 arrivals and 64 bytes"}));
}

TEST_CASE("of warps that wait for one another it is said which wait for which") {
  const auto arrive = [](const char* at) {
    return std::string("@%p9 mbarrier.arrive.shared::cta.b64 %rd5, [b+") + at + "];\n";
  };
  const auto until = [](const char* at, const char* parity, const char* label) {
    return std::string(label) + ": mbarrier.try_wait.parity.shared::cta.b64 %p1, [b+" + at + "], " + parity +
           ";\n@!%p1 bra " + label + ";\n";
  };
  // One place for x and one for W, at 0 and 16 those that are full, at 8 the one of x that is free: a
  // consumer that keeps its x until its next W is there waits for a producer that brings another x first.
  const char* const x = "0";
  const char* const free_x = "8";
  const char* const w = "16";
  Kernel kernel = warps(
      3, 1,
      "@%p8 mbarrier.init.shared::cta.b64 [b+8], 1;\n@%p8 mbarrier.init.shared::cta.b64 [b+16], 1;\n"
      "bar.sync 0;\nsetp.eq.u32 %p0, %r9, 2;\n@%p0 bra END;\nsetp.eq.u32 %p0, %r9, 1;\n@%p0 bra CONSUME;\n" +
          arrive(x) + arrive(w) + until(free_x, "0", "P0") + arrive(x) + until(free_x, "1", "P1") +
          arrive(w) + "bra END;\nCONSUME: " + until(x, "0", "C0") + until(w, "0", "C1") + arrive(free_x) +
          until(x, "1", "C2") + until(w, "1", "C3") + arrive(free_x) + "END: ");
  CHECK(kernel.always(FaultKind::deadlock,
                      {"warp 0 for the mbarrier", "for which warp 1 arrived the time before",
                       "warp 1 for the mbarrier", "for which warp 0 arrived the time before"}));
}

TEST_CASE("phases follow each other, by state and by parity") {
  Kernel kernel = warps(1, 32,
                        "mbarrier.arrive.shared::cta.b64 %rd5, [b];\n"
                        "S: mbarrier.try_wait.shared::cta.b64 %p1, [b], %rd5;\n@!%p1 bra S;\n"
                        "mbarrier.arrive.shared::cta.b64 %rd6, [b];\n" +
                            wait("1", "W") +
                            "mbarrier.pending_count.b64 %r5, %rd6;\nmbarrier.test_wait.shared::cta.b64 "
                            "%p2, [b], %rd6;\nselp.u32 %r6, 1, 0, %p2;\n@%p8 st.global.u32 [%rd0], %r6;\n");
  kernel.zeros(4);
  REQUIRE(kernel.clean());
  CHECK(kernel.read<std::uint32_t>(kernel.parameters[0]) == 1);
}

TEST_CASE("what an mbarrier forbids is reported") {
  CHECK(warps(1, 31,
              "mbarrier.arrive.shared::cta.b64 %rd5, [b];\nmbarrier.arrive.shared::cta.b64 %rd5, "
              "[b], 40;\n")
            .always(FaultKind::invalid_operation, {"arrives 40 times"}));
  CHECK(warps(1, 0, "").always(FaultKind::invalid_operation, {"an mbarrier for 0 arrivals"}));
  CHECK(warps(1, 1, "@%p8 st.shared.u64 [b+8], 0;\n@%p8 mbarrier.arrive.shared::cta.b64 %rd5, [b+8];\n")
            .always(FaultKind::invalid_operation, {"no mbarrier was initialized"}));
  CHECK(warps(1, 1, "@%p8 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [b], 1048576;\n")
            .always(FaultKind::invalid_operation, {"beyond 2^20 - 1"}));
}

TEST_CASE("an mbarrier is used only after its initialization is known of") {
  Kernel kernel(
      "setp.eq.u32 %p8, %r0, 0;\n@%p8 mbarrier.init.shared::cta.b64 [b], 1;\nsetp.eq.u32 %p7, "
      "%r0, 32;\n@%p7 mbarrier.arrive.shared::cta.b64 %rd5, [b];\n",
      kShared);
  kernel.threads = 64;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) CHECK(kernel.fault(seed).has_value());
}

TEST_CASE("copies that arrive at an mbarrier are complete for who waits for it") {
  const std::string copy =
      "setp.eq.u32 %p0, %r9, 0;\n@!%p0 bra CONSUME;\nmov.u32 %r7, s;\nshl.b32 %r6, %r8, 4;\n"
      "add.u32 %r7, %r7, %r6;\ncvt.u64.u32 %rd3, %r6;\nadd.u64 %rd3, %rd3, %rd0;\n"
      "cp.async.ca.shared.global [%r7], [%rd3], 16;\n";
  const std::string consume =
      "bra END;\nCONSUME: mov.u32 %r7, s;\nshl.b32 %r6, %r8, 4;\nadd.u32 %r7, %r7, %r6;\n" + wait("0", "W") +
      "ld.shared.u32 %r5, [%r7];\nEND: ";
  for (const std::string arrival : {"cp.async.mbarrier.arrive.noinc.shared::cta.b64 [b];\n",
                                    "cp.async.mbarrier.arrive.shared::cta.b64 [b];\n"
                                    "mbarrier.arrive.shared::cta.b64 %rd5, [b];\n"}) {
    Kernel kernel = warps(2, 32, copy + arrival + consume);
    kernel.zeros(512);
    CHECK(kernel.clean());
  }
  Kernel early = warps(2, 32, copy + "mbarrier.arrive.shared::cta.b64 %rd5, [b];\n" + consume);
  early.zeros(512);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) CHECK(early.fault(seed).has_value());
}

#include <doctest/doctest.h>

#include <set>
#include <string>

#include "kernel.h"

using namespace sparsekiln::emulator;

namespace {

/// A is 64 × 16 of f16 at s, B 16 × 8 at s + 4096, both K-major without a swizzle; 8 rows are 128 bytes, and
/// the next 8 of k are 2048 bytes further on.

std::uint64_t descriptor(std::uint64_t offset) {
  return (1024 + offset) >> 4 | std::uint64_t{2048 >> 4} << 16 | std::uint64_t{128 >> 4} << 32;
}

const std::string kRegisters = ".reg .b32 %d<8>;\n.reg .b32 %e<8>;\n.reg .b32 %a<4>;\nmov.b64 %rd5, " +
                               std::to_string(descriptor(0)) + ";\nmov.b64 %rd6, " +
                               std::to_string(descriptor(4096)) +
                               ";\nmov.pred %p0, 1;\nshr.u32 %r9, %r0, 5;\nmov.u32 %r10, 0;\n" +
                               "mov.b32 %d0, 0;\nmov.b32 %d1, 0;\nmov.b32 %d2, 0;\nmov.b32 %d3, 0;\n"
                               "mov.b32 %d4, 0;\nmov.b32 %d5, 0;\nmov.b32 %d6, 0;\nmov.b32 %d7, 0;\n";

/// Every thread writes 64 bytes, the value in %r10.
const std::string kFill =
    "mov.u32 %r11, s;\nshl.b32 %r12, %r0, 4;\nadd.u32 %r11, %r11, %r12;\n"
    "st.shared.v4.b32 [%r11], {%r10, %r10, %r10, %r10};\nst.shared.v4.b32 [%r11+2048], {%r10, %r10, %r10, "
    "%r10};\n"
    "st.shared.v4.b32 [%r11+4096], {%r10, %r10, %r10, %r10};\n"
    "st.shared.v4.b32 [%r11+6144], {%r10, %r10, %r10, %r10};\n";
const std::string kVisible = "fence.proxy.async;\nbar.sync 0;\n";
const std::string kFence = "wgmma.fence.sync.aligned;\n";
const std::string kCommit = "wgmma.commit_group.sync.aligned;\n";
const std::string kStore =
    "shl.b32 %r13, %r0, 2;\ncvt.u64.u32 %rd7, %r13;\nadd.s64 %rd7, %rd0, %rd7;\nst.global.b32 [%rd7], ";

std::string multiply(const std::string& sums = "{%d0, %d1, %d2, %d3}", const std::string& a = "%rd5",
                     const std::string& trans = "0, 0") {
  return "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 " + sums + ", " + a + ", %rd6, %p0, 1, 1, " +
         trans + ";\n";
}
std::string multiply_registers() { return multiply("{%d0, %d1, %d2, %d3}", "{%a0, %a1, %a2, %a3}", "0"); }
std::string wait(int pending) { return "wgmma.wait_group.sync.aligned " + std::to_string(pending) + ";\n"; }

Kernel kernel_of(const std::string& body) {
  Kernel kernel(kRegisters + body, ".shared .align 1024 .b8 s[8192];");
  kernel.threads = 128;
  static_cast<void>(kernel.zeros(4096));
  return kernel;
}
Kernel after_fill(const std::string& body) { return kernel_of(kFill + kVisible + body); }

}  // namespace

TEST_CASE("accumulators may be read after a wait for their group") {
  CHECK(after_fill(kFence + multiply() + kCommit + wait(0) + kStore + "%d0;\n").clean());
  CHECK(after_fill(kFence + multiply() + kCommit + multiply("{%d4, %d5, %d6, %d7}") + kCommit + wait(1) +
                   kStore + "%d0;\n")
            .clean());
}

TEST_CASE("an accumulator that is accessed before its wait is found") {
  const auto found = [](const std::string& body) {
    return after_fill(body).always(FaultKind::registers_not_awaited, {"accumulator", "wgmma.mma_async"});
  };
  CHECK(found(kFence + multiply() + kCommit + kStore + "%d0;\n"));
  CHECK(found(kFence + multiply() + kCommit + wait(1) + kStore + "%d3;\n"));
  CHECK(found(kFence + multiply() + kCommit + wait(1) + "mov.b32 %d1, 0;\n"));
  CHECK(found(kFence + multiply() + kCommit + "@%p1 add.f32 %d1, %d1, %d1;\n@!%p1 add.f32 %d1, %d1, %d1;\n"));
  CHECK(found(kFence + multiply() + kCommit + multiply("{%d4, %d5, %d6, %d7}") + kCommit + wait(1) + kStore +
              "%d4;\n"));
}

TEST_CASE("a wait does not end a wgmma that no group has") {
  CHECK(after_fill(kFence + multiply() + wait(0) + kStore + "%d0;\n")
            .always(FaultKind::registers_not_awaited, {"not committed"}));
  CHECK(after_fill(kFence + kCommit + multiply() + wait(0) + kStore + "%d0;\n")
            .always(FaultKind::registers_not_awaited, {"not committed"}));
}

TEST_CASE("a missing wgmma.fence is found") {
  const std::string end = kCommit + wait(0) + kStore + "%d0;\n";
  const auto found = [](const std::string& body) {
    return after_fill(body).always(FaultKind::registers_not_fenced, {"wgmma.fence"});
  };
  CHECK(found(multiply() + end));
  CHECK(found(kFence + "mov.b32 %d2, 0;\n" + multiply() + end));
  CHECK(found(kFence + multiply() + kCommit + wait(0) + "add.f32 %d0, %d0, %d0;\n" + multiply() + end));
  CHECK(found(kFence + "mov.b32 %a0, 0;\nmov.b32 %a1, 0;\nmov.b32 %a2, 0;\nmov.b32 %a3, 0;\n" +
              multiply_registers() + end));
  CHECK(after_fill("mov.b32 %a0, 0;\nmov.b32 %a1, 0;\nmov.b32 %a2, 0;\nmov.b32 %a3, 0;\n" + kFence +
                   multiply_registers() + multiply_registers() + end)
            .clean());
}

TEST_CASE("wgmmas of one shape may use an accumulator in a row, others need a fence") {
  const std::string end = kCommit + wait(0) + kStore + "%d0;\n";
  const std::string wide =
      "wgmma.mma_async.sync.aligned.m64n16k16.f16.f16.f16 {%d0, %d1, %d2, %d3}, %rd5, %rd6, %p0, 1, 1, 0, "
      "0;\n";
  CHECK(after_fill(kFence + multiply() + multiply() + kCommit + multiply() + end).clean());
  CHECK(after_fill(kFence + multiply() + wide + end)
            .always(FaultKind::registers_not_fenced, {"another shape", "m64n8k16"}));
  CHECK(after_fill(kFence + multiply() + kFence + wide + end).clean());
}

TEST_CASE("the registers of A may not be written before the wait") {
  const std::string start = "mov.b32 %a0, 0;\nmov.b32 %a1, 0;\nmov.b32 %a2, 0;\nmov.b32 %a3, 0;\n" + kFence +
                            multiply_registers() + kCommit;
  CHECK(after_fill(start + "mov.b32 %a1, 7;\n" + wait(0))
            .always(FaultKind::registers_not_awaited, {"register of A"}));
  CHECK(after_fill(start + wait(0) + "mov.b32 %a1, 7;\n").clean());
}

TEST_CASE("a mov gives a register another name, for which the same rules hold") {
  const std::string copy = "mov.b32 %e0, %d0;\nmov.b32 %e1, %d1;\nmov.b32 %e2, %d2;\nmov.b32 %e3, %d3;\n";
  const std::string again = multiply("{%e0, %e1, %e2, %e3}") + kCommit;
  CHECK(after_fill(kFence + multiply() + kCommit + copy + again + wait(0) + kStore + "%e0;\n").clean());
  CHECK(after_fill(kFence + copy + again + wait(0) + kStore + "%e0;\n").clean());
  CHECK(after_fill(kFence + multiply() + kCommit + copy + kStore + "%e0;\n")
            .always(FaultKind::registers_not_awaited));
  CHECK(after_fill(kFence + "mov.b32 %d0, 0;\n" + copy + again).always(FaultKind::registers_not_fenced));
  CHECK(after_fill(kFence + copy + again + "mov.b32 %e1, %d1;\n").always(FaultKind::registers_not_awaited));
}

TEST_CASE("copies of accumulators have their values") {
  Kernel kernel = kernel_of("mov.u32 %r10, 0x3c003c00;\n" + kFill + kVisible + kFence + multiply() + kCommit +
                            "mov.b32 %e1, %d1;\n" + wait(0) + kStore + "%e1;\n");
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    static_cast<void>(kernel.run(seed));
    CHECK(kernel.read<float>(kernel.parameters[0]) == 16.0f);
  }
}

TEST_CASE("a wgmma that reads what threads wrote without a proxy fence is a race") {
  const std::string rest = kFence + multiply() + kCommit + wait(0);
  CHECK(kernel_of(kFill + "bar.sync 0;\n" + rest).always(FaultKind::race, {"fence.proxy.async"}));
  CHECK(kernel_of(kFill + "fence.proxy.async;\n" + rest).always_races());
  CHECK(kernel_of("mov.u32 %r11, s;\n" + rest).always(FaultKind::unwritten_read));
}

TEST_CASE("each warp of a warpgroup must wait for what a wgmma reads") {
  // A is in registers, B is the same for all. Warp 4 fills the matrices, 256 bytes a thread; an mbarrier
  // tells the others, of which `some` look at it.
  const auto kernel = [](const std::string& some) {
    std::string fill =
        "sub.u32 %r12, %r0, 128;\nshl.b32 %r12, %r12, 8;\nmov.u32 %r11, s;\nadd.u32 %r11, %r11, %r12;\n";
    for (int at = 0; at < 256; at += 16)
      fill += "st.shared.v4.b32 [%r11+" + std::to_string(at) + "], {%r10, %r10, %r10, %r10};\n";
    Kernel made(
        kRegisters + "setp.eq.u32 %p1, %r0, 0;\n@%p1 mbarrier.init.shared::cta.b64 [b], 32;\nbar.sync 0;\n" +
            "setp.gt.u32 %p1, %r0, 127;\n@%p1 bra FILL;\n" + some + "@%p2 bra MULTIPLY;\n" +
            "W: mbarrier.try_wait.parity.shared::cta.b64 %p3, [b], 0;\n@!%p3 bra W;\nMULTIPLY: " + kFence +
            multiply_registers() + kCommit + wait(0) + "bra END;\nFILL: " + fill +
            "fence.proxy.async;\nmbarrier.arrive.shared::cta.b64 %rd8, [b];\nEND: ",
        ".shared .align 1024 .b8 s[8192];\n.shared .align 8 .b64 b;");
    made.threads = 160;
    static_cast<void>(made.zeros(64));
    return made;
  };
  // The warp that does not wait comes after the others.
  const std::string late =
      "mov.u32 %r20, 0;\n@!%p2 bra GO;\nLATE: add.u32 %r20, %r20, 1;\nsetp.lt.u32 %p4, %r20, 5000;\n@%p4 bra "
      "LATE;\n"
      "GO: ";
  CHECK(kernel("mov.pred %p2, 0;\n" + late).clean());
  for (int warp = 0; warp < 4; ++warp)
    CHECK(kernel("setp.eq.u32 %p2, %r9, " + std::to_string(warp) + ";\n" + late).always_races());
}

TEST_CASE("what a wgmma reads may be overwritten after the wait for it alone") {
  CHECK(after_fill(kFence + multiply() + kCommit + "bar.sync 0;\n" + kFill).always(FaultKind::race));
  CHECK(
      after_fill(kFence + multiply() + kCommit + wait(1) + "bar.sync 0;\n" + kFill).always(FaultKind::race));
  CHECK(
      after_fill(kFence + multiply() + kCommit + wait(0) + kFill).clean());  // the others have issued it, too
  CHECK(after_fill(kFence + multiply() + kCommit + wait(0) + "bar.sync 0;\n" + kFill).clean());
}

TEST_CASE("a wgmma reads memory when it is issued or as late as the wait") {
  // 1 in f16, then 2: the sums of 16 products are 16 or 64.
  Kernel kernel =
      kernel_of("mov.u32 %r10, 0x3c003c00;\n" + kFill + kVisible + kFence + multiply() + kCommit +
                "bar.sync 0;\nmov.u32 %r10, 0x40004000;\n" + kFill + kVisible + wait(0) + kStore + "%d0;\n");
  kernel.checks.races = false;
  std::set<float> results;
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    static_cast<void>(kernel.run(seed));
    results.insert(kernel.read<float>(kernel.parameters[0]));
  }
  CHECK(results.count(16.0f) == 1);
  CHECK(results.count(64.0f) == 1);
}

TEST_CASE("the warps of a warpgroup execute the same wgmmas with the same operands") {
  const std::string end = kCommit + wait(0);
  const std::string third = "setp.eq.u32 %p1, %r9, 2;\n";
  const auto found = [](const std::string& body, std::string_view text) {
    return after_fill(body).always(FaultKind::invalid_operation, {text});
  };
  CHECK(found(third + "@%p1 add.s64 %rd6, %rd6, 1;\n" + kFence + multiply() + end, "descriptor of B"));
  CHECK(found(third + "@%p1 mov.pred %p0, 0;\n" + kFence + multiply() + end, "scale-d"));
  CHECK(found(third + kFence + "@%p1 bra SKIP;\n" + multiply() + "SKIP: " + end, "same order"));
  CHECK(found(third + "@%p1 bra END;\n" + kFence + multiply() + end + "END: ", "ended"));
  CHECK(found(
      "and.b32 %r14, %r0, 1;\ncvt.u64.u32 %rd8, %r14;\nadd.s64 %rd6, %rd6, %rd8;\n" + kFence + multiply(),
      "all lanes"));
}

TEST_CASE("a wgmma needs whole warps and a whole warpgroup") {
  Kernel three = kernel_of(kFence + multiply());
  three.threads = 96;
  CHECK(three.always(FaultKind::invalid_operation, {"whole warpgroup"}));
  CHECK(after_fill("setp.eq.u32 %p1, %r0, 5;\n@%p1 bra L;\n" + kFence + "L: bar.sync 0;\n")
            .always(FaultKind::invalid_operation, {"32 lanes"}));
}

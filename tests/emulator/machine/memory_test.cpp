#include <doctest/doctest.h>

#include "kernel.h"

using namespace sparsekiln::emulator;

namespace {

/// %rd3 = p0 + 4 · thread
constexpr const char* kOwnWord = "mul.wide.u32 %rd3, %r0, 4;\nadd.s64 %rd3, %rd0, %rd3;\n";

Kernel own_word(const std::string& body, const std::string& declarations = {}) {
  return Kernel(kOwnWord + body, declarations);
}

}  // namespace

TEST_CASE("a kernel stores what it computes") {
  Kernel kernel = own_word("mul.lo.u32 %r2, %r0, 3;\nst.global.u32 [%rd3], %r2;");
  const std::uint64_t y = kernel.unwritten(128);
  (void)kernel.run();
  for (std::uint32_t i = 0; i < 32; ++i) CHECK(kernel.read<std::uint32_t>(y + 4 * i) == 3 * i);
}

TEST_CASE("all blocks of a grid run, on several host threads as on one") {
  Kernel kernel = own_word(
      "mov.u32 %r2, %ntid.x;\nmad.lo.u32 %r3, %r1, %r2, %r0;\nmul.wide.u32 %rd4, %r3, 4;\nadd.s64 %rd4, "
      "%rd0, %rd4;\n"
      "mov.u32 %r4, 0;\nLOOP: add.u32 %r4, %r4, 1;\nsetp.lt.u32 %p0, %r4, 500;\n@%p0 bra LOOP;\n"
      "st.global.u32 [%rd4], %r3;");
  kernel.blocks = 64;
  kernel.threads = 96;
  const std::uint64_t y = kernel.unwritten(64 * 96 * 4);
  for (const int threads : {1, 3}) {
    kernel.host_threads = threads;
    REQUIRE(kernel.clean());
    for (std::uint32_t i = 0; i < 64 * 96; ++i) REQUIRE(kernel.read<std::uint32_t>(y + 4 * i) == i);
  }
}

TEST_CASE("a read past the end of an allocation says how far past which end") {
  Kernel kernel = own_word("ld.global.u32 %r2, [%rd3+16];");
  kernel.zeros(128);
  CHECK(kernel.always(
      FaultKind::out_of_bounds,
      {"reads 4 bytes at 0x70000000080", "0 bytes after the allocation of 128 bytes at 0x70000000000",
       "thread (28,0,0)", "ld.global.u32 %r2, [%rd3+16];", "PTX line"}));
}

TEST_CASE("reads to the end of an allocation are clean") {
  Kernel kernel = own_word("ld.global.u32 %r2, [%rd3];");
  kernel.zeros(128);
  CHECK(kernel.clean());
}

TEST_CASE("an access that begins inside and ends outside of an allocation is out of bounds") {
  Kernel kernel("ld.global.u64 %rd4, [%rd0+8];");
  kernel.zeros(12);
  CHECK(kernel.always(FaultKind::out_of_bounds));
}

TEST_CASE("lanes may read from several allocations at once") {
  Kernel kernel = own_word(
      "setp.lt.u32 %p0, %r0, 16;\nselp.b64 %rd4, %rd0, %rd1, %p0;\nld.global.u32 %r2, [%rd4];\nst.global.u32 "
      "[%rd3+128], %r2;");
  kernel.zeros(256);
  const std::uint64_t other = kernel.zeros(64);
  const std::uint32_t seven = 7;
  kernel.memory().write(other, &seven, 4);
  (void)kernel.run();
  CHECK(kernel.read<std::uint32_t>(kernel.parameters[0] + 128 + 15 * 4) == 0);
  CHECK(kernel.read<std::uint32_t>(kernel.parameters[0] + 128 + 16 * 4) == 7);
}

TEST_CASE("lanes whose guard is false access nothing") {
  Kernel kernel = own_word("setp.lt.u32 %p0, %r0, 4;\n@%p0 st.global.u32 [%rd3], %r0;");
  kernel.zeros(16);
  CHECK(kernel.clean());
}

TEST_CASE("a misaligned access is a fault in every space") {
  Kernel global("ld.global.u32 %r2, [%rd0+2];");
  global.zeros(16);
  CHECK(global.always(FaultKind::misaligned, {"no multiple of 4"}));
  Kernel vector("ld.global.v2.u32 {%r2, %r3}, [%rd0+4];");
  vector.zeros(16);
  CHECK(vector.always(FaultKind::misaligned, {"no multiple of 8"}));
  Kernel shared("mov.u32 %r2, s;\nld.shared.u64 %rd4, [%r2+4];", ".shared .align 16 .b8 s[64];");
  CHECK(shared.always(FaultKind::misaligned));
  Kernel local(".local .align 4 .b8 l[16];\nst.local.u32 [l+1], %r0;");
  CHECK(local.always(FaultKind::misaligned));
}

TEST_CASE("shared memory ends where the block's ends") {
  const std::string address = "shl.b32 %r2, %r0, 2;\nmov.u32 %r3, s;\nadd.u32 %r2, %r2, %r3;\n";
  Kernel inside(address + "st.shared.u32 [%r2], %r0;", ".shared .align 16 .b8 s[128];");
  CHECK(inside.clean());
  Kernel outside(address + "st.shared.u32 [%r2+4], %r0;", ".shared .align 16 .b8 s[128];");
  CHECK(outside.always(FaultKind::out_of_bounds,
                       {"thread (31,0,0)", "shared memory, of which the block has 128"}));
  Kernel null("mov.u32 %r2, 0;\nst.shared.u32 [%r2], %r0;", ".shared .align 16 .b8 s[128];");
  CHECK(null.always(FaultKind::out_of_bounds));
}

TEST_CASE("dynamic shared memory is as large as the launch says") {
  Kernel kernel("shl.b32 %r2, %r0, 2;\nmov.u32 %r3, s;\nadd.u32 %r2, %r2, %r3;\nst.shared.u32 [%r2], %r0;",
                ".extern .shared .align 16 .b8 s[];");
  kernel.dynamic_shared = 128;
  CHECK(kernel.clean());
  kernel.dynamic_shared = 124;
  CHECK(kernel.always(FaultKind::out_of_bounds));
}

TEST_CASE("global memory that nothing wrote is not read") {
  Kernel reads = own_word("ld.global.u32 %r2, [%rd3];");
  reads.unwritten(128);
  const std::uint32_t values[31] = {};
  reads.memory().write(reads.parameters[0], values, sizeof values);
  std::string report;
  try {
    (void)reads.run();
  } catch (const Fault& fault) {
    report = fault.what();
    CHECK(fault.kind() == FaultKind::unwritten_read);
  }
  CHECK(report.find("thread (31,0,0)") != std::string::npos);
  CHECK(report.find("nothing has written the byte at 0x7000000007c") != std::string::npos);

  Kernel writes_first = own_word("st.global.u32 [%rd3], %r0;\nld.global.u32 %r2, [%rd3];");
  writes_first.unwritten(128);
  CHECK_NOTHROW((void)writes_first.run());
}

TEST_CASE("an atomic reads what it updates") {
  Kernel kernel("atom.global.add.u32 %r2, [%rd0], 1;");
  kernel.unwritten(4);
  CHECK_THROWS_AS((void)kernel.run(), Fault);
}

TEST_CASE("shared memory is unwritten when a block starts") {
  const std::string store = "setp.eq.u32 %p0, %r1, 0;\n@%p0 st.shared.u32 [s], %r0;\n";
  Kernel kernel("setp.ne.u32 %p1, %r0, 0;\n@%p1 ret;\n" + store + "ld.shared.u32 %r2, [s];",
                ".shared .align 4 .b8 s[4];");
  CHECK(kernel.clean());
  kernel.blocks = 2;
  CHECK(kernel.always(FaultKind::unwritten_read, {"block (1,0,0)"}));
}

TEST_CASE("unwritten bytes are detected in a partly written word") {
  Kernel kernel(
      "setp.ne.u32 %p1, %r0, 0;\n@%p1 ret;\nmov.u16 %h0, 1;\nst.shared.u16 [s], %h0;\nst.shared.u8 [s+2], "
      "%h0;\n"
      "ld.shared.u32 %r2, [s];",
      ".shared .align 4 .b8 s[4];");
  CHECK(kernel.always(FaultKind::unwritten_read, {"byte at 0x403"}));
}

TEST_CASE("constant memory can only be read, up to its end") {
  GlobalMemory memory(1 << 20);
  Allocation* const constant = memory.allocate(16, true, "c");
  REQUIRE(constant != nullptr);
  CHECK(constant->address >= kConstantBase);
  CHECK(constant->address < kGlobalBase);
  Kernel kernel("ld.const.u32 %r2, [%rd0];");
  const std::uint64_t address = kernel.memory().allocate(16, true, "c")->address;
  kernel.parameters = {address + 12};
  CHECK_NOTHROW((void)kernel.run());
  kernel.parameters = {address + 16};
  CHECK_THROWS_WITH_AS((void)kernel.run(), doctest::Contains("0 bytes after c of 16 bytes"), Fault);
  Kernel as_global("ld.global.u32 %r2, [%rd0];");
  as_global.parameters = {as_global.memory().allocate(16, true, "c")->address};
  CHECK_THROWS_AS((void)as_global.run(), Fault);
}

TEST_CASE("a generic address reaches shared memory through its window") {
  Kernel kernel(
      "setp.ne.u32 %p1, %r0, 0;\n@%p1 ret;\nmov.u32 %r2, 5;\nst.shared.u32 [s], %r2;\nmov.u64 %rd4, "
      "s;\ncvta.shared.u64 "
      "%rd4, %rd4;\nld.u32 %r3, [%rd4];\nst.u32 [%rd0], %r3;",
      ".shared .align 4 .b8 s[4];");
  kernel.zeros(4);
  REQUIRE(kernel.clean());
  CHECK(kernel.read<std::uint32_t>(kernel.parameters[0]) == 5);
}

TEST_CASE("checks can be switched off, except for bounds") {
  Kernel kernel = own_word("ld.global.u32 %r2, [%rd3];");
  kernel.unwritten(128);
  kernel.checks = {.unwritten = false, .races = false, .counters = false};
  CHECK_NOTHROW((void)kernel.run());
  kernel.threads = 64;
  CHECK_THROWS_AS((void)kernel.run(), Fault);
}

TEST_CASE("what a launch without the check wrote counts as written later") {
  Kernel kernel = own_word("@%p0 st.global.u32 [%rd3], %r0;\nst.global.u32 [%rd3], %r0;");
  kernel.unwritten(128);
  kernel.checks.unwritten = false;
  (void)kernel.run();
  Kernel reader = own_word("ld.global.u32 %r2, [%rd3];");
  std::uint32_t value = 0;
  CHECK(kernel.memory().read(kernel.parameters[0] + 4, &value, 4));
  CHECK(value == 1);
}

TEST_CASE("memory counts what it holds and gives back") {
  GlobalMemory memory(4096);
  Allocation* const a = memory.allocate(1000);
  REQUIRE(a != nullptr);
  CHECK(a->address % 256 == 0);
  CHECK(memory.used() == 1000);
  CHECK(memory.allocate(4000) == nullptr);
  Allocation* const b = memory.allocate(3096);
  REQUIRE(b != nullptr);
  CHECK(b->address - (a->address + a->bytes) >= (1u << 20));
  CHECK(memory.find(a->address + 999) == a);
  CHECK(memory.find(a->address + 1000) == nullptr);
  CHECK_FALSE(memory.release(a->address + 1));
  CHECK(memory.release(a->address));
  CHECK(memory.allocations() == 1);
  CHECK(memory.used() == 3096);
}

#include <doctest/doctest.h>

#include "kernel.h"

using namespace sparsekiln::emulator;

namespace {

constexpr const char* kShared = ".shared .align 16 .b8 s[2048];";
/// %r2 = s + 16 · thread, %rd3 = p0 + 16 · thread, %rd4 = p1 + 16 · thread
constexpr const char* kAddresses =
    "mov.u32 %r9, s;\nshl.b32 %r2, %r0, 4;\nadd.u32 %r2, %r2, %r9;\nmul.wide.u32 %rd4, %r0, 16;\nadd.s64 "
    "%rd3, %rd0, %rd4;\nadd.s64 %rd4, %rd1, %rd4;\n";
constexpr const char* kCopy = "cp.async.cg.shared.global [%r2], [%rd3], 16;\n";
constexpr const char* kRead =
    "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r2];\nst.global.v4.u32 [%rd4], {%r4, %r5, %r6, %r7};\n";

Kernel copies(const std::string& body, std::uint32_t threads = 64) {
  Kernel kernel(kAddresses + body, kShared);
  kernel.threads = threads;
  kernel.zeros(2048);
  kernel.zeros(2048);
  return kernel;
}

std::string text(std::initializer_list<const char*> parts) {
  std::string result;
  for (const char* part : parts) result += part;
  return result;
}

}  // namespace

TEST_CASE("copied data are readable after the wait") {
  Kernel kernel = copies(text({kCopy, "cp.async.commit_group;\ncp.async.wait_group 0;\n", kRead}));
  std::vector<std::uint32_t> values(512);
  for (std::uint32_t i = 0; i < 512; ++i) values[i] = i * 7;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    kernel.memory().write(kernel.parameters[0], values.data(), 2048);
    REQUIRE_NOTHROW((void)kernel.run(seed));
    for (std::uint64_t i = 0; i < 256; ++i)
      CHECK(kernel.read<std::uint32_t>(kernel.parameters[1] + 4 * i) == values[i]);
  }
}

TEST_CASE("a read before the wait is a fault, whether or not the data are there") {
  CHECK(copies(text({kCopy, "cp.async.commit_group;\n", kRead}))
            .always(FaultKind::copy_not_awaited, {"cp.async.cg.shared.global", "ld.shared.v4"}));
  CHECK(copies(text({kCopy, "cp.async.wait_group 0;\n", kRead})).always(FaultKind::copy_not_awaited));
  CHECK(copies(text({kCopy, "cp.async.wait_all;\n", kRead})).clean());
}

TEST_CASE("a wait for all groups but one leaves the last on its way") {
  const std::string first = text({kCopy, "cp.async.commit_group;\n"});
  const std::string second = "cp.async.cg.shared.global [%r2+1024], [%rd3], 16;\ncp.async.commit_group;\n";
  CHECK(copies(text({first.c_str(), second.c_str(), "cp.async.wait_group 1;\n", kRead})).clean());
  CHECK(copies(text({second.c_str(), first.c_str(), "cp.async.wait_group 1;\n", kRead}))
            .always(FaultKind::copy_not_awaited));
  CHECK(copies(text({first.c_str(), "cp.async.commit_group;\ncp.async.wait_group 1;\n", kRead})).clean());
}

TEST_CASE("another thread needs a barrier after the wait") {
  const std::string other = "xor.b32 %r3, %r0, 32;\nshl.b32 %r3, %r3, 4;\nadd.u32 %r3, %r3, %r9;\n";
  const std::string read = "ld.shared.u32 %r4, [%r3];\n";
  CHECK(copies(text({other.c_str(), kCopy, "cp.async.wait_all;\nbar.sync 0;\n", read.c_str()})).clean());
  Kernel early = copies(text({other.c_str(), kCopy, "bar.sync 0;\ncp.async.wait_all;\n", read.c_str()}));
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) CHECK(early.fault(seed).has_value());
}

TEST_CASE("a write to where a copy is on its way is a fault") {
  CHECK(copies(text({kCopy, "st.shared.u32 [%r2], %r0;"})).always(FaultKind::copy_overwritten));
  CHECK(copies(text({kCopy, kCopy})).always(FaultKind::copy_overwritten));
  CHECK(copies(text({kCopy, "cp.async.wait_all;\nst.shared.u32 [%r2], %r0;"})).clean());
}

TEST_CASE("a write to the source of a pending copy is a race, also after a barrier") {
  const char* const kStore = "st.global.u32 [%rd3+4], %r0;\n";
  const auto race = [](std::initializer_list<const char*> parts) {
    return copies(text(parts)).always(FaultKind::race, {"st.global.u32", "may still be reading", "cp.async"});
  };
  CHECK(race({kCopy, kStore, "cp.async.wait_all;"}));
  CHECK(race({kCopy, "cp.async.commit_group;\n", kStore, "cp.async.wait_group 0;"}));
  CHECK(copies(text({kCopy, "cp.async.wait_all;\n", kStore})).clean());
  CHECK(copies(text({kStore, kCopy, "cp.async.wait_all;"})).clean());
  // A write next to the source, or to a part that a short copy does not read, is no race.
  CHECK(
      copies(text({"cp.async.ca.shared.global [%r2], [%rd3], 4;\n", kStore, "cp.async.wait_all;"})).clean());
  CHECK(copies(text({"cp.async.cg.shared.global [%r2], [%rd3], 16, 4;\n", kStore, "cp.async.wait_all;"}))
            .clean());
  // Thread 32 writes what thread 0 copies, after a barrier that thread 0 reached before its wait: the seeds
  // under which the write comes first detect it.
  const char* const kOther = "setp.eq.u32 %p0, %r0, 32;\n@%p0 st.global.u32 [%rd0], %r0;\n";
  Kernel behind = copies(text({kCopy, "bar.sync 0;\n", kOther, "cp.async.wait_all;"}));
  int found = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::optional<Fault> fault = behind.fault(seed);
    if (!fault) continue;
    CHECK(fault->kind() == FaultKind::race);
    ++found;
  }
  CHECK(found > 0);
  CHECK(copies(text({kCopy, "cp.async.wait_all;\nbar.sync 0;\n", kOther})).clean());
}

TEST_CASE("a copy to what other warps still read is a race") {
  const std::string begin = text({kCopy,
                                  "cp.async.wait_all;\nbar.sync 0;\nxor.b32 %r3, %r0, 32;\nshl.b32 %r3, %r3, "
                                  "4;\nadd.u32 %r3, %r3, %r9;\nld.shared.u32 %r4, [%r3];\n"});
  Kernel races = copies(begin + kCopy);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::optional<Fault> fault = races.fault(seed);
    REQUIRE(fault.has_value());
    CHECK((fault->kind() == FaultKind::race || fault->kind() == FaultKind::copy_not_awaited));
  }
  CHECK(copies(begin + "bar.sync 0;\n" + kCopy).clean());
}

TEST_CASE("what a short source leaves out becomes zero and is not read") {
  Kernel kernel =
      copies(text({"setp.lt.u32 %p0, %r0, 8;\nselp.b32 %r8, 16, 4, %p0;\ncp.async.cg.shared.global [%r2], "
                   "[%rd3], 16, %r8;\ncp.async.wait_all;\n",
                   kRead}),
             32);
  kernel.parameters[0] = kernel.memory().allocate(2048)->address;
  const std::vector<std::uint32_t> ones(512, 1);
  for (std::uint64_t row = 0; row < 32; ++row)
    kernel.memory().write(kernel.parameters[0] + 16 * row, ones.data(), row < 8 ? 16 : 4);
  REQUIRE_NOTHROW((void)kernel.run());
  CHECK(kernel.read<std::uint32_t>(kernel.parameters[1] + 7 * 16 + 12) == 1);
  CHECK(kernel.read<std::uint32_t>(kernel.parameters[1] + 8 * 16) == 1);
  CHECK(kernel.read<std::uint32_t>(kernel.parameters[1] + 8 * 16 + 4) == 0);
}

TEST_CASE("a copy of nothing reads nowhere") {
  Kernel kernel(
      "mov.u32 %r9, s;\nshl.b32 %r2, %r0, 4;\nadd.u32 %r2, %r2, %r9;\nmov.u64 %rd3, 64;\nmov.u32 %r8, "
      "0;\ncp.async.cg.shared.global [%r2], [%rd3], 16, %r8;\ncp.async.wait_all;\nld.shared.u32 %r4, [%r2];",
      kShared);
  CHECK(kernel.clean());
}

TEST_CASE("the source of a copy is checked") {
  CHECK(copies("cp.async.cg.shared.global [%r2], [%rd3+1040], 16;")
            .always(FaultKind::out_of_bounds, {"reads 16 bytes"}));
  CHECK(copies("cp.async.cg.shared.global [%r2], [%rd3+8], 16;").always(FaultKind::misaligned));
  Kernel unwritten = copies(kCopy);
  unwritten.parameters[0] = unwritten.memory().allocate(2048)->address;
  CHECK_THROWS_WITH_AS((void)unwritten.run(), doctest::Contains("nothing has written"), Fault);
}

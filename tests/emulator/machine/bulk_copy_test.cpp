#include <doctest/doctest.h>

#include <bit>

#include "bulk_kernel.h"

using namespace sparsekiln::emulator;

namespace {

using Words = std::vector<std::uint32_t>;

constexpr const char* kLoad =
    "@%p8 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r9], [%rd0], 1024, [%r8];\n";
constexpr const char* kStore = "@%p8 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r9], 1024;\n";
constexpr const char* kCommit = "@%p8 cp.async.bulk.commit_group;\n";
constexpr const char* kWait = "@%p8 cp.async.bulk.wait_group 0;\n";
constexpr const char* kWaitRead = "@%p8 cp.async.bulk.wait_group.read 0;\n";
constexpr const char* kHandOver = "fence.proxy.async.shared::cta;\nbar.sync 0;\n";
constexpr const char* kMeet = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n";

const std::string& load_and_wait() {
  static const std::string text = BulkKernel::expect(1024) + kLoad + BulkKernel::wait();
  return text;
}

/// Shared memory holds `from`, for the async proxy.
const std::string& filled() {
  static const std::string text = BulkKernel::copy_in(256) + kHandOver;
  return text;
}

BulkKernel kernel(const std::string& body) { return BulkKernel(body); }

}  // namespace

TEST_CASE("a bulk load brings its bytes before the mbarrier says so") {
  CHECK(kernel(load_and_wait() + BulkKernel::copy_out(256)).gives(BulkKernel::numbers(256)));
  const std::string own =
      "@%p8 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%r9+16], [%rd0+32], %r2, [%r8], %rd3;\n";
  BulkKernel offsets("mov.u32 %r2, 64;\ncreatepolicy.fractional.L2::evict_first.b64 %rd3;\n" +
                     BulkKernel::expect(64) + own + BulkKernel::wait() + "add.u32 %r9, %r9, 16;\n" +
                     BulkKernel::copy_out(16));
  Words expected;
  for (std::uint32_t i = 0; i < 16; ++i) expected.push_back(1008 + i);
  expected.push_back(0xeeeeeeee);
  CHECK(offsets.gives(expected));
}

TEST_CASE("who reads or writes what a bulk load fills before its wait races with it") {
  const std::string load = BulkKernel::expect(1024) + kLoad;
  BulkKernel early(load + "bar.sync 0;\nld.shared.u32 %r2, [%r9];\n" + BulkKernel::wait());
  early.checks.unwritten = false;
  CHECK(early.always(FaultKind::race, {"ld.shared.u32", "cp.async.bulk"}));
  CHECK(kernel(load + "bar.sync 0;\nst.shared.u32 [%r9+1020], %r0;\n" + BulkKernel::wait())
            .always(FaultKind::race, {"st.shared.u32"}));
  CHECK(kernel(load + "bar.sync 0;\n@%p8 st.shared.u32 [%r9+1024], %r0;\n" + BulkKernel::wait()).gives({}));
}

TEST_CASE("a bulk load whose bytes do not add up leaves its waiters alone") {
  CHECK(kernel(BulkKernel::expect(1040) + kLoad + BulkKernel::wait())
            .always(FaultKind::deadlock, {"16 bytes"}));
  CHECK(kernel(BulkKernel::expect(1008) + kLoad + BulkKernel::wait())
            .always(FaultKind::deadlock, {"mbarrier"}));
}

TEST_CASE("a block that ends before its bulk load has landed is reported") {
  BulkKernel leaves(BulkKernel::expect(1024) + kLoad);
  int found = 0;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    const std::optional<Fault> fault = leaves.fault(seed);
    if (!fault) continue;
    CHECK(fault->kind() == FaultKind::copy_not_awaited);
    ++found;
  }
  CHECK(found > 0);
}

TEST_CASE("a bulk store writes what shared memory holds, for who waits for its group") {
  CHECK(kernel(filled() + kStore + kCommit + kWait).gives(BulkKernel::numbers(256)));
  // At the end of the kernel at the latest.
  CHECK(kernel(filled() + kStore + kCommit).gives(BulkKernel::numbers(256)));
  const std::string read = "@%p8 ld.global.u32 %r2, [%rd1+4];\n@%p8 st.global.u32 [%rd1+4096], %r2;\n";
  Words expected = BulkKernel::numbers(256);
  expected.resize(1025, 0xeeeeeeee);
  expected[1024] = 1001;
  CHECK(kernel(filled() + kStore + kCommit + kWait + read).gives(expected));
  CHECK(kernel(filled() + kStore + kCommit + kWaitRead + read).always(FaultKind::race, {"ld.global.u32"}));
  CHECK(kernel(filled() + kStore + kWait + read).always(FaultKind::race, {"ld.global.u32"}));
}

TEST_CASE("shared memory may be used again once the group has read it") {
  const std::string again = "@%p8 st.shared.u32 [%r9], %r0;\n";
  CHECK(kernel(filled() + kStore + kCommit + kWaitRead + again).gives(BulkKernel::numbers(256)));
  CHECK(kernel(filled() + kStore + kCommit + again).always(FaultKind::race, {"st.shared.u32"}));
  const std::string next = "@%p8 cp.async.bulk.global.shared::cta.bulk_group [%rd1+4096], [%r9+1024], 16;\n";
  // The last group may still read; the one before may not.
  const std::string two = BulkKernel::copy_in(260) + kHandOver + kStore + kCommit + next + kCommit +
                          "@%p8 cp.async.bulk.wait_group.read 1;\n";
  CHECK(kernel(two + again).gives(BulkKernel::numbers(256)));
  CHECK(kernel(two + "@%p8 st.shared.u32 [%r9+1024], %r0;\n").always(FaultKind::race));
}

TEST_CASE("generic writes need a proxy fence before a bulk copy reads them") {
  CHECK(kernel(BulkKernel::copy_in(256) + "bar.sync 0;\n" + kStore + kCommit + kWait)
            .always(FaultKind::race, {"cp.async.bulk.global", "st.shared.u32"}));
  CHECK(kernel(filled() + kStore + kCommit + kWait).gives({}));
}

TEST_CASE("operands of bulk copies are checked") {
  const auto loads = [](const char* operands) {
    return kernel(BulkKernel::expect(1024) +
                  "@%p8 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes " + operands +
                  ";\n" + BulkKernel::wait());
  };
  CHECK(loads("[%r9+8], [%rd0], 1024, [%r8]").always(FaultKind::misaligned, {"in shared memory"}));
  CHECK(loads("[%r9], [%rd0+8], 1024, [%r8]").always(FaultKind::misaligned, {"in global memory"}));
  CHECK(loads("[%r9], [%rd0], 1020, [%r8]").always(FaultKind::invalid_operation, {"1020 bytes"}));
  CHECK(loads("[%r9], [%rd0+7184], 1024, [%r8]").always(FaultKind::out_of_bounds));
  CHECK(loads("[%r9+7680], [%rd0], 1024, [%r8]").always(FaultKind::out_of_bounds));
  CHECK(loads("[%r9], [%rd0], 1024, [%r8+8]").always(FaultKind::invalid_operation, {"no mbarrier"}));
}

TEST_CASE("a bulk load counts the bytes that it moves") {
  BulkKernel counted(load_and_wait());
  (void)counted.run(0);
  LineCounters copy;
  for (const LineCounters& line : counted.counters)
    if (line.global_requests != 0) copy += line;
  CHECK(copy.global_requests == 1);
  CHECK(copy.global_bytes == 1024);
  CHECK(copy.global_sectors == 32);
  CHECK(copy.shared_wavefronts == 8);
}

TEST_CASE("bulk reductions combine elements of global memory") {
  struct Expected {
    const char* operation;
    std::uint32_t to;
    std::uint32_t from;
    std::uint32_t result;
  };
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  for (const Expected& expected : std::initializer_list<Expected>{
           {"add.u32", 0xffffffff, 2, 1},
           {"add.s32", 5, 0xfffffffe, 3},
           {"min.u32", 0xffffffff, 2, 2},
           {"min.s32", 0xffffffff, 2, 0xffffffff},
           {"max.u32", 0xffffffff, 2, 0xffffffff},
           {"max.s32", 0xffffffff, 2, 2},
           {"inc.u32", 4, 5, 5},
           {"inc.u32", 5, 5, 0},
           {"dec.u32", 0, 5, 5},
           {"dec.u32", 4, 5, 3},
           {"dec.u32", 9, 5, 5},
           {"and.b32", 12, 10, 8},
           {"or.b32", 12, 10, 14},
           {"xor.b32", 12, 10, 6},
           {"add.f32", bits(1.5f), bits(2.25f), bits(3.75f)},
           {"add.f32", 0x80000001, 0x80000001, 0x80000000},  // subnormal numbers are flushed
           {"add.noftz.f16", 0x3c000001, 0x40000001, 0x42000002},
           {"add.noftz.bf16", 0x3f800001, 0x40000001, 0x40400002},
           {"min.f16", 0x3c007e00, 0xc0003c00, 0xc0003c00},
           {"max.bf16", 0x3f808000, 0xc0000000, 0x3f800000},
       }) {
    CAPTURE(expected.operation);
    BulkKernel reduces(filled() + "@%p8 cp.reduce.async.bulk.global.shared::cta.bulk_group." +
                       expected.operation + " [%rd1], [%r9], 1024;\n" + kCommit + kWait);
    reduces.from.assign(256, expected.from);
    reduces.to.assign(256, expected.to);
    CHECK(reduces.gives(Words(256, expected.result)));
  }
}

TEST_CASE("bulk reductions of 64-bit elements") {
  struct Expected {
    const char* operation;
    std::uint32_t to[2];
    std::uint32_t from[2];
    std::uint32_t result[2];
  };
  for (const Expected& expected : std::initializer_list<Expected>{
           {"add.u64", {0xffffffff, 1}, {1, 1}, {0, 3}},
           {"min.s64", {5, 0xffffffff}, {7, 0}, {5, 0xffffffff}},
           {"max.u64", {5, 0xffffffff}, {7, 0}, {5, 0xffffffff}},
           {"xor.b64", {12, 3}, {10, 1}, {6, 2}},
           {"add.f64", {0, 0x3ff00000}, {0, 0x3ff00000}, {0, 0x40000000}},
       }) {
    CAPTURE(expected.operation);
    BulkKernel reduces(filled() + "@%p8 cp.reduce.async.bulk.global.shared::cta.bulk_group." +
                       expected.operation + " [%rd1], [%r9], 1024;\n" + kCommit + kWait);
    Words result(256);
    for (std::size_t i = 0; i < 256; ++i) {
      reduces.from[i] = expected.from[i % 2];
      reduces.to[i] = expected.to[i % 2];
      result[i] = expected.result[i % 2];
    }
    CHECK(reduces.gives(result));
  }
}

TEST_CASE("reductions of several blocks do not race, and all count") {
  BulkKernel reduces(
      filled() + "@%p8 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r9], 1024;\n" +
      kCommit + kWait);
  reduces.blocks = 7;
  reduces.host_threads = 2;
  reduces.to.assign(256, 5);
  Words expected(256);
  for (std::uint32_t i = 0; i < 256; ++i) expected[i] = 5 + 7 * (1000 + i);
  CHECK(reduces.gives(expected));
}

TEST_CASE("a copy between blocks of a cluster arrives with its bytes") {
  const std::string send =
      "mov.u32 %r2, %cluster_ctarank;\nxor.b32 %r3, %r2, 1;\nmapa.shared::cluster.u32 %r4, %r9, %r3;\n"
      "mapa.shared::cluster.u32 %r5, %r8, %r3;\n" +
      BulkKernel::expect(512) +
      "@%p8 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r4+4096], [%r9], 512, "
      "[%r5];\n";
  // Each block adds its rank to the address that it reads.
  const std::string own = "mul.wide.u32 %rd3, %r1, 512;\nadd.s64 %rd0, %rd0, %rd3;\n";
  const std::string out =
      "mul.wide.u32 %rd3, %r1, 512;\nadd.s64 %rd1, %rd1, %rd3;\nadd.u32 %r9, %r9, 4096;\n";
  BulkKernel sends(own + BulkKernel::copy_in(128) + kHandOver + kMeet + send + BulkKernel::wait() + out +
                   BulkKernel::copy_out(128) + kMeet);
  sends.blocks = sends.cluster = 2;
  Words expected(256);
  for (std::uint32_t i = 0; i < 256; ++i) expected[i] = 1000 + (i ^ 128);
  CHECK(sends.gives(expected));
}

TEST_CASE("a copy between blocks must be to another block, whose mbarrier it signals") {
  const auto sends = [](const char* rank, const char* barrier_rank) {
    BulkKernel result(filled() + "mov.u32 %r2, %cluster_ctarank;\nmov.u32 %r6, " + rank + ";\nmov.u32 %r7, " +
                      barrier_rank +
                      ";\nsetp.ne.and.u32 %p1, %r2, 1, %p8;\nmapa.shared::cluster.u32 %r4, %r9, %r6;\n"
                      "mapa.shared::cluster.u32 %r5, %r8, %r7;\n"
                      "@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r4], "
                      "[%r9], 512, [%r5];\n" +
                      kMeet);
    result.blocks = result.cluster = 2;
    return result;
  };
  CHECK(sends("0", "0").always(FaultKind::invalid_operation, {"within shared memory of its own block"}));
  CHECK(sends("1", "0").always(FaultKind::invalid_operation, {"signals an mbarrier of another"}));
}

TEST_CASE("a reduction in shared memory of another block") {
  const std::string send =
      "mov.u32 %r2, %cluster_ctarank;\nxor.b32 %r3, %r2, 1;\nmapa.shared::cluster.u32 %r4, %r9, %r3;\n"
      "mapa.shared::cluster.u32 %r5, %r8, %r3;\n" +
      BulkKernel::expect(512) +
      "@%p8 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r4+512], "
      "[%r9], 512, [%r5];\n";
  BulkKernel sends(filled() + kMeet + send + BulkKernel::wait() + "add.u32 %r9, %r9, 512;\n" +
                   "setp.ne.u32 %p1, %r2, 0;\n@%p1 bra E;\n" + BulkKernel::copy_out(128) + "E: " + kMeet);
  sends.blocks = sends.cluster = 2;
  Words expected(128);
  for (std::uint32_t i = 0; i < 128; ++i) expected[i] = 1000 + i + 1128 + i;
  CHECK(sends.gives(expected));
}

TEST_CASE("a multicast brings the same bytes to every block of its mask") {
  // Block 1 of 3 loads for blocks 0 and 2.
  const std::string load =
      "setp.eq.and.u32 %p1, %r1, 1, %p8;\nmov.b16 %h1, 5;\nsetp.eq.u32 %p2, %r1, 1;\n@%p2 bra N;\n" +
      BulkKernel::expect(512) + "N:\n" + kMeet +
      "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r9+512], "
      "[%rd0], 512, [%r8], %h1;\n@%p2 bra E;\n" +
      BulkKernel::wait() +
      "mul.wide.u32 %rd3, %r1, 512;\nadd.s64 %rd1, %rd1, %rd3;\nadd.u32 %r9, %r9, 512;\n" +
      BulkKernel::copy_out(128) + "E: " + kMeet;
  BulkKernel multicast(load);
  multicast.blocks = multicast.cluster = 3;
  Words expected = BulkKernel::numbers(128);
  expected.resize(256, 0xeeeeeeee);
  for (std::uint32_t i = 0; i < 128; ++i) expected.push_back(1000 + i);
  CHECK(multicast.gives(expected));
}

TEST_CASE("a multicast to a block that the cluster does not have, or to one that has ended, is a fault") {
  const std::string start = "setp.eq.and.u32 %p1, %r1, 0, %p8;\nmov.b16 %h1, ";
  const std::string load =
      "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r9], "
      "[%rd0], 512, [%r8], %h1;\n";
  BulkKernel beyond(start + "7;\n" + load + kMeet);
  beyond.blocks = beyond.cluster = 2;
  CHECK(beyond.always(FaultKind::invalid_operation, {"block 2 of the cluster"}));
  BulkKernel none(start + "0;\n" + load + kMeet);
  none.blocks = none.cluster = 2;
  CHECK(none.always(FaultKind::invalid_operation, {"to no block"}));
  BulkKernel leaves(start + "3;\n" + BulkKernel::expect(512) + load +
                    "setp.eq.u32 %p2, %r1, 1;\n@%p2 ret;\n" + BulkKernel::wait());
  leaves.blocks = leaves.cluster = 2;
  int found = 0;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    const std::optional<Fault> fault = leaves.fault(seed);
    if (!fault) continue;
    INFO(std::string(fault->what()));
    CHECK((fault->kind() == FaultKind::invalid_operation || fault->kind() == FaultKind::out_of_bounds ||
           fault->kind() == FaultKind::copy_not_awaited));
    ++found;
  }
  CHECK(found > 0);
}

TEST_CASE("a bulk prefetch changes nothing, but is checked") {
  CHECK(kernel("@%p8 cp.async.bulk.prefetch.L2.global [%rd0], 1024;\n").gives({}));
  CHECK(kernel("@%p8 cp.async.bulk.prefetch.L2.global [%rd0+4], 1024;\n").always(FaultKind::misaligned));
}

TEST_CASE("every lane issues its own bulk copy") {
  const std::string each =
      "setp.lt.u32 %p1, %r0, 32;\nshl.b32 %r2, %r0, 4;\nadd.u32 %r3, %r9, %r2;\ncvt.u64.u32 %rd3, %r2;\n"
      "add.s64 %rd4, %rd0, %rd3;\nadd.s64 %rd5, %rd1, %rd3;\n";
  CHECK(kernel(
            each + BulkKernel::expect(512) + "bar.sync 0;\n" +
            "@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r3], [%rd4], 16, [%r8];\n" +
            BulkKernel::wait() +
            "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd5], [%r3], 16;\n"
            "@%p1 cp.async.bulk.commit_group;\n@%p1 cp.async.bulk.wait_group 0;\n")
            .gives(BulkKernel::numbers(128)));
}

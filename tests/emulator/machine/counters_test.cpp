#include <doctest/doctest.h>

#include <numeric>

#include "emulator/machine/traffic.h"
#include "kernel.h"

using namespace sparsekiln::emulator;

namespace {

struct Addresses {
  std::uint64_t at[kLanes];
};

template <class F>
Addresses lanes(F f) {
  Addresses result;
  for (int lane = 0; lane < kLanes; ++lane) result.at[lane] = static_cast<std::uint64_t>(f(lane));
  return result;
}

template <class F>
LineCounters global(int bytes, F f, Mask mask = kAllLanes) {
  LineCounters counters;
  count_global(counters, mask, bytes, lanes(f).at);
  return counters;
}
template <class F>
LineCounters shared(int bytes, F f, Mask mask = kAllLanes) {
  LineCounters counters;
  count_shared(counters, mask, bytes, lanes(f).at);
  return counters;
}

}  // namespace

TEST_CASE("neighboring words fill their sectors") {
  const LineCounters counters = global(4, [](int lane) { return 4096 + 4 * lane; });
  CHECK(counters.global_requests == 1);
  CHECK(counters.global_sectors == 4);
  CHECK(counters.global_bytes == 128);
  CHECK(global(4, [](int lane) { return 4096 + 16 + 4 * lane; }).global_sectors == 5);
  CHECK(global(16, [](int lane) { return 4096 + 16 * lane; }).global_sectors == 16);
}

TEST_CASE("words far apart take a sector each") {
  const LineCounters counters = global(4, [](int lane) { return 256 * lane; });
  CHECK(counters.global_sectors == 32);
  CHECK(counters.global_bytes == 128);
}

TEST_CASE("what several lanes want is counted once") {
  const LineCounters counters = global(4, [](int lane) { return 64 + 4 * (lane % 2); });
  CHECK(counters.global_sectors == 1);
  CHECK(counters.global_bytes == 8);
  CHECK(global(2, [](int lane) { return 2 * lane; }, 0xffff).global_bytes == 32);
}

TEST_CASE("shared words in 32 banks are one wavefront") {
  CHECK(shared(4, [](int lane) { return 4 * lane; }).shared_wavefronts == 1);
  CHECK(shared(4, [](int lane) { return 4 * ((lane * 5) % 32); }).shared_wavefronts == 1);
  CHECK(shared(4, [](int) { return 64; }).shared_wavefronts == 1);
  CHECK(shared(4, [](int) { return 64; }).shared_ideal == 1);
}

TEST_CASE("shared words in one bank take a wavefront each") {
  CHECK(shared(4, [](int lane) { return 128 * lane; }).shared_wavefronts == 32);
  CHECK(shared(4, [](int lane) { return 128 * lane; }).shared_ideal == 1);
  CHECK(shared(4, [](int lane) { return 8 * lane; }).shared_wavefronts == 2);
  CHECK(shared(4, [](int lane) { return 128 * (lane / 2); }).shared_wavefronts == 16);
}

TEST_CASE("wide shared accesses pass in parts") {
  CHECK(shared(8, [](int lane) { return 8 * lane; }).shared_wavefronts == 2);
  CHECK(shared(16, [](int lane) { return 16 * lane; }).shared_wavefronts == 4);
  CHECK(shared(16, [](int lane) { return 16 * lane; }).shared_ideal == 4);
  CHECK(shared(16, [](int lane) { return 128 * lane; }).shared_wavefronts == 32);
  CHECK(shared(16, [](int lane) { return 144 * lane; }).shared_wavefronts == 4);  // rows padded by 16 bytes
  CHECK(shared(16, [](int lane) { return 16 * lane; }, 0xff).shared_wavefronts == 1);
  CHECK(shared(2, [](int lane) { return 2 * lane; }).shared_wavefronts == 1);
}

TEST_CASE("a launch counts its instructions exactly, whatever the seed and the host threads") {
  Kernel kernel(
      "mul.wide.u32 %rd3, %r0, 4;\nadd.s64 %rd3, %rd0, %rd3;\nsetp.ge.u32 %p0, %r0, 100;\n@%p0 bra "
      "END;\natom.global.add.u32 %r2, [%rd3], 1;\nEND: mov.u32 %r3, 0;");
  kernel.threads = 128;
  kernel.blocks = 5;
  kernel.zeros(512);
  std::vector<Counters> all;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    kernel.host_threads = 1 + static_cast<int>(seed % 2);
    all.push_back(kernel.run(seed));
  }
  std::uint64_t atomics = 0;
  std::uint64_t divergent = 0;
  for (std::size_t pc = 0; pc < all[0].size(); ++pc) {
    for (const Counters& other : all) {
      CHECK(other[pc].executed == all[0][pc].executed);
      CHECK(other[pc].global_sectors == all[0][pc].global_sectors);
    }
    divergent += all[0][pc].divergent;
    if (kernel.program().code[pc].kind == Kind::atomic) atomics += all[0][pc].executed;
    if (kernel.program().code[pc].kind == Kind::atomic) CHECK(all[0][pc].global_bytes == 5 * 400);
  }
  CHECK(atomics == 4 * 5);
  CHECK(divergent == 5);
}

TEST_CASE("the seed decides the order of atomics, and the same seed decides the same") {
  Kernel kernel(
      "setp.ne.u32 %p0, %r0, 0;\n@%p0 ret;\natom.global.add.u32 %r2, [%rd0], 1;\nmul.wide.u32 %rd3, %r1, "
      "4;\nadd.s64 %rd3, %rd1, %rd3;\nst.global.u32 [%rd3], %r2;");
  kernel.blocks = 16;
  kernel.zeros(4);
  kernel.zeros(64);
  const auto order = [&](std::uint64_t seed, int threads) {
    kernel.host_threads = threads;
    REQUIRE_FALSE(kernel.fault(seed).has_value());
    std::vector<std::uint32_t> result;
    for (std::uint64_t i = 0; i < 16; ++i)
      result.push_back(kernel.read<std::uint32_t>(kernel.parameters[1] + 4 * i));
    return result;
  };
  CHECK(order(1, 1) == order(1, 4));
  CHECK(order(1, 1) != order(2, 1));
}

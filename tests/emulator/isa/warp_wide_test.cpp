#include <bit>
#include <string>

#include <doctest/doctest.h>

#include "emulator/machine/report.h"
#include "tests/emulator/isa/edge_values.h"

namespace sparsekiln::emulator {
namespace {

std::string failure(const std::string& body, std::uint32_t threads = 32) {
  try {
    static_cast<void>(run_warp(body, {}, {}, threads));
  } catch (const Fault& fault) {
    return fault.what();
  }
  return {};
}

TEST_CASE("shfl reads another lane, and says whether it was in range") {
  std::mt19937_64 random(3);
  for (const std::string mode : {"up", "down", "bfly", "idx"})
    for (int round = 0; round < 40; ++round) {
      const Given a = lanes_of(32, [&](int lane) { return 1000 + lane; });
      const Given b = lanes_of(32, [&](int) { return random() % 40; });
      const std::uint32_t segments[] = {0, 16, 24, 28, 30, 31};
      const std::uint32_t segment = segments[random() % 6];
      const std::uint32_t clamp = mode == "up" ? 0 : 31;
      const std::string c = std::to_string(segment << 8 | clamp);
      const auto run = run_warp("shfl.sync." + mode + ".b32 %out0|%p1, %in0, %in1, " + c +
                                    ", 0xffffffff; selp.u32 %out1, 1, 0, %p1;",
                                {a, b}, {32, 32});
      const int width = 32 - static_cast<int>(segment);  // of each part of the warp
      for (int lane = 0; lane < 32; ++lane) {
        const int amount = static_cast<int>(b.values[lane] % 32);
        const int first = lane / width * width;
        int from = mode == "up"     ? lane - amount
                   : mode == "down" ? lane + amount
                   : mode == "bfly" ? lane ^ amount
                                    : first + amount % width;
        const bool in_range = mode == "up" ? from >= first : from < first + width;
        if (!in_range) from = lane;
        CAPTURE(mode);
        CAPTURE(segment);
        CAPTURE(lane);
        CAPTURE(amount);
        CHECK(run.results[0][lane] == 1000 + static_cast<std::uint64_t>(from));
        CHECK(run.results[1][lane] == in_range);
      }
    }
}

TEST_CASE("shfl may write the register that it reads") {
  const auto run =
      run_warp("mov.u32 %r1, %lane; shfl.sync.bfly.b32 %r1, %r1, 1, 31, -1; mov.u32 %out0, %r1;", {}, {32});
  for (std::uint64_t lane = 0; lane < 32; ++lane) CHECK(run.results[0][lane] == (lane ^ 1));
}

TEST_CASE("shfl adds up a warp") {
  std::string body = "mov.u32 %out0, %in0;\n";
  for (const int step : {16, 8, 4, 2, 1})
    body +=
        "shfl.sync.down.b32 %r1, %out0, " + std::to_string(step) + ", 31, -1; add.u32 %out0, %out0, %r1;\n";
  const auto run = run_warp(body, {lanes_of(32, [](int lane) { return lane * lane; })}, {32});
  CHECK(run.results[0][0] == 31 * 32 * 63 / 6);
}

TEST_CASE("a warp that is not full shuffles among its lanes") {
  const auto run = run_warp("shfl.sync.idx.b32 %out0, %lane, 3, 31, -1;", {}, {32}, 20);
  for (int lane = 0; lane < 20; ++lane) CHECK(run.results[0][lane] == 3);
}

TEST_CASE("shfl from a lane that does not take part is a fault") {
  CHECK(failure("shfl.sync.idx.b32 %r1, %lane, 25, 31, -1;", 20).find("does not execute") !=
        std::string::npos);
  CHECK(failure("setp.lt.u32 %p1, %lane, 8; @%p1 shfl.sync.idx.b32 %r1, %lane, 9, 31, 0xff;")
            .find("does not execute") != std::string::npos);
}

TEST_CASE("a lane outside of its own member mask is a fault") {
  CHECK(failure("shfl.sync.idx.b32 %r1, %lane, 0, 31, 0xffff;").find("its own member mask") !=
        std::string::npos);
  CHECK(failure("vote.sync.any.pred %p1, %p2, 0xfffffffe;").find("its own member mask") != std::string::npos);
}

TEST_CASE("a member on another branch is a fault, and one that has ended is not") {
  CHECK(failure("setp.lt.u32 %p1, %lane, 8; @%p1 vote.sync.any.pred %p2, %p1, -1;")
            .find("lane 8 is in the member mask") != std::string::npos);
  CHECK(failure("setp.ge.u32 %p1, %lane, 8; @%p1 ret; vote.sync.any.pred %p2, %p1, -1;").empty());
}

TEST_CASE("members that are alive on another branch are refused as divergence, by name") {
  const auto kind = [](const std::string& body) {
    try {
      static_cast<void>(run_warp(body, {}, {}));
    } catch (const Fault& fault) {
      return std::string(name(fault.kind()));
    }
    return std::string();
  };
  const std::string divergence = name(FaultKind::divergence_not_supported);
  // Both ways come to an instruction of the same mask, which hardware lets meet.
  for (const std::string instruction :
       {"shfl.sync.idx.b32 %r1, %lane, 3, 31, -1;", "vote.sync.any.pred %p2, %p1, -1;",
        "redux.sync.add.u32 %r1, %lane, -1;", "match.any.sync.b32 %r1, %lane, -1;", "bar.warp.sync -1;"}) {
    CAPTURE(instruction);
    CHECK(kind("setp.lt.u32 %p1, %lane, 8; @%p1 bra A; " + instruction + " bra B; A: " + instruction +
               " B:") == divergence);
    CHECK(kind("setp.lt.u32 %p1, %lane, 8; @!%p1 bra B; " + instruction + " B: activemask.b32 %r2;") ==
          divergence);
    CHECK(kind("setp.lt.u32 %p1, %lane, 8; @!%p1 ret; " + instruction).empty());
    CHECK(kind("setp.lt.u32 %p1, %lane, 8; @%p1 " + instruction) == name(FaultKind::barrier_not_reached));
  }
}

TEST_CASE("groups of lanes with separate masks execute independently") {
  const auto run = run_warp(R"(
      setp.lt.u32 %p1, %lane, 12;
      selp.b32 %r1, 0xfff, 0xfffff000, %p1;
      redux.sync.add.u32 %out0, %lane, %r1;
      match.any.sync.b32 %out1, 5, %r1;
      vote.sync.ballot.b32 %out2, %p1, %r1;)",
                            {}, {32, 32, 32});
  for (int lane = 0; lane < 32; ++lane) {
    CHECK(run.results[0][lane] == (lane < 12 ? 66 : 31 * 16 - 66));
    CHECK(run.results[1][lane] == (lane < 12 ? 0xfffu : 0xfffff000u));
    CHECK(run.results[2][lane] == (lane < 12 ? 0xfffu : 0));
  }
}

TEST_CASE("votes are right over all, some, no and mixed lanes") {
  const struct {
    const char* predicate;
    bool all, any, uni;
    std::uint32_t ballot;
  } rows[] = {{"setp.lt.u32 %p1, %lane, 99;", true, true, true, 0xffffffffu},
              {"setp.lt.u32 %p1, %lane, 0;", false, false, true, 0},
              {"setp.lt.u32 %p1, %lane, 5;", false, true, false, 0x1f}};
  for (const auto& row : rows) {
    CAPTURE(row.predicate);
    const auto run = run_warp(std::string(row.predicate) + R"(
        vote.sync.all.pred %p2, %p1, -1; selp.u32 %out0, 1, 0, %p2;
        vote.sync.any.pred %p2, %p1, -1; selp.u32 %out1, 1, 0, %p2;
        vote.sync.uni.pred %p2, %p1, -1; selp.u32 %out2, 1, 0, %p2;
        vote.sync.ballot.b32 %out3, %p1, -1;
        vote.sync.ballot.b32 %out4, !%p1, -1;)",
                              {}, {32, 32, 32, 32, 32});
    for (int lane = 0; lane < 32; ++lane) {
      CHECK(run.results[0][lane] == row.all);
      CHECK(run.results[1][lane] == row.any);
      CHECK(run.results[2][lane] == row.uni);
      CHECK(run.results[3][lane] == row.ballot);
      CHECK(run.results[4][lane] == ~row.ballot);
    }
  }
}

TEST_CASE("match.any finds the lanes with the same value, of 32 and of 64 bits") {
  const Given narrow = lanes_of(32, [](int lane) { return lane % 3; });
  const Given wide = lanes_of(64, [](int lane) { return static_cast<std::uint64_t>(lane % 3) << 40; });
  const auto run = run_warp("match.any.sync.b32 %out0, %in0, -1; match.any.sync.b64 %out1, %in1, -1;",
                            {narrow, wide}, {32, 32});
  for (int lane = 0; lane < 32; ++lane) {
    std::uint32_t expected = 0;
    for (int other = lane % 3; other < 32; other += 3) expected |= 1u << other;
    CHECK(run.results[0][lane] == expected);
    CHECK(run.results[1][lane] == expected);
  }
}

TEST_CASE("match.all says whether all have the same value") {
  const auto run = run_warp(R"(
      match.all.sync.b32 %out0|%p1, 7, -1; selp.u32 %out1, 1, 0, %p1;
      match.all.sync.b32 %out2|%p1, %lane, -1; selp.u32 %out3, 1, 0, %p1;
      match.all.sync.b32 %out4, 7, -1;)",
                            {}, {32, 32, 32, 32, 32}, 20);
  CHECK(run.results[0][4] == 0xfffff);
  CHECK(run.results[1][4] == 1);
  CHECK(run.results[2][4] == 0);
  CHECK(run.results[3][4] == 0);
  CHECK(run.results[4][4] == 0xfffff);
}

TEST_CASE("redux adds, compares and combines the lanes") {
  std::mt19937_64 random(4);
  const Given in = edge_values(random, 32);
  const auto run = run_warp(R"(
      redux.sync.add.s32 %out0, %in0, -1; redux.sync.min.s32 %out1, %in0, -1; redux.sync.max.s32 %out2, %in0, -1;
      redux.sync.min.u32 %out3, %in0, -1; redux.sync.max.u32 %out4, %in0, -1;
      redux.sync.and.b32 %out5, %in0, -1; redux.sync.or.b32 %out6, %in0, -1; redux.sync.xor.b32 %out7, %in0, -1;)",
                            {in}, std::vector<int>(8, 32));
  std::uint32_t add = 0, all = ~0u, any = 0, odd = 0, low = ~0u, high = 0;
  std::int32_t least = INT32_MAX, greatest = INT32_MIN;
  for (const std::uint64_t wide : in.values) {
    const auto value = static_cast<std::uint32_t>(wide);
    add += value, all &= value, any |= value, odd ^= value;
    low = std::min(low, value), high = std::max(high, value);
    least = std::min(least, static_cast<std::int32_t>(value)),
    greatest = std::max(greatest, static_cast<std::int32_t>(value));
  }
  const std::uint32_t expected[] = {
      add, static_cast<std::uint32_t>(least), static_cast<std::uint32_t>(greatest), low, high, all, any, odd};
  for (std::size_t i = 0; i < 8; ++i)
    for (int lane = 0; lane < 32; ++lane) CHECK(run.results[i][lane] == expected[i]);
}

TEST_CASE("activemask names the lanes that execute it") {
  const auto run =
      run_warp("setp.lt.u32 %p1, %lane, 6; mov.u32 %out0, 0; @%p1 activemask.b32 %out0;", {}, {32}, 9);
  for (int lane = 0; lane < 9; ++lane) CHECK(run.results[0][lane] == (lane < 6 ? 0x3f : 0));
}

TEST_CASE("elect chooses one lane of the members") {
  const auto run = run_warp(R"(
      setp.ge.u32 %p1, %lane, 5;
      mov.u32 %out0, 99; mov.u32 %out1, 99;
      @%p1 elect.sync %out0|%p2, 0xffffffe0;
      @%p1 selp.u32 %out1, 1, 0, %p2;)",
                            {}, {32, 32});
  for (int lane = 0; lane < 32; ++lane) {
    CHECK(run.results[0][lane] == (lane < 5 ? 99 : 5));
    CHECK(run.results[1][lane] == (lane < 5 ? 99 : lane == 5 ? 1 : 0));
  }
}

}  // namespace
}  // namespace sparsekiln::emulator

#include <optional>
#include <random>
#include <string>

#include <doctest/doctest.h>

#include "emulator/machine/report.h"
#include "tests/emulator/one_warp.h"

namespace sparsekiln::emulator {
namespace {

/// A program of blocks that mix a number and branch by it, as PTX and as what one thread does.
struct RandomProgram {
  struct Block {
    std::uint32_t factor = 1;
    std::uint32_t addend = 0;
    std::uint32_t bit = 0;     ///< of the number: whether to branch
    std::uint32_t target = 0;  ///< block
    enum class Way { branch_if, branch, end_if, next } way = Way::next;
  };
  std::vector<Block> blocks;
  static constexpr std::uint32_t kFuel = 60;  ///< branches that a thread takes before it ends

  explicit RandomProgram(std::mt19937& random, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
      const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
      const std::uint32_t way = below(10);
      blocks.push_back({.factor = static_cast<std::uint32_t>(random()) | 1u,
                        .addend = static_cast<std::uint32_t>(random()),
                        .bit = 8 + below(20),
                        .target = below(static_cast<std::uint32_t>(size)),
                        .way = way < 6    ? Block::Way::branch_if
                               : way == 6 ? Block::Way::branch
                               : way == 7 ? Block::Way::end_if
                                          : Block::Way::next});
    }
  }

  [[nodiscard]] std::string ptx() const {
    std::string text = "mov.u32 %r1, 0;\nmov.u32 %out0, %in0;\n";
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const Block& block = blocks[i];
      text.append("B").append(std::to_string(i)).append(":\n");
      text.append("mad.lo.u32 %out0, %out0, ").append(std::to_string(block.factor)).append(", ");
      text.append(std::to_string(block.addend)).append(";\nadd.u32 %r1, %r1, 1;\n");
      text.append("setp.gt.u32 %p2, %r1, ").append(std::to_string(kFuel)).append(";\n@%p2 bra OUT;\n");
      text.append("bfe.u32 %r2, %out0, ").append(std::to_string(block.bit)).append(", 1;\n");
      text.append("setp.ne.u32 %p1, %r2, 0;\n");
      const std::string target = std::string("B").append(std::to_string(block.target)).append(";\n");
      if (block.way == Block::Way::branch_if) text.append("@%p1 bra ").append(target);
      if (block.way == Block::Way::branch) text.append("bra ").append(target);
      if (block.way == Block::Way::end_if) text.append("@%p1 ret;\n");
    }
    return text.append("OUT: add.u32 %out0, %out0, %r1;");
  }

  /// What a thread that starts with `number` leaves; nothing if it ends early.
  [[nodiscard]] std::optional<std::uint32_t> result(std::uint32_t number) const {
    std::uint32_t fuel = 0;
    for (std::size_t at = 0; at < blocks.size();) {
      const Block& block = blocks[at];
      number = number * block.factor + block.addend;
      if (++fuel > kFuel) break;
      const bool holds = (number >> block.bit & 1) != 0;
      if (block.way == Block::Way::end_if && holds) return std::nullopt;
      const bool taken = block.way == Block::Way::branch || (block.way == Block::Way::branch_if && holds);
      at = taken ? block.target : at + 1;
    }
    return number + fuel;
  }
};

TEST_CASE("lanes of random code each do what one thread alone would do") {
  std::mt19937 random(31);
  int ended = 0, finished = 0;
  for (int round = 0; round < 120; ++round) {
    CAPTURE(round);
    const RandomProgram program(random, 2 + round % 15);
    const Given start = lanes_of(32, [&](int) { return static_cast<std::uint32_t>(random()); });
    const std::uint32_t threads = round % 3 == 0 ? 1 + random() % 32 : 32;
    const LaneValues got = run_warp(program.ptx(), {start}, {32}, threads).results[0];
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      CAPTURE(lane);
      const auto expected =
          lane < threads ? program.result(static_cast<std::uint32_t>(start.values[lane])) : std::nullopt;
      ++(expected ? finished : ended);
      CHECK(got[lane] == (expected ? *expected : 0xdead));
    }
  }
  CHECK(ended > 100);
  CHECK(finished > 1000);
}

/// The divergent branches of all instructions.
std::uint64_t divergent(const WarpRun& run) {
  std::uint64_t sum = 0;
  for (const LineCounters& line : run.counters) sum += line.divergent;
  return sum;
}

TEST_CASE("lanes that took both sides of a branch run together again after it") {
  const WarpRun run = run_warp(R"(
      setp.lt.u32 %p1, %lane, 7;
      @%p1 bra SMALL;
      mov.u32 %r1, 100;
      bra DONE;
    SMALL: mov.u32 %r1, 200;
    DONE: activemask.b32 %out0;
      mov.u32 %out1, %r1;)",
                               {}, {32, 32});
  for (int lane = 0; lane < 32; ++lane) {
    CHECK(run.results[0][lane] == 0xffffffffu);
    CHECK(run.results[1][lane] == (lane < 7 ? 200 : 100));
  }
  CHECK(divergent(run) == 1);
}

TEST_CASE("on each side of a branch only its own lanes are active") {
  const WarpRun run = run_warp(R"(
      setp.lt.u32 %p1, %lane, 7;
      @%p1 bra SMALL;
      activemask.b32 %out0;
      bra DONE;
    SMALL: activemask.b32 %out0;
    DONE:)",
                               {}, {32});
  for (int lane = 0; lane < 32; ++lane) CHECK(run.results[0][lane] == (lane < 7 ? 0x7fu : 0xffffff80u));
}

TEST_CASE("lanes leave a loop one by one and join after it") {
  const WarpRun run = run_warp(R"(
      mov.u32 %out0, 0;
    LOOP: add.u32 %out0, %out0, 3;
      setp.lt.u32 %p1, %out0, %lane;
      @%p1 bra LOOP;
      activemask.b32 %out1;)",
                               {}, {32, 32});
  for (std::uint64_t lane = 0; lane < 32; ++lane) {
    CHECK(run.results[0][lane] == (lane < 3 ? 3 : (lane + 2) / 3 * 3));
    CHECK(run.results[1][lane] == 0xffffffffu);
  }
}

TEST_CASE("a branch that all lanes take is not divergent") {
  CHECK(divergent(run_warp("setp.lt.u32 %p1, %lane, 32; @%p1 bra L; mov.u32 %out0, 1; L: mov.u32 %out0, 2;",
                           {}, {32})) == 0);
}

TEST_CASE("other lanes do not wait for lanes that return early") {
  const WarpRun run = run_warp(R"(
      setp.lt.u32 %p1, %lane, 20;
      @%p1 bra L;
      setp.lt.u32 %p2, %lane, 25;
      @%p2 ret;
      mov.u32 %r1, 1;
    L: activemask.b32 %out0;)",
                               {}, {32});
  for (int lane = 0; lane < 32; ++lane)
    CHECK(run.results[0][lane] == (lane >= 20 && lane < 25 ? 0xdeadu : 0xfe0fffffu));
}

TEST_CASE("lanes that do more before they return early do not delay the others at their join") {
  const WarpRun run = run_warp(R"(
      mov.u32 %out0, 1;
      setp.lt.u32 %p1, %lane, 20;
      @%p1 bra INSIDE;
      bra.uni AFTER;
    INSIDE: setp.lt.u32 %p2, %lane, 5;
      @!%p2 bra MORE;
      st.global.u32 [%to], 7;
      ret;
    MORE: mov.u32 %out0, 2;
    AFTER: activemask.b32 %out1;)",
                               {}, {32, 32});
  for (int lane = 0; lane < 32; ++lane) {
    CHECK(static_cast<std::uint32_t>(run.results[0][lane]) == (lane < 5 ? 7 : lane < 20 ? 2 : 1));
    CHECK(run.results[1][lane] == (lane < 5 ? 0xdeadu : 0xffffffe0u));
  }
}

TEST_CASE("lanes that part at a branch said to be uniform are a fault") {
  CHECK_THROWS_AS(
      static_cast<void>(run_warp(
          "setp.lt.u32 %p1, %lane, 3; @%p1 bra.uni L; mov.u32 %out0, 1; L: mov.u32 %out0, 2;", {}, {32})),
      Fault);
}

TEST_CASE("trap is a fault, and one that no lane executes is none") {
  CHECK_THROWS_AS(
      static_cast<void>(run_warp("setp.eq.u32 %p1, %lane, 3; @%p1 trap; mov.u32 %out0, 1;", {}, {32})),
      Fault);
  CHECK(run_warp("setp.eq.u32 %p1, %lane, 99; @%p1 trap; mov.u32 %out0, 1;", {}, {32}).results[0][3] == 1);
}

TEST_CASE("a register that nothing wrote is zero, also where rows are used again") {
  const WarpRun run = run_warp(R"(
      mov.u32 %r1, 77;
      mov.u32 %out1, %r1;
      setp.lt.u32 %p1, %lane, 3;
      @%p1 bra L;
      mov.u32 %r2, 5;
    L: mov.u32 %out0, %r2;)",
                               {}, {32, 32});
  for (int lane = 0; lane < 32; ++lane) CHECK(run.results[0][lane] == (lane < 3 ? 0 : 5));
}

}  // namespace
}  // namespace sparsekiln::emulator

#include <algorithm>
#include <map>

#include <doctest/doctest.h>

#include "emulator/machine/warp.h"
#include "emulator/program/rows.h"
#include "tests/emulator/program/random_drafts.h"

namespace sparsekiln::emulator {
namespace {

std::uint32_t bytes_of(const VirtualRow& row) {
  return row.bytes == 0 ? 4 : static_cast<std::uint32_t>(row.bytes * kLanes);
}

/// Row 0 is the guard of everything guarded; some rows are fixed.
std::vector<VirtualRow> random_rows(std::mt19937& random, std::uint32_t count) {
  constexpr int kBytes[] = {0, 2, 4, 8};
  std::vector<VirtualRow> rows{{.bytes = 0}};
  while (rows.size() < count) rows.push_back({.bytes = kBytes[random() % 4], .fixed = random() % 8 == 0});
  return rows;
}

void add_random_operands(std::mt19937& random, std::vector<Draft>& drafts,
                         const std::vector<VirtualRow>& rows) {
  const auto row = [&] { return static_cast<std::uint32_t>(random() % rows.size()); };
  for (Draft& draft : drafts) {
    for (auto left = random() % 3; left > 0; --left) draft.read.push_back(row());
    if (draft.flow != Flow::next) continue;
    for (auto left = random() % 3; left > 0; --left) {
      const std::uint32_t written = row();
      const bool again =
          std::find(draft.written.begin(), draft.written.end(), written) != draft.written.end();
      if (!rows[written].fixed && !again) draft.written.push_back(written);
    }
    if (random() % 4 == 0) draft.instruction.guard = 0;
  }
}

/// Follows a random path through code, and knows which row each byte of the register file holds.
class Walk {
 public:
  Walk(const std::vector<Draft>& drafts, const std::vector<VirtualRow>& rows, const RowPlan& plan)
      : drafts_(drafts), rows_(rows), plan_(plan), owner_(plan.bytes, kNoRow) {
    for (std::uint32_t row = 0; row < rows.size(); ++row)
      if (rows[row].fixed && plan.offset[row] != kNoRow) own(row);
    for (const std::uint32_t row : plan.zeroed) own(row);
  }

  void run(std::mt19937& random, int steps) {
    std::uint32_t at = 0;
    while (steps-- > 0) {
      const Draft& draft = drafts_[at];
      const bool taken = !draft.guarded() || random() % 2 == 0;
      if (draft.guarded()) check_held(draft.instruction.guard, at);
      for (const std::uint32_t row : draft.read) check_held(row, at);
      if (taken)
        for (const std::uint32_t row : draft.written) {
          // Some of the old value is kept: what was not held before is not held now.
          fill(row, !draft.guarded() || holds(row) ? row : kLost);
        }
      if (draft.flow == Flow::end && taken) return;
      at = draft.flow == Flow::branch && taken ? draft.target : at + 1;
    }
  }

 private:
  static constexpr std::uint32_t kLost = kNoRow - 1;

  void own(std::uint32_t row) { fill(row, row); }
  void fill(std::uint32_t row, std::uint32_t owner) {
    const std::uint32_t at = plan_.offset[row];
    REQUIRE(at + bytes_of(rows_[row]) <= plan_.bytes);
    std::fill_n(owner_.begin() + at, bytes_of(rows_[row]), owner);
  }
  [[nodiscard]] bool holds(std::uint32_t row) const {
    const auto first = owner_.begin() + plan_.offset[row];
    return std::all_of(first, first + bytes_of(rows_[row]),
                       [&](std::uint32_t owner) { return owner == row; });
  }
  void check_held(std::uint32_t row, std::uint32_t at) {
    CAPTURE(row);
    CAPTURE(at);
    CHECK(holds(row));
  }

  const std::vector<Draft>& drafts_;
  const std::vector<VirtualRow>& rows_;
  const RowPlan& plan_;
  std::vector<std::uint32_t> owner_;
};

TEST_CASE("on no way through random code a row is lost that is read later") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    auto drafts = random_flow(random, 1 + round % 12, 0);
    const auto rows = random_rows(random, 4 + round % 30);
    add_random_operands(random, drafts, rows);
    const RowPlan plan = plan_rows(drafts, basic_blocks(drafts), rows);
    for (int way = 0; way < 8; ++way) Walk(drafts, rows, plan).run(random, 200);
  }
}

TEST_CASE("what an instruction writes shares no byte with anything else that it names") {
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    auto drafts = random_flow(random, 4, 0);
    const auto rows = random_rows(random, 24);
    add_random_operands(random, drafts, rows);
    const RowPlan plan = plan_rows(drafts, basic_blocks(drafts), rows);
    for (const Draft& draft : drafts) {
      auto named = draft.read;
      named.insert(named.end(), draft.written.begin(), draft.written.end());
      for (const std::uint32_t written : draft.written)
        for (const std::uint32_t other : named) {
          if (other == written) continue;
          const std::uint32_t a = plan.offset[written], b = plan.offset[other];
          CHECK((a + bytes_of(rows[written]) <= b || b + bytes_of(rows[other]) <= a));
        }
    }
  }
}

TEST_CASE("rows are aligned for vectors, masks to their four bytes") {
  std::mt19937 random(9);
  auto drafts = random_flow(random, 10, 0);
  const auto rows = random_rows(random, 60);
  add_random_operands(random, drafts, rows);
  const RowPlan plan = plan_rows(drafts, basic_blocks(drafts), rows);
  for (std::size_t row = 0; row < rows.size(); ++row)
    if (plan.offset[row] != kNoRow) CHECK(plan.offset[row] % (rows[row].bytes == 0 ? 4 : 64) == 0);
}

TEST_CASE("a register that is accessed later shares its place with nothing") {
  std::mt19937 random(12);
  for (int round = 0; round < 100; ++round) {
    auto drafts = random_flow(random, 4, 0);
    auto rows = random_rows(random, 24);
    for (VirtualRow& row : rows) row.async = row.bytes == 4 && random() % 3 == 0;
    add_random_operands(random, drafts, rows);
    const RowPlan plan = plan_rows(drafts, basic_blocks(drafts), rows);
    std::uint32_t used = 0;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (plan.offset[row] == kNoRow) continue;
      used += rows[row].async ? 1 : 0;
      CHECK((plan.offset[row] < plan.async_registers * 4 * kLanes) == rows[row].async);
      for (std::size_t other = 0; other < row; ++other)
        if (rows[row].async) CHECK(plan.offset[other] != plan.offset[row]);
    }
    CHECK(plan.async_registers == used);
  }
}

TEST_CASE("a thousand registers of which two live at once take three rows") {
  std::vector<VirtualRow> rows(1000, {.bytes = 4});
  std::vector<Draft> drafts(1000);
  for (std::uint32_t i = 0; i < drafts.size(); ++i) {
    drafts[i].instruction.guard = kNoGuard;
    drafts[i].written = {i};
    if (i >= 2) drafts[i].read = {i - 1, i - 2};
  }
  drafts.back().flow = Flow::end;
  CHECK(plan_rows(drafts, basic_blocks(drafts), rows).bytes == 3 * 4 * kLanes);
}

TEST_CASE("a row that is read where nothing wrote it is zero at start; one that was written is not named") {
  std::vector<VirtualRow> rows(3, {.bytes = 4});
  std::vector<Draft> drafts(3);
  for (Draft& draft : drafts) draft.instruction.guard = kNoGuard;
  drafts[0].read = {0};
  drafts[0].written = {1};
  drafts[1].read = {1};
  drafts[1].written = {2};
  drafts[2].flow = Flow::end;
  CHECK(plan_rows(drafts, basic_blocks(drafts), rows).zeroed == std::vector<std::uint32_t>{0});
}

TEST_CASE("a guarded write leaves the old value needed") {
  std::vector<VirtualRow> rows{{.bytes = 0}, {.bytes = 4}, {.bytes = 4}};
  std::vector<Draft> drafts(4);
  for (Draft& draft : drafts) draft.instruction.guard = kNoGuard;
  drafts[0].written = {0, 1};
  drafts[1].written = {2};
  drafts[2].written = {1};
  drafts[2].instruction.guard = 0;
  drafts[2].read = {2};
  drafts[3].read = {1};
  drafts[3].flow = Flow::end;
  const RowPlan plan = plan_rows(drafts, basic_blocks(drafts), rows);
  CHECK(plan.zeroed.empty());
  CHECK(plan.offset[1] != plan.offset[2]);
}

TEST_CASE("a row that nothing uses has no place") {
  std::vector<VirtualRow> rows(2, {.bytes = 8});
  std::vector<Draft> drafts(1);
  drafts[0].instruction.guard = kNoGuard;
  drafts[0].flow = Flow::end;
  drafts[0].read = {1};
  const RowPlan plan = plan_rows(drafts, basic_blocks(drafts), rows);
  CHECK(plan.offset[0] == kNoRow);
  CHECK(plan.bytes == 8 * kLanes);
}

}  // namespace
}  // namespace sparsekiln::emulator

#include <algorithm>

#include <doctest/doctest.h>

#include "emulator/program/flow.h"
#include "tests/emulator/program/random_drafts.h"

namespace sparsekiln::emulator {
namespace {

/// Blocks by their successors; a block without any ends all lanes.
std::vector<BasicBlock> graph(const std::vector<std::vector<std::uint32_t>>& successors) {
  std::vector<BasicBlock> blocks;
  for (const auto& of : successors) blocks.push_back({.successors = of, .ends_lanes = of.empty()});
  return blocks;
}

Draft plain() {
  Draft draft;
  draft.instruction.guard = kNoGuard;
  return draft;
}
Draft branch_to(std::uint32_t target, bool guarded) {
  Draft draft = plain();
  draft.flow = Flow::branch;
  draft.target = target;
  if (guarded) draft.instruction.guard = 0;
  return draft;
}
Draft end(bool guarded = false) {
  Draft draft = plain();
  draft.flow = Flow::end;
  if (guarded) draft.instruction.guard = 0;
  return draft;
}

/// Whether the last block, which ends all lanes, can be reached from `from` without `without`.
bool gets_out(const std::vector<BasicBlock>& blocks, std::uint32_t from, std::uint32_t without = kNoBlock) {
  std::vector<char> seen(blocks.size(), 0);
  std::vector<std::uint32_t> work;
  const auto visit = [&](std::uint32_t b) {
    if (b == without || seen[b] != 0) return;
    seen[b] = 1;
    work.push_back(b);
  };
  visit(from);
  while (!work.empty()) {
    const std::uint32_t b = work.back();
    work.pop_back();
    if (b + 1 == blocks.size()) return true;
    for (const std::uint32_t to : blocks[b].successors) visit(to);
  }
  return false;
}

TEST_CASE("straight code is one block") {
  const std::vector<Draft> drafts{plain(), plain(), end()};
  const auto blocks = basic_blocks(drafts);
  REQUIRE(blocks.size() == 1);
  CHECK(blocks[0].first == 0);
  CHECK(blocks[0].last == 3);
  CHECK(blocks[0].successors.empty());
}

TEST_CASE("a guarded branch leads to its target and on, an unguarded one to its target alone") {
  const std::vector<Draft> drafts{branch_to(3, true), plain(), branch_to(0, false), end()};
  const auto blocks = basic_blocks(drafts);
  REQUIRE(blocks.size() == 3);
  CHECK(blocks[0].successors == std::vector<std::uint32_t>{1, 2});
  CHECK(blocks[1].successors == std::vector<std::uint32_t>{0});
  CHECK(blocks[2].successors.empty());
}

TEST_CASE("the end of a guard's lanes is no way for the others") {
  const std::vector<Draft> drafts{end(true), plain(), end()};
  const auto blocks = basic_blocks(drafts);
  REQUIRE(blocks.size() == 2);
  CHECK(blocks[0].successors == std::vector<std::uint32_t>{1});
  CHECK(blocks[0].ends_lanes);
}

TEST_CASE("the ways of a diamond meet at its end") {
  const auto joins = immediate_post_dominators(graph({{1, 2}, {3}, {3}, {}}));
  CHECK(joins == std::vector<std::uint32_t>{3, 3, 3, kNoBlock});
}

TEST_CASE("lanes that leave a loop wait after it") {
  const auto joins = immediate_post_dominators(graph({{1}, {2}, {1, 3}, {}}));
  CHECK(joins[2] == 3);
}

TEST_CASE("a way that ends early keeps the others from meeting nowhere") {
  // if (0) { if (1) { 2; return; } 3 } 4: lanes of 0 meet in 4, lanes of 1 that go on in 3.
  const auto joins = immediate_post_dominators(graph({{1, 4}, {2, 3}, {}, {4}, {}}));
  CHECK(joins == std::vector<std::uint32_t>{4, 3, kNoBlock, 4, kNoBlock});
}

TEST_CASE("ways to an early end meet before it") {
  // 0 leads to the main end, 5, or to 1, whose ways meet in 4 and end there.
  const auto joins = immediate_post_dominators(graph({{1, 5}, {2, 3}, {4}, {4}, {}, {6}, {7}, {8}, {9}, {}}));
  CHECK(joins[0] == 5);
  CHECK(joins[1] == 4);
}

TEST_CASE("code that nothing leaves has no place to meet") {
  const auto joins = immediate_post_dominators(graph({{1, 2}, {1}, {2}}));
  CHECK(joins == std::vector<std::uint32_t>{kNoBlock, kNoBlock, kNoBlock});
}

TEST_CASE("a loop that only a guarded end leaves has places to meet in it") {
  auto blocks = graph({{1, 2}, {2}, {0}});
  blocks[2].ends_lanes = true;
  CHECK(immediate_post_dominators(blocks)[0] == 2);
}

TEST_CASE("in random code the place to meet is the nearest block without which no way leads out") {
  std::mt19937 random(20240611);
  int met = 0;
  for (int round = 0; round < 400; ++round) {
    const auto drafts = random_flow(random, 2 + round % 14, 0);
    const auto blocks = basic_blocks(drafts);
    const auto joins = immediate_post_dominators(blocks);
    for (std::uint32_t b = 0; b < blocks.size(); ++b) {
      CAPTURE(round);
      CAPTURE(b);
      if (!gets_out(blocks, b)) continue;
      std::vector<std::uint32_t> all;  // that every way from b meets
      for (std::uint32_t d = 0; d < blocks.size(); ++d)
        if (d != b && !gets_out(blocks, b, d)) all.push_back(d);
      if (all.empty()) {
        CHECK(joins[b] == kNoBlock);
        continue;
      }
      ++met;
      REQUIRE(std::find(all.begin(), all.end(), joins[b]) != all.end());
      // The nearest: every other one is still ahead of it.
      for (const std::uint32_t d : all)
        if (d != joins[b]) CHECK_FALSE(gets_out(blocks, joins[b], d));
    }
  }
  CHECK(met > 1000);
}

}  // namespace
}  // namespace sparsekiln::emulator

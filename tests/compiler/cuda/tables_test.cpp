#include "compiler/cuda/tables.h"

#include <algorithm>
#include <random>

#include <doctest/doctest.h>
#include <sparsekiln/patterns.h>

namespace sparsekiln::cuda {
namespace {

// Bits of templates/schedule.cuh's Step, spelled out here once more.
std::uint32_t column(std::uint32_t step) { return step & 0xffffff; }
std::uint32_t part(std::uint32_t step) { return step >> 24 & 7; }
std::uint32_t tile(std::uint32_t step) { return step >> 27 & 3; }
bool absent(std::uint32_t step) { return (step >> 29 & 1) != 0; }
bool same_input(std::uint32_t step) { return (step >> 30 & 1) != 0; }

struct Drawn {
  Problem problem;
  Config config;
  ChunkShape chunk;
  std::int64_t workers;
  Schedule schedule;
  Tables tables;
};

template <typename Check>
void for_random_tables(Check check) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Drawn drawn;
    drawn.problem.layout = patterns::random(1 + static_cast<std::int64_t>(random() % 40),
                                            1 + static_cast<std::int64_t>(random() % 40),
                                            static_cast<double>(random() % 100) / 100, seed);
    const Target target{Target::Kind::cuda, "sm_90", 1 + static_cast<std::int32_t>(random() % 100)};
    drawn.config.tile_n = 64;
    drawn.config.split = 1 + static_cast<std::int32_t>(random() % 3);
    drawn.config.rows = 1 + static_cast<std::int32_t>(random() % 4);
    drawn.config.merge = 1 << random() % 3;
    if (drawn.config.rows == 1 && random() % 2 == 0)
      drawn.chunk.blocks = 1 << random() % 3;
    else
      drawn.chunk.parts = 1 << random() % 4;
    drawn.workers = std::int64_t{target.workers} * drawn.config.split;
    drawn.schedule = make_schedule(drawn.problem, target, drawn.config, 64);
    drawn.tables = make_tables(drawn.schedule, drawn.chunk);
    check(drawn);
  }
}

TEST_CASE("the chunks of an item are its steps, filled up with absent ones, and it says where they end") {
  for_random_tables([](const Drawn& drawn) {
    const Tables& tables = drawn.tables;
    const auto blocks = static_cast<std::size_t>(drawn.chunk.blocks);
    const auto merge = static_cast<std::size_t>(drawn.schedule.merge);
    std::size_t at = 0;
    std::size_t item_number = 0;
    for (std::int32_t worker = 0; worker < drawn.schedule.workers(); ++worker) {
      REQUIRE(tables.worker_begin[static_cast<std::size_t>(worker)] ==
              Tables::WorkerBegin{static_cast<std::int32_t>(at / blocks),
                                  static_cast<std::int32_t>(item_number)});
      for (const Item& item : drawn.schedule.items_of(worker)) {
        std::vector<Step>
            wanted;  // each step once for each of its parts, in the order of column, part and tile
        const auto steps = drawn.schedule.steps_of(item);
        for (std::size_t begin = 0, end = 0; begin < steps.size(); begin = end) {
          while (end < steps.size() && steps[end].input() == steps[begin].input()) ++end;
          for (std::int32_t p = 0; p < drawn.chunk.parts; ++p)
            for (std::size_t s = begin; s < end; ++s) {
              Step step = steps[s];
              step.operand[2] = p;
              step.flags = s > begin ? std::uint32_t{kSameInput} : 0;
              wanted.push_back(step);
            }
        }
        const std::size_t first = at;
        for (const Step& step : wanted) {
          const std::uint32_t is = tables.steps.at(at).bits;
          REQUIRE_FALSE(absent(is));
          REQUIRE(column(is) == static_cast<std::uint32_t>(step.input()));
          REQUIRE(part(is) == static_cast<std::uint32_t>(step.operand[2]));
          REQUIRE(tile(is) == static_cast<std::uint32_t>(step.output() - item.tile));
          REQUIRE(same_input(is) == (step.flags != 0));
          REQUIRE(tables.steps[at].block == step.block[0]);
          for (std::size_t m = 1; m < merge; ++m)
            REQUIRE(tables.more_blocks.at(at * (merge - 1) + m - 1) == step.block[m]);
          ++at;
        }
        while ((at - first) % blocks != 0) REQUIRE(absent(tables.steps.at(at++).bits));
        REQUIRE(at - first < wanted.size() + blocks);
        REQUIRE(tables.item_ends.at(item_number) == static_cast<std::int32_t>(at / blocks));
        ++item_number;
      }
    }
    REQUIRE(at + blocks == tables.steps.size());  // one unused chunk, to be read ahead
    for (; at < tables.steps.size(); ++at) REQUIRE(absent(tables.steps[at].bits));
    REQUIRE(item_number == tables.splits.size());
    REQUIRE(tables.more_blocks.size() == tables.steps.size() * (merge - 1));
    REQUIRE(tables.item_ends.size() == tables.splits.size() + 1);  // one more, to be read ahead
  });
}

TEST_CASE("a block in the last column that a layout can have keeps its column, part and tile apart") {
  constexpr auto kLast = static_cast<std::int32_t>(Layout::kMaxExtent - 1);
  Problem problem;
  problem.layout = Layout::from_csr(2, kLast + 1, std::vector<std::int32_t>{0, 1, 2},
                                    std::vector<std::int32_t>{kLast, kLast});
  Config config;
  config.rows = 2;
  const Schedule schedule = make_schedule(problem, {Target::Kind::cuda, "sm_90", 1}, config, 1);
  const Tables tables = make_tables(schedule, {.blocks = 1, .parts = 2});
  REQUIRE(tables.steps.size() == 5);  // two parts of two blocks, and one more
  for (std::uint32_t i = 0; i < 4; ++i) {
    CHECK(column(tables.steps[i].bits) == static_cast<std::uint32_t>(kLast));
    CHECK(part(tables.steps[i].bits) == i / 2);
    CHECK(tile(tables.steps[i].bits) == i % 2);
  }
}

TEST_CASE("an item's rows are its places, its split part that of the schedule") {
  for_random_tables([](const Drawn& drawn) {
    const Tables& tables = drawn.tables;
    const auto places = static_cast<std::size_t>(drawn.schedule.rows * drawn.schedule.merge);
    REQUIRE(tables.rows.size() == drawn.schedule.items.size() * places);
    std::size_t parts = 0;
    for (std::size_t number = 0; number < drawn.schedule.items.size(); ++number) {
      const Item& item = drawn.schedule.items[number];
      for (std::size_t place = 0; place < places; ++place)
        REQUIRE(
            tables.rows[number * places + place] ==
            drawn.schedule.row_of_place[static_cast<std::size_t>(item.tile * drawn.schedule.merge) + place]);
      if (item.parts == 1) {
        REQUIRE(tables.splits[number] == -1);
        continue;
      }
      REQUIRE(tables.splits[number] == static_cast<std::int32_t>(parts));
      REQUIRE(tables.parts.at(parts++) ==
              Tables::SplitPart{item.partial + item.part, item.partial, item.parts, item.counter});
    }
    REQUIRE(parts == tables.parts.size());
  });
}

TEST_CASE("no schedule has larger tables, or more chunks, than the bounds say") {
  for_random_tables([](const Drawn& drawn) {
    REQUIRE(drawn.tables.bytes() <= table_bound(drawn.problem, drawn.config, drawn.chunk, drawn.workers));
    REQUIRE(drawn.tables.worker_begin.back().chunk <=
            chunk_bound(drawn.problem, drawn.config, drawn.chunk, drawn.workers));
  });
}

}  // namespace
}  // namespace sparsekiln::cuda

#include "compiler/schedule.h"

#include <algorithm>
#include <random>

#include <doctest/doctest.h>

namespace sparsekiln {
namespace {

struct Case {
  Problem problem;
  Target target;
  Config config;
  std::int64_t n;
};

/// A grid with rows of very different lengths, some of them empty. `std::mt19937` is specified to the bit.
Layout skewed_layout(std::mt19937& random) {
  const std::int32_t rows = 1 + static_cast<std::int32_t>(random() % 60);
  const std::int32_t cols = 1 + static_cast<std::int32_t>(random() % 300);
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(rows) * cols, 0);
  for (std::int32_t row = 0; row < rows; ++row) {
    const auto chance = random() % 4 == 0 ? 0 : random() % 1000;
    for (std::int32_t col = 0; col < cols; ++col)
      mask[static_cast<std::size_t>(row) * cols + col] = random() % 1000 < chance;
  }
  return Layout::from_mask(rows, cols, mask);
}

Case random_case(std::uint32_t seed) {
  std::mt19937 random(seed);
  Case drawn;
  drawn.problem.layout = skewed_layout(random);
  drawn.target = {Target::Kind::cuda, "sm_80", 1 + static_cast<std::int32_t>(random() % 200)};
  drawn.config.tile_n = 8 << (random() % 4);
  drawn.config.split = 1 + static_cast<std::int32_t>(random() % 3);
  drawn.n = random() % 300;
  return drawn;
}

template <typename Check>
void for_random_cases(Check check) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const Case drawn = random_case(seed);
    check(drawn, make_schedule(drawn.problem, drawn.target, drawn.config, drawn.n));
  }
}

TEST_CASE("every present block appears exactly once, in its row, in ascending order") {
  for_random_cases([](const Case& drawn, const Schedule& schedule) {
    const Layout& layout = drawn.problem.layout;
    std::vector<int> seen(static_cast<std::size_t>(layout.blocks()), 0);
    for (const Item& item : schedule.items) {
      for (std::int32_t step = item.first_step; step < item.first_step + item.steps; ++step) {
        const Step& product = schedule.steps.at(static_cast<std::size_t>(step));
        REQUIRE(product.operand[static_cast<int>(Role::output)] == item.output);
        REQUIRE(layout.contains(item.output, product.operand[static_cast<int>(Role::input)]));
        REQUIRE(layout.col()[static_cast<std::size_t>(product.block)] ==
                product.operand[static_cast<int>(Role::input)]);
        if (step > item.first_step)
          REQUIRE(product.block == schedule.steps[static_cast<std::size_t>(step) - 1].block + 1);
        ++seen[static_cast<std::size_t>(product.block)];
      }
    }
    REQUIRE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
  });
}

TEST_CASE("every block row is written by exactly one whole item or by all parts of a split") {
  for_random_cases([](const Case& drawn, const Schedule& schedule) {
    std::vector<std::vector<Item>> rows(static_cast<std::size_t>(drawn.problem.layout.rows()));
    for (const Item& item : schedule.items) rows.at(static_cast<std::size_t>(item.output)).push_back(item);
    std::vector<int> slots(static_cast<std::size_t>(schedule.partials), 0);
    std::vector<int> counters(static_cast<std::size_t>(schedule.counters), 0);
    for (auto& items : rows) {
      REQUIRE_FALSE(items.empty());
      std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.part < b.part; });
      std::int32_t next = items.front().first_step;
      for (std::size_t part = 0; part < items.size(); ++part) {
        const Item& item = items[part];
        REQUIRE(item.part == static_cast<std::int32_t>(part));
        REQUIRE(item.parts == static_cast<std::int32_t>(items.size()));
        REQUIRE(item.first_step == next);
        next += item.steps;
        if (item.parts == 1) {
          REQUIRE(item.partial == -1);
          REQUIRE(item.counter == -1);
        } else {
          ++slots.at(static_cast<std::size_t>(item.partial + item.part));
          if (part == 0) ++counters.at(static_cast<std::size_t>(item.counter));
        }
      }
    }
    REQUIRE(std::all_of(slots.begin(), slots.end(), [](int times) { return times == 1; }));
    REQUIRE(std::all_of(counters.begin(), counters.end(), [](int times) { return times == 1; }));
  });
}

TEST_CASE("no worker has more than 5 % or one step above the mean") {
  for_random_cases([](const Case&, const Schedule& schedule) {
    std::int64_t total = 0;
    std::int64_t largest = 0;
    for (std::int32_t worker = 0; worker < schedule.workers(); ++worker) {
      total += schedule.cost(worker);
      largest = std::max(largest, schedule.cost(worker));
    }
    const double mean = static_cast<double>(total) / schedule.workers();
    REQUIRE(static_cast<double>(largest) <= std::max(1.05 * mean, mean + 1));
  });
}

TEST_CASE("the same input gives the same schedule") {
  for_random_cases([](const Case& drawn, const Schedule& schedule) {
    REQUIRE(schedule == make_schedule(drawn.problem, drawn.target, drawn.config, drawn.n));
  });
}

TEST_CASE("one full row is cut among the workers, though never into scraps") {
  Problem problem;
  problem.layout = Layout::from_mask(1, 100, std::vector<std::uint8_t>(100, 1));
  const Schedule schedule = make_schedule(problem, {Target::Kind::cuda, "sm_80", 132}, {}, 1);
  CHECK(schedule.workers() == 25);
  CHECK(schedule.partials == 25);
  CHECK(schedule.counters == 1);
}

TEST_CASE("equal rows stay whole") {
  Problem problem;
  problem.layout = Layout::from_mask(64, 64, std::vector<std::uint8_t>(64 * 64, 1));
  const Schedule schedule = make_schedule(problem, {Target::Kind::cuda, "sm_80", 32}, {}, 1);
  CHECK(schedule.partials == 0);
  CHECK(schedule.items.size() == 64);
}

TEST_CASE("batch tiles share the workers") {
  Problem problem;
  problem.layout = Layout::from_mask(64, 64, std::vector<std::uint8_t>(64 * 64, 1));
  Config config;
  config.tile_n = 64;
  const Target target{Target::Kind::cuda, "sm_80", 32};
  CHECK(make_schedule(problem, target, config, 64).workers() == 32);
  CHECK(make_schedule(problem, target, config, 256).workers() == 8);
}

TEST_CASE("a layout without rows has a schedule without items") {
  const Schedule schedule = make_schedule(Problem{}, {Target::Kind::cpu, "generic", 4}, {}, 1);
  CHECK(schedule.items.empty());
  CHECK(schedule.workers() == 1);
}

}  // namespace
}  // namespace sparsekiln

#include "compiler/schedule.h"

#include <algorithm>
#include <random>
#include <set>
#include <tuple>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

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
  drawn.config.rows = 1 + static_cast<std::int32_t>(random() % 5);
  drawn.config.merge = 1 << (random() % 3);
  drawn.n = random() % 300;
  drawn.config.cluster_rows = 1 + static_cast<std::int32_t>(random() % 2);
  return drawn;
}

template <typename Check>
void for_random_cases(Check check) {
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    const Case drawn = random_case(seed);
    check(drawn, make_schedule(drawn.problem, drawn.target, drawn.config, drawn.n));
  }
}

TEST_CASE(
    "every present block appears exactly once, in its row and column, and all steps but those that "
    "keep pace have one") {
  for_random_cases([](const Case& drawn, const Schedule& schedule) {
    const Layout& layout = drawn.problem.layout;
    std::vector<int> seen(static_cast<std::size_t>(layout.blocks()), 0);
    for (const Item& item : schedule.items)
      for (const Step& step : schedule.steps_of(item)) {
        REQUIRE(step.output() >= item.tile);
        REQUIRE(step.output() < item.tile + schedule.rows);
        const auto rows = schedule.rows_of_tile(step.output());
        int present = 0;
        for (std::size_t row = 0; row < step.block.size(); ++row) {
          if (step.block[row] < 0) continue;
          ++present;
          REQUIRE(row < rows.size());
          REQUIRE(rows[row] >= 0);
          const auto begin = layout.crow()[static_cast<std::size_t>(rows[row])];
          REQUIRE(step.block[row] >= begin);
          REQUIRE(step.block[row] < layout.crow()[static_cast<std::size_t>(rows[row]) + 1]);
          REQUIRE(layout.col()[static_cast<std::size_t>(step.block[row])] == step.input());
          ++seen[static_cast<std::size_t>(step.block[row])];
        }
        REQUIRE((present > 0 || schedule.cluster_rows > 1));
        REQUIRE(step.present() == (present > 0));
      }
    REQUIRE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
  });
}

TEST_CASE(
    "steps ascend in column and tile, first those that a team shares, and say where the column is the one "
    "before") {
  for_random_cases([](const Case&, const Schedule& schedule) {
    for (const Item& item : schedule.items) {
      const Step* before = nullptr;
      for (const Step& step : schedule.steps_of(item)) {
        REQUIRE(((step.flags & kSameInput) != 0) == (before != nullptr && before->input() == step.input()));
        const auto order = [](const Step& of) {
          return std::tuple((of.flags & kAlone) != 0, of.input(), of.output());
        };
        if (before != nullptr && before->present() && step.present()) REQUIRE(order(*before) < order(step));
        before = &step;
      }
    }
  });
}

TEST_CASE("every block row has one place") {
  for_random_cases([](const Case& drawn, const Schedule& schedule) {
    REQUIRE(schedule.row_of_place.size() % static_cast<std::size_t>(schedule.rows * schedule.merge) == 0);
    std::vector<int> places(static_cast<std::size_t>(drawn.problem.layout.rows()), 0);
    for (const std::int32_t row : schedule.row_of_place)
      if (row >= 0) ++places.at(static_cast<std::size_t>(row));
    REQUIRE(std::all_of(places.begin(), places.end(), [](int times) { return times == 1; }));
  });
}

TEST_CASE("every row group is one whole item or all parts of a split, in fixed order") {
  for_random_cases([](const Case&, const Schedule& schedule) {
    const auto row_group_places = static_cast<std::size_t>(schedule.rows * schedule.merge);
    std::vector<std::vector<Item>> row_groups(schedule.row_of_place.size() / row_group_places);
    for (const Item& item : schedule.items) {
      REQUIRE(item.tile % schedule.rows == 0);
      row_groups.at(static_cast<std::size_t>(item.tile / schedule.rows)).push_back(item);
    }
    std::vector<int> slots(static_cast<std::size_t>(schedule.partials), 0);
    std::vector<int> counters(static_cast<std::size_t>(schedule.counters), 0);
    std::int32_t next = 0;
    for (auto& items : row_groups) {
      REQUIRE_FALSE(items.empty());
      std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.part < b.part; });
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
    REQUIRE(next == static_cast<std::int32_t>(schedule.steps.size()));
    REQUIRE(std::all_of(slots.begin(), slots.end(), [](int times) { return times == 1; }));
    REQUIRE(std::all_of(counters.begin(), counters.end(), [](int times) { return times == 1; }));
  });
}

TEST_CASE("the workers of a team keep pace: in the columns that both need, and then in their own") {
  std::int64_t teams = 0;
  std::int64_t alone = 0;
  std::int64_t without_blocks = 0;
  for_random_cases([&](const Case&, const Schedule& schedule) {
    const std::int32_t size = schedule.cluster_rows;
    REQUIRE(schedule.workers() % size == 0);
    for (std::int32_t first = 0; size > 1 && first < schedule.workers(); first += size) {
      ++teams;
      const auto a = schedule.items_of(first);
      const auto b = schedule.items_of(first + 1);
      REQUIRE(a.size() == b.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        REQUIRE(b[i].tile == a[i].tile + schedule.rows);
        REQUIRE(a[i].tile % (schedule.rows * size) == 0);
        const auto steps_of_a = schedule.steps_of(a[i]);
        const auto steps_of_b = schedule.steps_of(b[i]);
        REQUIRE(steps_of_a.size() == steps_of_b.size());
        std::set<std::int32_t> shared;
        std::set<std::int32_t> own;
        for (std::size_t step = 0; step < steps_of_a.size(); ++step) {
          const Step& of_a = steps_of_a[step];
          const Step& of_b = steps_of_b[step];
          REQUIRE(of_a.flags == of_b.flags);
          REQUIRE((of_a.present() || of_b.present()));
          without_blocks += !of_a.present() + !of_b.present();
          if ((of_a.flags & kAlone) == 0) {
            REQUIRE(own.empty());
            REQUIRE(of_a.input() == of_b.input());
            shared.insert(of_a.input());
          } else {
            REQUIRE((!of_a.present() || !of_b.present() || of_a.input() != of_b.input()));
            for (const Step& of : {of_a, of_b})
              if (of.present()) own.insert(of.input());
          }
        }
        alone += std::ssize(own);
        REQUIRE(std::none_of(own.begin(), own.end(), [&](std::int32_t col) { return shared.contains(col); }));
      }
    }
  });
  CHECK(teams > 1000);
  CHECK(alone > 1000);
  CHECK(without_blocks > 1000);
}

TEST_CASE("no worker has more than 5 % or one step above the mean") {
  for_random_cases([](const Case&, const Schedule& schedule) {
    const ScheduleFigures found = figures(schedule);
    REQUIRE(static_cast<double>(found.largest_cost) <= std::max(1.05 * found.mean_cost, found.mean_cost + 1));
  });
}

TEST_CASE("after all rounds of batch tiles no CTA has more than 5 % or one step a round above the mean") {
  std::int64_t uneven_in_a_round = 0;
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    Case drawn = random_case(seed);
    drawn.config.in_flight = 1 + static_cast<std::int32_t>(seed % 7);
    drawn.n = drawn.config.tile_n * (1 + seed % 29);
    const std::int64_t rounds = rounds_of(drawn.problem, drawn.config, drawn.n);
    REQUIRE(rounds == (1 + seed % 29 + drawn.config.in_flight - 1) / drawn.config.in_flight);
    const Schedule schedule = make_schedule(drawn.problem, drawn.target, drawn.config, drawn.n);
    std::vector<std::int64_t> costs(static_cast<std::size_t>(schedule.workers()), 0);
    for (std::int64_t round = 0; round < rounds; ++round) {
      std::vector<std::int32_t> places;
      for (std::int32_t cta = 0; cta < schedule.workers(); ++cta) {
        const std::int32_t worker = schedule.worker_of_round(cta, round);
        REQUIRE(worker % schedule.cluster_rows == cta % schedule.cluster_rows);
        places.push_back(worker);
        costs[static_cast<std::size_t>(cta)] += schedule.cost(worker);
      }
      std::ranges::sort(places);
      for (std::int32_t cta = 0; cta < schedule.workers(); ++cta)
        REQUIRE(places[static_cast<std::size_t>(cta)] == cta);
    }
    const ScheduleFigures found = figures(schedule);
    const double mean = found.mean_cost * static_cast<double>(rounds);
    const auto most = static_cast<double>(std::ranges::max(costs));
    REQUIRE(most <= std::max(1.05 * mean, mean + static_cast<double>(rounds)));
    uneven_in_a_round +=
        static_cast<double>(found.largest_cost) > std::max(1.05 * found.mean_cost, found.mean_cost + 1);
  }
  CHECK(uneven_in_a_round > 10);
}

TEST_CASE("a range of batches is scheduled for the workers of its smallest and the rounds of its largest") {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Case drawn = random_case(seed);
    drawn.config.in_flight = 2;
    const std::int64_t two = 2 * std::int64_t{drawn.config.tile_n};
    const auto made = [&](std::int64_t n, std::int64_t up_to) {
      return make_schedule(drawn.problem, drawn.target, drawn.config, n, up_to);
    };
    REQUIRE(made(two, 7 * two) == made(7 * two, 7 * two));
    REQUIRE(made(two, 7 * two) == made(7 * two, 0));
  }
}

TEST_CASE("the same input gives the same schedule") {
  for_random_cases([](const Case& drawn, const Schedule& schedule) {
    REQUIRE(schedule == make_schedule(drawn.problem, drawn.target, drawn.config, drawn.n));
  });
}

TEST_CASE("the figures count what is loaded and what is filled") {
  Problem problem;
  problem.layout = Layout::from_mask(2, 3,
                                     std::vector<std::uint8_t>{1, 1, 0,  //
                                                               1, 0, 1});
  const Target target{Target::Kind::cuda, "sm_80", 1};
  const ScheduleFigures single = figures(make_schedule(problem, target, {}, 1));
  CHECK(single.steps == 4);
  CHECK(single.loads == 4);
  CHECK(single.saved() == 0);
  const ScheduleFigures rows = figures(make_schedule(problem, target, {.rows = 2}, 1));
  CHECK(rows.steps == 4);
  CHECK(rows.loads == 3);
  CHECK(rows.saved() == doctest::Approx(0.25));
  CHECK(rows.filled == 0);
  const ScheduleFigures merged = figures(make_schedule(problem, target, {.merge = 2}, 1));
  CHECK(merged.steps == 3);
  CHECK(merged.loads == 3);
  CHECK(merged.filled == 2);
  const ScheduleFigures shared = figures(make_schedule(problem, target, {.cluster_rows = 2}, 1));
  CHECK(shared.steps == 4);
  CHECK(shared.without_blocks == 0);
  CHECK(shared.loads == 3);
  CHECK(shared.team_loads == 1);
  CHECK(shared.filled == 0);
}

TEST_CASE("no schedule has more items than the bound says, empty rows among split ones included") {
  std::vector<std::uint8_t> mask;
  const auto add_row = [&](bool present) { mask.insert(mask.end(), 14, present ? 1 : 0); };
  for (int i = 0; i < 3; ++i) add_row(false);
  for (int i = 0; i < 10; ++i) {
    for (int empty = 0; i > 0 && empty < 2; ++empty) add_row(false);
    add_row(true);
  }
  for (int i = 0; i < 3; ++i) add_row(false);
  Problem problem;
  problem.layout = Layout::from_mask(static_cast<std::int64_t>(mask.size()) / 14, 14, mask);
  const Schedule schedule = make_schedule(problem, {Target::Kind::cuda, "sm_80", 41}, {}, 1);
  CHECK(static_cast<std::int64_t>(schedule.items.size()) <= item_bound(problem.layout, {}, 41));
  for_random_cases([](const Case& drawn, const Schedule& made) {
    const std::int64_t workers = std::int64_t{drawn.target.workers} * drawn.config.split;
    REQUIRE(static_cast<std::int64_t>(made.items.size()) <=
            item_bound(drawn.problem.layout, drawn.config, workers));
  });
}

TEST_CASE("what cannot be scheduled is refused") {
  Problem problem;
  problem.layout = Layout::from_mask(2, 3, std::vector<std::uint8_t>(6, 1));
  const Target target{Target::Kind::cuda, "sm_80", 1};
  for (const Config& config : {Config{.rows = 0}, Config{.rows = 9}, Config{.merge = 0}, Config{.merge = 3},
                               Config{.merge = 8}, Config{.cluster_rows = 0}, Config{.cluster_rows = 3}})
    CHECK_THROWS_AS((void)make_schedule(problem, target, config, 1), Error);
  problem.strict_absent = true;
  CHECK_THROWS_AS((void)make_schedule(problem, target, {.merge = 2}, 1), Error);
  CHECK_NOTHROW((void)make_schedule(problem, target, {.rows = 2}, 1));
}

TEST_CASE("one full row is split among the workers, though never into scraps") {
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

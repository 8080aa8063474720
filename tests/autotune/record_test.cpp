#include "autotune/record.h"

#include <random>

#include <doctest/doctest.h>

#include "tests/autotune/contests.h"

namespace sparsekiln {
namespace {

using namespace test;

constexpr std::int32_t kNone = -1;

/// The place of the best; kNone where there is none.
std::int32_t winner(const Contest& contest) {
  const Standing found = standing(contest);
  return found.best == nullptr ? kNone : static_cast<std::int32_t>(found.best - contest.candidates.data());
}

TEST_CASE("the fastest of the finals wins") {
  const Contest contest =
      contest_of({measured(0, {}, {5, 5, 5}), measured(1, {}, {3, 3, 3}), measured(2, {}, {4, 4, 4})});
  const Standing found = standing(contest);
  CHECK(winner(contest) == 1);
  REQUIRE(found.second != nullptr);
  CHECK(found.second->config == config_of(2));
  CHECK(found.margin == doctest::Approx(1.0 / 3));
  CHECK(found.speedup == doctest::Approx(5.0 / 3));
  CHECK_FALSE(found.tie);
  CHECK(found.measured);
}

TEST_CASE("those that tie go to the first in the contest's order") {
  const Contest contest = contest_of(
      {measured(0, {}, {9, 9, 9}), measured(1, {}, {3.05, 3.05, 3.05}), measured(2, {}, {3, 3, 3})});
  CHECK(winner(contest) == 1);
  CHECK(standing(contest).tie);
  CHECK(standing(contest).margin < 0);
}

TEST_CASE("2.5 % in every round is no tie") {
  const Contest contest = contest_of({measured(0, {}, {3.075, 4.1, 5.125}), measured(1, {}, {3, 4, 5})});
  CHECK(winner(contest) == 1);
}

TEST_CASE("a tie is told by the ratios of the rounds, not by the medians") {
  // The machine slows down: medians differ by 100 %, but in every round both take the same.
  const Contest same = contest_of({measured(0, {}, {1, 1, 2, 2}), measured(1, {}, {1, 1, 2})});
  CHECK(winner(same) == 0);
  // The medians are within 1 %, and in each round the second is faster by 10 %.
  const Contest apart =
      contest_of({measured(0, {}, {1.1, 2.2, 3.3, 4.4, 5.5}), measured(1, {}, {1, 2, 3, 4, 5})});
  CHECK(winner(apart) == 1);
}

TEST_CASE("rounds whose ratios span 1 are a tie however large the noise") {
  const Contest contest = contest_of(
      {measured(0, {}, {3, 4, 5, 6, 4}), measured(1, {}, {4, 3, 5, 5, 4}), measured(2, {}, {9, 9, 9})});
  CHECK(winner(contest) == 0);
}

TEST_CASE("the last round need not have been ended") {
  const Contest contest = contest_of({measured(0, {}, {3, 3}), measured(1, {}, {2, 2, 2})});
  CHECK(winner(contest) == 1);
  CHECK(standing(contest).speedup == doctest::Approx(1.5));
}

TEST_CASE("a tie never goes to one that is slower than the default by more than 2 %") {
  // Candidate 1 ties with the fastest by its noise alone; the default is slower than the fastest by 5 % in
  // every round, and so no tie, but faster than candidate 1.
  const Contest contest =
      contest_of({measured(0, {}, {10.5, 10.5, 10.5, 10.5, 10.5}), measured(1, {}, {9, 9, 13, 14, 15}),
                  measured(2, {}, {10, 10, 10, 10, 10})});
  CHECK(winner(contest) == 2);
}

TEST_CASE("whatever the times, the best is no slower than the default by more than 2 %") {
  std::minstd_rand random(5);
  std::lognormal_distribution<double> noise(0, 0.2);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<Candidate> candidates;
    for (std::int32_t i = 0; i < 5; ++i) {
      std::vector<double> finals;
      for (int round = 0; round < 11; ++round) finals.push_back((1 + 0.05 * (4 - i)) * noise(random));
      candidates.push_back(measured(i, {}, std::move(finals)));
    }
    CAPTURE(trial);
    CHECK(standing(contest_of(std::move(candidates))).speedup >= 1 / (1 + kTie) - 1e-12);
  }
}

TEST_CASE("candidates of the finals rank before the others") {
  const Contest contest = contest_of({measured(0, {4, 4}, {4, 4, 4}), measured(1, {1})});
  CHECK(winner(contest) == 0);
}

TEST_CASE("without finals the samples decide") {
  const Contest contest = contest_of({measured(0, {4, 5, 4}), measured(1, {2, 2, 2})});
  CHECK(winner(contest) == 1);
}

TEST_CASE("samples whose middles overlap tie") {
  const Contest contest = contest_of({measured(0, {1, 2, 3, 4, 5}), measured(1, {1.5, 2.4, 2.5, 2.6, 3})});
  CHECK(winner(contest) == 0);
}

TEST_CASE("measured times rank before modelled ones") {
  const Contest contest = contest_of({modelled(0, 1), measured(1, {9})});
  CHECK(winner(contest) == 1);
  CHECK(standing(contest).measured);
}

TEST_CASE("where nothing was measured, modelled times decide, and the result says so") {
  const Contest contest = contest_of({modelled(0, 5), modelled(1, 3)});
  CHECK(winner(contest) == 1);
  CHECK_FALSE(standing(contest).measured);
  CHECK(standing(contest).speedup == doctest::Approx(5.0 / 3));
}

TEST_CASE("what failed, was pruned or is untried never wins, whatever samples it has") {
  std::vector<Candidate> candidates{measured(0, {9}),
                                    failed(1, "wrong"),
                                    untried(2, 1),
                                    {.config = config_of(3), .outcome = Outcome::pruned}};
  for (std::size_t i = 1; i < candidates.size(); ++i) candidates[i].samples_us = {1, 1};
  CHECK(winner(contest_of(candidates)) == 0);
}

TEST_CASE("without any time there is no best, and the plan has the default") {
  const Contest contest = contest_of({untried(0), failed(1, "wrong")});
  CHECK(winner(contest) == kNone);
  const Record record{.contests = {contest}};
  CHECK(record.plan() == Plan{{64, config_of(0)}});
}

TEST_CASE("a plan has the best of each contest") {
  const Record record{.contests = {contest_of({measured(0, {4}), measured(1, {2})}, 32),
                                   contest_of({measured(2, {1}), measured(3, {2})}, 64)}};
  CHECK(record.plan() == Plan{{32, config_of(1)}, {64, config_of(2)}});
}

TEST_CASE("an environment names its device, workers, cache, driver and policy") {
  Environment environment{"Some GPU", 132, 50 << 20, "580.95", "in rounds"};
  CHECK(environment.to_string() == "Some GPU, 132 workers, 50.0 MiB cache, driver 580.95, in rounds");
  const std::string before = environment.to_string();
  environment.workers = 131;
  CHECK(environment.to_string() != before);
}

TEST_CASE("a record's fields are found by name") {
  const Record record = full_record();
  CHECK(record.field("layout") == "00ff");
  CHECK(record.field("no such").empty());
}

}  // namespace
}  // namespace sparsekiln

#include "autotune/tuner.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "tests/autotune/contests.h"

namespace sparsekiln {
namespace {

using namespace test;
using namespace std::chrono_literals;

/// A machine on which each config takes as long as it is told to, and things go wrong as they are told to.
class FakeWorkbench final : public Workbench {
 public:
  double noise = 0;  ///< deviation of the logarithm of a sample
  bool clock = true;
  bool drift = false;  ///< all samples of a while take four times as long
  std::chrono::milliseconds compile_time{0};
  std::map<std::int32_t, double> us;              ///< of the config with that number; 10 where not given
  std::map<std::int32_t, std::string> unbuilt;    ///< why there is no Binary
  std::map<std::int32_t, std::string> wrong;      ///< what the oracles say
  std::map<std::int32_t, std::string> unchecked;  ///< thrown by check
  std::map<std::int32_t, int> dies_at;            ///< launches fail from this sample on
  std::map<std::int32_t, std::int32_t> code_of;   ///< whose code it has, where not its own
  std::set<std::int32_t> own_data;                ///< that have the code, and not the data beside it
  std::map<std::int32_t, std::int32_t> spilled;   ///< bytes

  std::map<std::int32_t, int> compiles, checks, samples;
  std::vector<std::int32_t> order;  ///< of first compiles
  std::set<std::int32_t> loaded;
  std::size_t most_loaded = 0;

  explicit FakeWorkbench(unsigned seed = 1) : random_(seed) {}

  void compile(std::span<const Config> configs, const Done& done,
               const std::function<bool()>& stop) override {
    for (std::size_t i = configs.size(); i-- > 0;) {  // in any order
      const std::int32_t number = number_of(configs[i]);
      if (stop()) {
        done(i, {.binary = nullptr, .failure = {}, .ms = 0, .stopped = true});
        continue;
      }
      std::this_thread::sleep_for(compile_time);
      if (compiles[number]++ == 0) order.push_back(number);
      if (const auto failure = unbuilt.find(number); failure != unbuilt.end()) {
        done(i, {.binary = nullptr, .failure = failure->second, .ms = 3, .stopped = false});
        continue;
      }
      auto binary = std::make_shared<Binary>();
      const auto same = code_of.find(number);
      binary->code.assign(4, static_cast<std::byte>(same == code_of.end() ? number : same->second));
      if (own_data.contains(number)) binary->data = {{"steps_0", {std::byte{1}}}};
      binary->entries.push_back({.up_to = 64, .resources = {.spill_store_bytes = spilled[number]}});
      done(i, {.binary = std::move(binary), .failure = {}, .ms = 3, .stopped = false});
    }
  }
  std::string check(const Config& config, std::shared_ptr<const Binary> binary) override {
    const std::int32_t number = number_of(config);
    REQUIRE(binary != nullptr);
    ++checks[number];
    if (const auto thrown = unchecked.find(number); thrown != unchecked.end())
      throw Error(ErrorKind::driver, thrown->second);
    if (const auto said = wrong.find(number); said != wrong.end()) return said->second;
    loaded.insert(number);
    most_loaded = std::max(most_loaded, loaded.size());
    return {};
  }
  bool measures() const override { return clock; }
  double sample(const Config& config) override {
    const std::int32_t number = number_of(config);
    REQUIRE(clock);
    REQUIRE(loaded.contains(number));
    const int taken = samples[number]++;
    if (const auto death = dies_at.find(number); death != dies_at.end() && taken >= death->second)
      throw Error(ErrorKind::driver, "the device is lost");
    const auto told = us.find(number);
    const double slower = drift && taken_++ / 50 % 2 == 0 ? 4 : 1;
    return slower * (told == us.end() ? 10 : told->second) * std::exp(noise * normal_(random_));
  }
  void drop(const Config& config) override { loaded.erase(number_of(config)); }

 private:
  static std::int32_t number_of(const Config& config) { return config.tile_n - 1; }
  std::mt19937 random_;
  int taken_ = 0;
  std::normal_distribution<double> normal_;
};

Contest untried_contest(std::int32_t candidates) {
  std::vector<Candidate> all;
  for (std::int32_t i = 0; i < candidates; ++i) all.push_back(untried(i, 1 + i));
  return contest_of(std::move(all));
}

std::int32_t winner(const Contest& contest) {
  const Standing found = standing(contest);
  return found.best == nullptr ? -1 : found.best->config.tile_n - 1;
}

const TuneLimits kPlenty{.budget = 60s};

TEST_CASE("the fastest of many is found, and everything is dropped in the end") {
  for (const std::int32_t fastest : {0, 1, 17, 39}) {
    FakeWorkbench bench;
    bench.us[fastest] = 7;
    Contest contest = untried_contest(40);
    tune(contest, bench, kPlenty, {});
    CAPTURE(fastest);
    CHECK(winner(contest) == fastest);
    CHECK(bench.loaded.empty());
    CHECK(settled(contest));
  }
}

TEST_CASE("each candidate is checked before its time counts, and those that are slow take few samples") {
  FakeWorkbench bench;
  for (std::int32_t i = 0; i < 40; ++i) bench.us[i] = 200 - 3 * i;
  Contest contest = untried_contest(40);
  tune(contest, bench, kPlenty, {});
  CHECK(winner(contest) == 39);
  for (std::int32_t i = 0; i < 40; ++i) CHECK(bench.checks[i] >= 1);
  CHECK(bench.samples[5] < bench.samples[30]);
  CHECK(bench.samples[30] < bench.samples[39]);
}

TEST_CASE("the default is timed in the finals, however slow it is") {
  FakeWorkbench bench;
  bench.us[0] = 1000;
  Contest contest = untried_contest(30);
  tune(contest, bench, kPlenty, {});
  CHECK(contest.candidates[0].final_us.size() >= 11);
  CHECK(standing(contest).speedup == doctest::Approx(100));
}

TEST_CASE("finals are held in rounds of the same length for the best few and the default") {
  FakeWorkbench bench;
  for (std::int32_t i = 1; i < 20; ++i) bench.us[i] = 10 + i;
  bench.us[0] = 50;
  Contest contest = untried_contest(20);
  tune(contest, bench, kPlenty, {});
  std::set<std::int32_t> finalists;
  for (const Candidate& candidate : contest.candidates) {
    if (candidate.final_us.empty()) continue;
    finalists.insert(candidate.config.tile_n - 1);
    CHECK(candidate.final_us.size() == contest.candidates[0].final_us.size());
  }
  CHECK(finalists == std::set<std::int32_t>{0, 1, 2, 3, 4});
}

TEST_CASE("whatever goes wrong with a candidate is recorded with its reason, and the run goes on") {
  FakeWorkbench bench;
  for (const std::int32_t broken : {2, 3, 4, 5, 6, 7, 8}) bench.us[broken] = 1;  // each would win
  bench.unbuilt[2] = "it does not compile: no such instruction";
  bench.unbuilt[3] = "its compile hangs: it was not done after 300 ms";
  bench.wrong[4] = "y[3, 4] is 7, not 8";
  bench.unchecked[5] = "an illegal address";
  bench.spilled[6] = 24;
  bench.code_of[7] = 1;
  bench.code_of[10] = 1;
  bench.own_data = {10};
  bench.dies_at[8] = 5;
  bench.us[9] = 5;
  Contest contest = untried_contest(12);
  tune(contest, bench, kPlenty, {});
  const auto check = [&](std::int32_t number, Outcome outcome, const std::string& part) {
    const Candidate& candidate = contest.candidates[static_cast<std::size_t>(number)];
    CAPTURE(candidate.reason);
    CHECK(candidate.outcome == outcome);
    CHECK(candidate.reason.find(part) != std::string::npos);
  };
  check(2, Outcome::failed, "no such instruction");
  check(3, Outcome::failed, "hangs");
  check(4, Outcome::failed, "its answer is wrong: y[3, 4] is 7, not 8");
  check(5, Outcome::failed, "an illegal address");
  check(6, Outcome::pruned, "it spills: 24 bytes");
  check(7, Outcome::pruned, "the same code as an earlier candidate");
  check(8, Outcome::failed, "the device is lost");
  check(10, Outcome::measured, "");
  CHECK(winner(contest) == 9);
  for (const std::int32_t broken : {2, 3, 4, 5, 6, 7}) CHECK(bench.samples[broken] == 0);
  CHECK(contest.candidates[8].samples_us.size() == 5);
  CHECK(bench.loaded.empty());
}

TEST_CASE("the default is never pruned for spills or for another's code") {
  FakeWorkbench bench;
  bench.spilled[0] = 8;
  bench.code_of[0] = 1;
  Contest contest = untried_contest(4);
  tune(contest, bench, kPlenty, {});
  CHECK(contest.candidates[0].outcome == Outcome::measured);
}

TEST_CASE("where the default is broken, or breaks, the fastest is found all the same") {
  for (const int after : {0, 1, 4, 30}) {
    FakeWorkbench bench;
    if (after == 0)
      bench.wrong[0] = "all of it";
    else
      bench.dies_at[0] = after;
    for (std::int32_t i = 1; i < 40; ++i) bench.us[i] = 300 - 5 * i;
    Contest contest = untried_contest(40);
    tune(contest, bench, kPlenty, {});
    CAPTURE(after);
    CHECK(contest.candidates[0].outcome == Outcome::failed);
    CHECK(winner(contest) == 39);
    CHECK(standing(contest).standard == nullptr);
  }
}

TEST_CASE("the fastest config is found on a machine that is slow from time to time") {
  FakeWorkbench bench;
  bench.drift = true;
  bench.us[23] = 9;
  Contest contest = untried_contest(40);
  tune(contest, bench, kPlenty, {});
  CHECK(winner(contest) == 23);
}

TEST_CASE("where all fail, all are recorded and nothing is chosen") {
  FakeWorkbench bench;
  for (std::int32_t i = 0; i < 9; ++i) bench.wrong[i] = "all of it";
  Contest contest = untried_contest(9);
  tune(contest, bench, kPlenty, {});
  for (const Candidate& candidate : contest.candidates) CHECK(candidate.outcome == Outcome::failed);
  CHECK(winner(contest) == -1);
  CHECK(settled(contest));
}

TEST_CASE("without a clock candidates are checked, and the model's times decide") {
  FakeWorkbench bench;
  bench.clock = false;
  bench.wrong[0] = "one element";
  Contest contest = untried_contest(20);
  tune(contest, bench, kPlenty, {});
  CHECK(winner(contest) == 1);
  CHECK(contest.candidates[0].outcome == Outcome::failed);
  for (std::size_t i = 1; i < 20; ++i) CHECK(contest.candidates[i].outcome == Outcome::modelled);
  CHECK_FALSE(standing(contest).measured);
  CHECK(settled(contest));
}

TEST_CASE("a budget that is too small leaves the last untried, and still has finals") {
  FakeWorkbench bench;
  bench.compile_time = 5ms;
  Contest contest = untried_contest(200);
  const auto begin = std::chrono::steady_clock::now();
  tune(contest, bench, {.budget = 200ms}, {});
  CHECK(std::chrono::steady_clock::now() - begin < 2s);
  CHECK(contest.candidates[0].final_us.size() >= 11);
  CHECK(contest.candidates[7].outcome == Outcome::measured);
  CHECK(contest.candidates[199].outcome == Outcome::untried);
  CHECK_FALSE(settled(contest));
}

TEST_CASE("it ends soon after it is told to stop, whenever that is") {
  for (int after = 0; after < 400; after += 23) {
    FakeWorkbench bench;
    Contest contest = untried_contest(16);
    int asked = 0;
    int after_stop = 0;
    tune(contest, bench, {.budget = 60s, .stop = [&] { return asked++ >= after; }}, [&](const Event&) {
      if (asked > after) ++after_stop;
    });
    CAPTURE(after);
    CHECK(after_stop <= 32);  // what was being done: no more than a sample of each
    CHECK(bench.loaded.empty());
  }
}

TEST_CASE("a later run goes on with what is untried, and removes nothing") {
  FakeWorkbench first;
  first.compile_time = 5ms;
  Contest contest = untried_contest(120);
  tune(contest, first, {.budget = 150ms}, {});
  REQUIRE_FALSE(settled(contest));
  const Contest before = contest;
  FakeWorkbench second;
  second.us[119] = 2;
  tune(contest, second, kPlenty, {});
  CHECK(settled(contest));
  CHECK(winner(contest) == 119);
  const auto compiled_before =
      std::count_if(before.candidates.begin(), before.candidates.end(),
                    [](const Candidate& one) { return one.outcome == Outcome::measured; });
  REQUIRE(second.order.size() > 8);
  CHECK(second.order[0] == 0);  // the default, which the others are held against
  for (std::size_t i = 1; i <= 8; ++i) CHECK(second.order[i] >= compiled_before);
  for (std::size_t i = 0; i < before.candidates.size(); ++i)
    CHECK(contest.candidates[i].samples_us.size() >=
          before.candidates[i].samples_us.size() +
              before.candidates[i].final_us.size() * (contest.candidates[i].final_us.empty() ? 0U : 1U));
}

TEST_CASE("the events of a run, applied again, give the contest that it ended with") {
  FakeWorkbench bench;
  bench.noise = 0.02;
  bench.wrong[3] = "an element";
  bench.unbuilt[5] = "it crashes";
  bench.dies_at[6] = 4;
  bench.code_of[7] = 1;
  const Contest begin = untried_contest(24);
  Contest contest = begin;
  std::vector<Event> events;
  const auto note = [&](const Event& event) { events.push_back(event); };
  tune(contest, bench, kPlenty, note);
  tune(contest, bench, kPlenty, note);  // finals once more
  Contest replayed = begin;
  for (const Event& event : events) apply(parse_event(to_json(event)), replayed);
  CHECK(replayed == contest);
  std::size_t samples = 0;
  for (const Candidate& candidate : contest.candidates)
    samples += candidate.samples_us.size() + candidate.final_us.size();
  CHECK(samples ==
        static_cast<std::size_t>(std::count_if(events.begin(), events.end(), [](const Event& event) {
          return event.kind == Event::Kind::sample || event.kind == Event::Kind::final;
        })));
}

TEST_CASE("two runs with 2 % of noise agree on the winner, or on a tie, for 9 of 10 problems") {
  int agree = 0;
  constexpr int kProblems = 20;
  for (unsigned problem = 0; problem < kProblems; ++problem) {
    std::mt19937 random(problem);
    std::uniform_real_distribution<double> time(10, 13);
    std::map<std::int32_t, double> us;
    for (std::int32_t i = 0; i < 48; ++i) us[i] = time(random);
    const auto run = [&](unsigned seed) {
      FakeWorkbench bench(seed);
      bench.noise = 0.02;
      bench.us = us;
      Contest contest = untried_contest(48);
      tune(contest, bench, kPlenty, {});
      return contest;
    };
    const Contest a = run(100 + problem);
    const Contest b = run(200 + problem);
    const bool tie = std::abs(us[winner(a)] / us[winner(b)] - 1) <= kTie;
    agree += winner(a) == winner(b) || tie;
    for (const Contest* contest : {&a, &b}) CHECK(us[winner(*contest)] <= us[0] * (1 + 2 * kTie));
  }
  CHECK(agree >= kProblems * 9 / 10);
}

TEST_CASE("a contest has the model's choice first, then the others by their predicted time") {
  Problem problem;
  problem.layout = patterns::random(16, 16, 0.3, 1);
  problem.batch = 64;
  const Target target{Target::Kind::cuda, "sm_90", 132};
  const Config chosen{.variant = Variant::simt, .tile_n = 64, .tile_out = 4, .stages = 2, .warps = 4};
  const Contest contest = make_contest(problem, target, {64, chosen});
  REQUIRE(contest.candidates.size() > 10);
  CHECK(contest.default_config == chosen);
  CHECK(contest.candidates[0].config == chosen);
  CHECK(std::is_sorted(contest.candidates.begin() + 1, contest.candidates.end(),
                       [](const auto& a, const auto& b) { return a.predicted_us < b.predicted_us; }));
  CHECK(std::count_if(contest.candidates.begin(), contest.candidates.end(),
                      [&](const auto& one) { return one.config == chosen; }) == 1);
  CHECK(contest.flops > 0);
  CHECK(contest.bytes > 0);
  for (const PrunedGroup& group : contest.pruned) {
    CHECK(group.count > 0);
    CHECK_FALSE(group.reason.empty());
  }
}

TEST_CASE("what an earlier contest knew is kept, and what the space has no more stays if it was measured") {
  Contest fresh = contest_of({untried(0, 5), untried(1, 6), untried(4, 7)});
  const Contest earlier =
      contest_of({measured(1, {3}), measured(2, {2}), failed(3, "wrong"), failed(4, "wrong")});
  const Contest both = merged(fresh, earlier, true);
  REQUIRE(both.candidates.size() == 4);
  CHECK(both.default_config == config_of(0));
  CHECK(both.candidates[0].outcome == Outcome::untried);
  CHECK(both.candidates[1].samples_us == std::vector<double>{3});
  CHECK(both.candidates[1].predicted_us == 6);
  CHECK(both.candidates[2].outcome == Outcome::failed);
  CHECK(both.candidates[3] == earlier.candidates[1]);
}

TEST_CASE("only measured times of another compiler count, and its finals are samples") {
  const std::vector<double> rounds(11, 2.0);
  const Contest fresh = contest_of({untried(0, 5), untried(1, 6)});
  const Contest earlier = contest_of({measured(0, {3}, rounds), failed(1, "wrong")});
  CHECK(settled(merged(fresh, earlier, true)));
  const Contest anew = merged(fresh, earlier, false);
  CHECK_FALSE(settled(anew));
  CHECK(anew.candidates[0].final_us.empty());
  CHECK(anew.candidates[0].samples_us.size() == 12);
  CHECK(anew.candidates[1].outcome == Outcome::untried);
}

TEST_CASE("a contest is settled when nothing is untried and finals were held, where they can be") {
  CHECK(settled(contest_of({modelled(0, 1), failed(1, "wrong")})));
  CHECK_FALSE(settled(contest_of({modelled(0, 1), untried(1)})));
  CHECK_FALSE(settled(contest_of({measured(0, {1}), measured(1, {1})})));
  const std::vector<double> rounds(11, 1.0);
  CHECK(settled(contest_of({measured(0, {1}, rounds), measured(1, {1})})));
  CHECK_FALSE(settled(contest_of({measured(0, {1}, {1, 1}), measured(1, {1})})));
}

}  // namespace
}  // namespace sparsekiln

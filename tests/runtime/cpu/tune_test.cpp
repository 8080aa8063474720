#include "runtime/tune.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "autotune/default_plan.h"
#include "autotune/record_json.h"
#include "autotune/shipped_records.h"
#include "compiler/build.h"
#include "runtime/build.h"
#include "runtime/environment.h"
#include "runtime/records.h"
#include "runtime/stores.h"
#include "tests/temporary_folder.h"

namespace sparsekiln {
namespace {

using namespace std::chrono_literals;
using test::TemporaryFolder;

constexpr std::chrono::duration<double> kBudget{1.0};

Layout layout() { return patterns::random(8, 8, 0.4, 3); }

/// A layer that is small, with a store of its own.
struct Bench {
  TemporaryFolder folder;
  Options options{.block = {8, 8}, .batch = 16, .target = "cpu", .cache_dir = folder.path()};

  [[nodiscard]] BuildJob job() const {
    Options untuned = options;
    untuned.tuning = Tuning::recorded;
    return job_of(layout(), untuned);
  }
  [[nodiscard]] Record tuned(TuneOptions how = {}) const {
    if (how.budget == TuneOptions().budget) how.budget = kBudget;
    return tune(job(), "cpu", how);
  }
  [[nodiscard]] std::vector<std::filesystem::path> journals() const {
    std::vector<std::filesystem::path> found;
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder.path()))
      if (file.path().extension() == ".journal") found.push_back(file.path());
    return found;
  }
};

/// All that were ever taken.
std::size_t samples_in(const Record& record) {
  std::size_t samples = 0;
  for (const Contest& contest : record.contests)
    for (const Candidate& candidate : contest.candidates)
      samples += candidate.samples_us.size() + candidate.final_us.size();
  return samples;
}

TEST_CASE("a kernel that is compiled after tuning has the config that won") {
  const Bench bench;
  const Record record = bench.tuned();
  REQUIRE(record.contests.size() == 1);
  const Standing found = standing(record.contests[0]);
  REQUIRE(found.best != nullptr);
  REQUIRE(found.standard != nullptr);
  CHECK(found.measured);
  CHECK(found.speedup >= 1 / (1 + kTie));
  CHECK(found.best->final_us.size() >= 11);
  CHECK(record.environment == *environment_of(bench.job().target, "cpu"));
  CHECK(record.peak.measured);
  CHECK(record.contests[0].floor_us > 0);
  CHECK(compile(layout(), bench.options).binary().plan == record.plan());
  CHECK(bench.journals().empty());
}

TEST_CASE("Tuning::now tunes, and compiles what won") {
  Bench bench;
  bench.options.tuning = Tuning::now;
  bench.options.tuning_seconds = kBudget.count();
  const Kernel kernel = compile(layout(), bench.options);
  const auto record = find_record(*store_in(bench.folder.path()), untuned(bench.job(), "cpu"));
  REQUIRE(record.has_value());
  CHECK(kernel.binary().plan == record->plan());
  CHECK(samples_in(*record) > 0);
}

TEST_CASE("Tuning::now for a device that is not here is refused with what would work") {
  Bench bench;
  bench.options.tuning = Tuning::now;
  bench.options.target = bench.job().target.arch == "generic" ? "x86-64-v3:2" : "generic:2";
  std::string message;
  try {
    (void)build(layout(), bench.options);
  } catch (const Error& error) {
    message = error.what();
  }
  CAPTURE(message);
  CHECK(message.find("no such device") != std::string::npos);
}

TEST_CASE("what is not chosen by tuning is refused") {
  Bench bench;
  bench.options.config = choose_plan(bench.job().problem, bench.job().target)[0].config;
  CHECK_THROWS_AS((void)bench.tuned(), Error);
  bench.options.config.reset();
  bench.options.batch = 0;
  CHECK_THROWS_AS((void)bench.tuned(), Error);
}

TEST_CASE("broken candidates are recorded with their reasons, none is chosen, and the run goes on") {
  const Bench bench;
  const BuildJob job = bench.job();
  const Contest contest = untuned(job, "cpu").contests.at(0);
  REQUIRE(contest.candidates.size() > 6);
  std::vector<Config> configs;
  for (const Candidate& candidate : contest.candidates) configs.push_back(candidate.config);
  // As `problem` asks, but that its blocks lie elsewhere: as many of them, for the operands to fit.
  const auto of_another_layout = [](Problem problem, const Target& target, const Plan& plan) {
    for (int seed = 4;; ++seed) {
      const Layout other = patterns::random(8, 8, 0.4, static_cast<std::uint64_t>(seed));
      if (other.blocks() != problem.layout.blocks() || other.digest() == problem.layout.digest()) continue;
      problem.layout = other;
      return build_binary(problem, target, plan);
    }
  };
  const auto broken = [&](const Problem& problem, const Target& target, const Plan& plan) {
    const Config& config = plan[0].config;
    if (config == configs[1]) return of_another_layout(problem, target, plan);
    if (config == configs[2]) std::this_thread::sleep_for(60s);
    if (config == configs[3]) {
      std::signal(SIGSEGV, SIG_DFL);
      ::raise(SIGSEGV);
    }
    if (config == configs[5]) throw Error(ErrorKind::compile, "an unknown instruction");
    Binary binary = build_binary(problem, target, plan);
    if (config == configs[4]) binary.entries[0].resources.spill_load_bytes = 40;
    return binary;
  };
  const Record record = bench.tuned({.budget = 3s, .compile_limit = 1s, .hooks = {broken}});
  const auto check = [&](std::size_t number, Outcome outcome, const char* part) {
    const Candidate* const candidate = record.contests[0].find(configs[number]);
    REQUIRE(candidate != nullptr);
    CAPTURE(number);
    CAPTURE(candidate->reason);
    CHECK(candidate->outcome == outcome);
    CHECK(candidate->reason.find(part) != std::string::npos);
    CHECK(candidate->samples_us.empty());
  };
  check(1, Outcome::failed, "its answer is wrong: ");
  check(2, Outcome::failed, "its compile hangs: it was not done after 1000 ms");
  check(3, Outcome::failed, "the compiler crashed: its process was ended by signal 11");
  check(4, Outcome::pruned, "it spills: 0 bytes stored, 40 loaded");
  check(5, Outcome::failed, "it does not compile: an unknown instruction");
  CHECK(standing(record.contests[0]).measured);
  const Config chosen = record.plan()[0].config;
  for (std::size_t i = 1; i <= 5; ++i) CHECK_FALSE(chosen == configs[i]);
  CHECK(record.contests[0].candidates[0].outcome == Outcome::measured);

  const auto found = find_record(*store_in(bench.folder.path()), record);
  REQUIRE(found.has_value());
  CHECK(*found == record);
  CHECK(parse_record(to_json(record)) == record);
}

TEST_CASE("a compile that gives no Binary fails alone") {
  const Bench bench;
  const Config bad = untuned(bench.job(), "cpu").contests.at(0).candidates.at(1).config;
  const Record record =
      bench.tuned({.hooks = {[&](const Problem& problem, const Target& target, const Plan& plan) {
                     Binary binary = build_binary(problem, target, plan);
                     if (plan[0].config == bad) binary.entries.clear();
                     return binary;
                   }}});
  CHECK(record.contests[0].find(bad)->outcome == Outcome::failed);
  CHECK(standing(record.contests[0]).measured);
}

TEST_CASE("a default that does not compile is not chosen") {
  const Bench bench;
  const Config standard = untuned(bench.job(), "cpu").contests.at(0).default_config;
  const Record record = bench.tuned(
      {.budget = 3s, .hooks = {[&](const Problem& problem, const Target& target, const Plan& plan) {
                       if (plan[0].config == standard) throw Error(ErrorKind::compile, "not this one");
                       return build_binary(problem, target, plan);
                     }}});
  CHECK_FALSE(record.plan()[0].config == standard);
  CHECK(standing(record.contests[0]).measured);
}

TEST_CASE("a second run of what is tuned answers from the record, and `again` adds to it") {
  const Bench bench;
  TuneOptions patient{.budget = 60s, .hooks = {}};
  const std::set<std::size_t> few = {0, 1, 2};
  const Contest contest = untuned(bench.job(), "cpu").contests.at(0);
  // All but a few do not compile, which takes no time.
  patient.hooks.build = [&](const Problem& problem, const Target& target, const Plan& plan) {
    const auto at = std::find_if(contest.candidates.begin(), contest.candidates.end(),
                                 [&](const Candidate& one) { return one.config == plan[0].config; });
    if (!few.contains(static_cast<std::size_t>(at - contest.candidates.begin())))
      throw Error(ErrorKind::compile, "not now");
    return build_binary(problem, target, plan);
  };
  // A budget that its rounds end within: the fewest are taken then.
  patient.budget = 20s;
  patient.stop = {};
  const Record first = bench.tuned(patient);
  const auto begin = std::chrono::steady_clock::now();
  const Record second =
      bench.tuned({.hooks = {[](const auto&, const auto&, const auto&) -> Binary { std::abort(); }}});
  CHECK(std::chrono::steady_clock::now() - begin < 500ms);
  CHECK(second == first);
  patient.again = true;
  const Record third = bench.tuned(patient);
  CHECK(samples_in(third) > samples_in(first));
  CHECK(third.seconds > first.seconds);
}

TEST_CASE("a run that is stopped keeps what it has, and the next goes on from there") {
  const Bench bench;
  std::size_t before = 0;
  for (const int more : {1, 20, 40}) {
    bool measured = false;
    int asked = 0;
    const Record record =
        bench.tuned({.budget = 10s,
                     .stop = [&] { return measured && ++asked > more; },
                     .progress = [&](const TuningProgress& now) { measured |= now.best_us > 0; }});
    const std::size_t now = samples_in(record);
    CHECK(now >= before);
    before = now;
    CHECK(bench.journals().empty());
  }
  CHECK(before > 0);
  const Record last = bench.tuned();
  CHECK(samples_in(last) > before);
  CHECK(standing(last.contests[0]).best->final_us.size() >= 11);
}

TEST_CASE(
    "what a killed run had noted is in the next record once, also where it was killed at its very end") {
  const Bench bench;
  // The journal as it stands when the run has noted some samples.
  std::string noted;
  std::filesystem::path where;
  const Record first = bench.tuned({.progress = [&](const TuningProgress&) {
    const auto journals = bench.journals();
    REQUIRE(journals.size() == 1);
    where = journals[0];
    std::ifstream in(where, std::ios::binary);
    noted.assign(std::istreambuf_iterator<char>(in), {});
  }});
  REQUIRE_FALSE(noted.empty());
  const auto put_back = [&](const std::string& text) {
    std::ofstream(where, std::ios::binary) << text;
    std::filesystem::permissions(where,
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  };
  // Killed between publishing the record and removing the journal: it holds nothing that the record has not.
  put_back(noted);
  const Record again = bench.tuned({.again = true, .stop = [] { return true; }});
  CHECK(samples_in(again) == samples_in(first));
  CHECK(bench.journals().empty());

  // Killed before: another store that has the journal alone, with a torn last line.
  const Bench other;
  std::filesystem::create_directories(other.folder.path());
  std::filesystem::copy(
      bench.folder.path(), other.folder.path(),
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  for (const auto& file : std::filesystem::recursive_directory_iterator(other.folder.path()))
    if (file.is_regular_file()) std::filesystem::remove(file.path());
  where = other.folder.path() / std::filesystem::relative(where, bench.folder.path());
  put_back(noted + "{\"n\":16,\"conf");
  const Record resumed = other.tuned({.stop = [] { return true; }});
  CHECK(samples_in(resumed) == samples_in(first));
}

TEST_CASE("a run that is stopped while another tunes does not change the other's journal and record") {
  const Bench bench;
  const BuildJob job = bench.job();
  const Record blank = untuned(job, "cpu");
  const auto store = store_in(bench.folder.path());
  const auto held = store->lock(record_identity(blank), {}, [] { return false; });
  REQUIRE((held && held->held()));
  auto journal = store->journal(record_identity(blank));
  REQUIRE(journal.has_value());
  journal->append("another one's");
  (void)bench.tuned({.stop = [] { return true; }});
  CHECK(journal->lines() == std::vector<std::string>{"another one's"});
  CHECK_FALSE(find_record(*store, blank).has_value());
}

TEST_CASE("a run that waits for another takes its record, even if configs were left untried") {
  const Bench bench;
  std::optional<Record> theirs;
  std::thread other;
  const auto begin_other = [&](const TuningProgress&) {
    if (!other.joinable()) other = std::thread([&] { theirs = bench.tuned({.budget = 500ms}); });
  };
  const Record record = bench.tuned({.budget = 500ms, .progress = begin_other});
  REQUIRE(other.joinable());
  other.join();
  const auto& candidates = record.contests[0].candidates;
  REQUIRE(std::any_of(candidates.begin(), candidates.end(),
                      [](const Candidate& one) { return one.outcome == Outcome::untried; }));
  CHECK(theirs == record);
}

/// A plan of the problem that is not the model's choice.
Plan other_plan(const BuildJob& job, std::size_t number) {
  const Contest contest = untuned(job, "cpu").contests.at(0);
  return {{contest.n, contest.candidates.at(number).config}};
}

/// As if tuning on that machine had found the plan.
Record record_with(const BuildJob& job, const Plan& plan, const Environment& environment) {
  Record record = untuned(job, "cpu");
  record.environment = environment;
  for (Candidate& candidate : record.contests[0].candidates) {
    const bool best = candidate.config == plan[0].config;
    candidate = {.config = candidate.config, .outcome = best ? Outcome::measured : Outcome::failed};
    if (best) candidate.samples_us = {1};
  }
  REQUIRE(record.plan() == plan);
  return record;
}

TEST_CASE("another environment's record serves where there is none of one's own, and only then") {
  const Bench bench;
  const BuildJob job = bench.job();
  const auto store = store_in(bench.folder.path());
  const auto here = environment_of(job.target, "cpu");
  REQUIRE(here.has_value());
  Environment there = *here;
  there.device = "Another Processor";
  const Plan own = other_plan(job, 1);
  const Plan foreign = other_plan(job, 2);
  const auto chosen = [&] { return chosen_plan(*store, job.problem, job.target, here); };
  CHECK_FALSE(chosen().has_value());
  publish(*store, record_with(job, foreign, there));
  CHECK(chosen() == foreign);
  CHECK(chosen_plan(*store, job.problem, job.target, std::nullopt) == foreign);
  publish(*store, record_with(job, own, *here));
  CHECK(chosen() == own);
  publish(*store, record_with(job, foreign, there));
  CHECK(chosen() == own);
  CHECK(build(layout(), bench.options).binary->plan == own);
}

TEST_CASE("a record that is shipped serves where the store has none") {
  // One of the layers that bench/tuning.py tunes: 2560 hidden units in blocks of 32, a quarter of them
  // present.
  const Layout shipped = patterns::random(80, 80, 0.25, 1);
  const std::string_view lines = shipped_record_lines();
  const std::size_t at = lines.find(shipped.digest().hex());
  REQUIRE(at != std::string_view::npos);
  const std::size_t begin = lines.rfind('\n', at) + 1;
  const Record record = parse_record(lines.substr(begin, lines.find('\n', at) - begin));
  const Target target = Target::parse(record.field("target"));
  const TemporaryFolder folder;
  const Problem problem = make_problem(shipped, {.batch = 64, .target = target.to_string()});
  CHECK(problem_fields(problem, target) == record.problem);
  const auto store = store_in(folder.path());
  CHECK(chosen_plan(*store, problem, target, std::nullopt) == record.plan());
  CHECK(chosen_plan(*store, problem, target, record.environment) == record.plan());
  const Problem other = make_problem(shipped, {.batch = 65, .target = target.to_string()});
  CHECK(chosen_plan(*store, other, target, std::nullopt) == std::nullopt);
}

TEST_CASE("a record of another problem or target is not taken") {
  const Bench bench;
  const BuildJob job = bench.job();
  const auto store = store_in(bench.folder.path());
  const auto here = environment_of(job.target, "cpu");
  publish(*store, record_with(job, other_plan(job, 1), *here));
  BuildJob other = job;
  other.problem.batch = 24;
  CHECK_FALSE(chosen_plan(*store, other.problem, other.target, here).has_value());
  other = job;
  other.target.workers += 1;
  CHECK_FALSE(chosen_plan(*store, other.problem, other.target, here).has_value());
}

TEST_CASE("a plan that this version refuses is skipped, and the default plan is taken") {
  const Bench bench;
  const BuildJob job = bench.job();
  const auto store = store_in(bench.folder.path());
  const auto here = environment_of(job.target, "cpu");
  Plan refused = other_plan(job, 1);
  refused[0].config.tile_n = 5;
  REQUIRE_FALSE(ConfigCheck(job.problem, job.target).refusal(refused[0].config).empty());
  Plan packed = other_plan(job, 1);  // which would change what a caller must pass
  packed[0].config.packed = true;
  REQUIRE(ConfigCheck(job.problem, job.target).refusal(packed[0].config).empty());
  const Record blank = untuned(job, "cpu");
  for (const Plan& plan : {refused, packed}) {
    Record record = blank;
    record.contests[0].candidates[0].outcome = Outcome::failed;
    record.contests[0].candidates.push_back(
        {.config = plan[0].config, .outcome = Outcome::measured, .samples_us = {1}});
    REQUIRE(record.plan() == plan);
    publish(*store, record);
    CHECK_FALSE(chosen_plan(*store, job.problem, job.target, here).has_value());
  }
  CHECK(build(layout(), bench.options).binary->plan == choose_plan(job.problem, job.target));
}

TEST_CASE("modelled times choose nothing, and replace no measured choice") {
  const Bench bench;
  const BuildJob job = bench.job();
  const auto store = store_in(bench.folder.path());
  const auto here = environment_of(job.target, "cpu");
  Record modelled = untuned(job, "cpu");
  for (Candidate& candidate : modelled.contests[0].candidates) candidate.outcome = Outcome::modelled;
  publish(*store, modelled);
  CHECK_FALSE(chosen_plan(*store, job.problem, job.target, here).has_value());
  const Plan measured = other_plan(job, 1);
  publish(*store, record_with(job, measured, *here));
  publish(*store, modelled);
  CHECK(chosen_plan(*store, job.problem, job.target, here) == measured);
}

TEST_CASE("Tuning::now takes what was measured here, though configs are left untried") {
  Bench bench;
  const BuildJob job = bench.job();
  const auto store = store_in(bench.folder.path());
  const Plan plan = other_plan(job, 1);
  Record record = record_with(job, plan, *environment_of(job.target, "cpu"));
  record.contests[0].candidates.back().outcome = Outcome::untried;
  publish(*store, record);
  bench.options.tuning = Tuning::now;
  CHECK(build(layout(), bench.options).binary->plan == plan);
  bench.options.require = Require::prebuilt;
  CHECK_THROWS_WITH_AS(static_cast<void>(build(layout(), bench.options)), doctest::Contains("prebuilt"),
                       Error);
}

TEST_CASE("a dynamic batch is tuned range by range within one budget") {
  Bench bench;
  bench.options.batch = Batch::up_to(64);
  const auto begin = std::chrono::steady_clock::now();
  const Record record = bench.tuned();
  CHECK(std::chrono::steady_clock::now() - begin < 20s);
  CHECK(record.contests.size() == choose_plan(bench.job().problem, bench.job().target).size());
  for (const Contest& contest : record.contests) CHECK(standing(contest).measured);
  CHECK(compile(layout(), bench.options).binary().plan == record.plan());
}

TEST_CASE("where the store cannot be written it is tuned all the same") {
  Bench bench;
  bench.options.cache_dir = "/proc/no/such/folder";
  const Record record = bench.tuned({.budget = 300ms});
  CHECK(standing(record.contests[0]).measured);
}

TEST_CASE("a modelled record names no sample, and counts all candidates as untried") {
  const Bench bench;
  const Record record = untuned(bench.job(), "cpu");
  CHECK(samples_in(record) == 0);
  for (const Candidate& candidate : record.contests.at(0).candidates) {
    CHECK(candidate.outcome == Outcome::untried);
    CHECK(candidate.predicted_us > 0);
  }
  CHECK(record.plan() == choose_plan(bench.job().problem, bench.job().target));
}

}  // namespace
}  // namespace sparsekiln

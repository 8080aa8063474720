#include "autotune/space.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/patterns.h>

#include "autotune/default_plan.h"
#include "autotune/tuner.h"
#include "compiler/build.h"

namespace sparsekiln {
namespace {

struct Case {
  Problem problem;
  Target target;
};

std::vector<Target> targets() {
  std::vector<Target> targets{{Target::Kind::cuda, "sm_75", 40},
                              {Target::Kind::cuda, "sm_80", 108},
                              {Target::Kind::cuda, "sm_90", 132}};
#ifdef SPARSEKILN_CPU
  targets.push_back({Target::Kind::cpu, "x86-64-v3", 2});
  targets.push_back({Target::Kind::cpu, "x86-64-v4", 8});
#endif
  return targets;
}

Problem problem_of(Operation operation, DType dtype, Batch batch) {
  Problem problem;
  problem.operation = operation;
  problem.layout = patterns::random(8, 9, 0.3, 1);
  problem.block = {16, 32};
  problem.dtype = dtype;
  problem.out_dtype = dtype;
  problem.batch = batch;
  return problem;
}

/// Operations × targets × types × batches, a fixed and a dynamic one.
std::vector<Case> cases() {
  std::vector<Case> cases;
  for (const Target& target : targets())
    for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight})
      for (const DType dtype : {DType::f32, DType::f16, DType::f64})
        for (const Batch batch : {Batch(7), Batch::up_to(64)})
          if (dtype != DType::f64 || target.kind == Target::Kind::cpu)
            cases.push_back({problem_of(operation, dtype, batch), target});
  return cases;
}

bool contains(const Space& space, const Config& config) {
  return std::find(space.configs.begin(), space.configs.end(), config) != space.configs.end();
}

TEST_CASE("every config of a space works, none is there twice, and each that is rejected has a reason") {
  for (const auto& [problem, target] : cases()) {
    CAPTURE(target.to_string());
    CAPTURE(name(problem.operation));
    CAPTURE(name(problem.dtype));
    CAPTURE(to_string(problem.batch));
    const Space space = space_of(problem, target, problem.batch.bound());
    const ConfigCheck check(problem, target);
    std::set<std::string> seen;
    bool all_work = true;
    for (const Config& config : space.configs) {
      all_work = all_work && check.refusal(config).empty();
      seen.insert(to_string(config));
    }
    CHECK(all_work);
    bool all_explained = true;
    for (const RejectedConfig& one : space.rejected) {
      all_explained = all_explained && !one.reason.empty();
      seen.insert(to_string(one.config));
    }
    CHECK(all_explained);
    CHECK(seen.size() == space.configs.size() + space.rejected.size());
    // Enough to choose among, and few enough to go through.
    CHECK(space.configs.size() >= 8);
    CHECK(seen.size() <= 20'000);
  }
}

TEST_CASE("a contest has the default plan's config once, and counts every config of the space") {
  for (const auto& [problem, target] : cases())
    for (const RangedConfig& chosen : choose_plan(problem, target)) {
      CAPTURE(target.to_string());
      CAPTURE(name(problem.operation));
      CAPTURE(to_string(chosen.config));
      const Space space = space_of(problem, target, chosen.up_to);
      const Contest contest = make_contest(problem, target, chosen);
      CHECK(contest.candidates.front().config == chosen.config);
      std::set<std::string> candidates;
      for (const Candidate& candidate : contest.candidates) candidates.insert(to_string(candidate.config));
      CHECK(candidates.size() == contest.candidates.size());
      std::size_t pruned = 0;
      for (const PrunedGroup& group : contest.pruned) pruned += static_cast<std::size_t>(group.count);
      const std::size_t in_space = contains(space, chosen.config) ? 0 : 1;
      std::size_t rejected = 0;  // that the constraints would keep from a try, yet the model may choose
      for (const RejectedConfig& one : space.rejected) rejected += one.config == chosen.config;
      CHECK(contest.candidates.size() + pruned == space.configs.size() + space.rejected.size() + in_space);
      CHECK(rejected <= 1);
    }
}

TEST_CASE("a space asks nothing else of its caller: weights are unpacked, and layouts are baked in") {
  for (const auto& [problem, target] : cases())
    for (const Config& config : space_of(problem, target, problem.batch.bound()).configs)
      if (config.packed || config.table == TableForm::attached) FAIL_CHECK(to_string(config));
}

TEST_CASE("strict_absent leaves no config that merges rows by zero fill, and says so") {
  Problem problem = problem_of(Operation::forward, DType::f16, 64);
  const Target target{Target::Kind::cuda, "sm_90", 132};
  const auto merges = [](const Config& config) { return config.merge > 1; };
  const Space loose = space_of(problem, target, 64);
  CHECK(std::any_of(loose.configs.begin(), loose.configs.end(), merges));
  problem.strict_absent = true;
  const Space strict = space_of(problem, target, 64);
  CHECK(std::none_of(strict.configs.begin(), strict.configs.end(), merges));
  CHECK(strict.configs.size() > 8);
  const auto explained = std::find_if(strict.rejected.begin(), strict.rejected.end(), [](const auto& one) {
    return one.config.merge > 1 && one.reason.find("zeros may fill them up") != std::string::npos;
  });
  CHECK(explained != strict.rejected.end());
}

TEST_CASE("on CUDA the tables of a dynamic batch are global, for the plan's maker chooses their form") {
  for (const Target& target : targets()) {
    if (target.kind != Target::Kind::cuda) continue;
    for (const Operation operation : {Operation::forward, Operation::grad_weight}) {
      const Problem problem = problem_of(operation, DType::f16, Batch::up_to(64));
      for (const Config& config : space_of(problem, target, 64).configs)
        if (config.table != TableForm::global) FAIL_CHECK(to_string(config));
    }
  }
}

TEST_CASE("clusters of four are in the space of a part that says how many it holds, and are no defaults") {
  Problem problem = problem_of(Operation::forward, DType::f16, 4096);
  problem.block = {64, 64};
  const Target target = Target::parse("h100");
  const auto is_of_four = [](const Config& config) { return config.cluster * config.cluster_rows == 4; };
  const Space unknown = space_of(problem, target, 4096);
  CHECK(std::none_of(unknown.configs.begin(), unknown.configs.end(), is_of_four));
  CHECK(std::any_of(unknown.rejected.begin(), unknown.rejected.end(), [&](const auto& one) {
    return is_of_four(one.config) && one.reason.find("no driver has said") != std::string::npos;
  }));
  const Space known = space_of(problem, target, 4096, {.clusters_of_four = 30});
  CHECK(std::any_of(known.configs.begin(), known.configs.end(), is_of_four));
  const std::vector<Config> defaults = default_candidates(problem, target, 4096);
  CHECK(std::none_of(defaults.begin(), defaults.end(), is_of_four));
}

TEST_CASE("a tile twice the batch is no candidate of a product") {
  for (const Target& target : targets()) {
    const Problem problem = problem_of(Operation::forward, DType::f32, 9);
    for (const Config& config : space_of(problem, target, 9).configs)
      if (config.tile_n >= 18) FAIL_CHECK(to_string(config));
  }
}

TEST_CASE("an item has no more output tiles than the layout has rows") {
  Problem problem = problem_of(Operation::forward, DType::f16, 64);
  problem.layout = patterns::random(2, 9, 0.5, 1);
  for (const Config& config : space_of(problem, {Target::Kind::cuda, "sm_90", 132}, 64).configs)
    if (config.rows > 2) FAIL_CHECK(to_string(config));
}

TEST_CASE("a layout without rows or blocks has a space") {
  for (const Layout& layout : {patterns::random(4, 4, 0, 1), Layout()}) {
    Problem problem = problem_of(Operation::forward, DType::f32, 64);
    problem.layout = layout;
    const Space space = space_of(problem, {Target::Kind::cuda, "sm_90", 132}, 64);
    CHECK_FALSE(space.configs.empty());
  }
}

}  // namespace
}  // namespace sparsekiln

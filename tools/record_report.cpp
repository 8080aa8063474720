#include "tools/record_report.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include <fmt/format.h>

namespace sparsekiln::tools {
namespace {

std::size_t count(const Contest& contest, Outcome outcome) {
  return static_cast<std::size_t>(
      std::count_if(contest.candidates.begin(), contest.candidates.end(),
                    [&](const Candidate& candidate) { return candidate.outcome == outcome; }));
}

Json describe(const Candidate& candidate) {
  const Spread time = *candidate.time_us();
  return {{"config", to_string(candidate.config)},
          {"median_us", time.median},
          {"p20_us", time.p20},
          {"p80_us", time.p80},
          {"measured", candidate.outcome == Outcome::measured}};
}

void report_contest(const Contest& contest, Json& problem, std::string& text) {
  const Standing found = standing(contest);
  std::size_t pruned = count(contest, Outcome::pruned);
  for (const PrunedGroup& group : contest.pruned) pruned += static_cast<std::size_t>(group.count);
  Json json = {{"n", contest.n},
               {"best", found.best == nullptr ? Json() : describe(*found.best)},
               {"default", found.standard == nullptr ? Json() : describe(*found.standard)},
               {"speedup", found.speedup},
               {"margin", found.margin},
               {"tie", found.tie},
               {"measured", found.measured},
               {"floor_us", contest.floor_us},
               {"candidates",
                {{"tried", count(contest, Outcome::measured) + count(contest, Outcome::modelled)},
                 {"pruned", pruned},
                 {"failed", count(contest, Outcome::failed)},
                 {"untried", count(contest, Outcome::untried)}}}};
  problem["contests"].push_back(std::move(json));
  if (found.best == nullptr) {
    text += fmt::format("  n {}: the cost model chooses {}, by its prediction {:.1f} us; nothing was tried\n",
                        contest.n, to_string(contest.default_config),
                        contest.candidates.empty() ? 0 : contest.candidates.front().predicted_us);
    return;
  }
  const std::string_view clock = found.measured ? "measured" : "modelled";
  text += fmt::format("  n {}: {:.1f} us ({}) {}\n", contest.n, found.best->time_us()->median, clock,
                      to_string(found.best->config));
  if (found.standard != nullptr && found.best == found.standard)
    text += "    which is the cost model's choice\n";
  else if (found.standard != nullptr)
    text += fmt::format("    the cost model's choice takes {:.1f} us, {:.2f} times as long: {}\n",
                        found.standard->time_us()->median, found.speedup, to_string(found.standard->config));
  text += fmt::format("    {} tried, {} pruned, {} failed, {} untried\n",
                      count(contest, Outcome::measured) + count(contest, Outcome::modelled), pruned,
                      count(contest, Outcome::failed), count(contest, Outcome::untried));
  for (const Candidate& candidate : contest.candidates)
    if (candidate.outcome == Outcome::failed)
      text += fmt::format("    FAILED {}\n      {}\n", to_string(candidate.config), candidate.reason);
}

}  // namespace

void report_record(const Record& record, double ms, Answer& answer) {
  Json problem;
  for (const auto& [field, value] : record.problem) problem["problem"][field] = value;
  problem["environment"] = record.environment.to_string();
  problem["ms"] = ms;
  problem["contests"] = Json::array();
  for (const Contest& contest : record.contests) report_contest(contest, problem, answer.text);
  answer.json["problems"].push_back(std::move(problem));
}

}  // namespace sparsekiln::tools

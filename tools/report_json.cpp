#include "tools/report_json.h"

namespace sparsekiln::tools {
namespace {

Json or_null(std::optional<double> number) { return number ? Json(*number) : Json(nullptr); }

Json describe(const std::vector<ReasonCount>& reasons) {
  Json json = Json::array();
  for (const ReasonCount& one : reasons) json.push_back({{"reason", one.reason}, {"count", one.count}});
  return json;
}

Json describe(const Tally& tally) {
  return {{"tried", tally.tried},
          {"failed", tally.failed},
          {"pruned", tally.pruned},
          {"untried", tally.untried},
          {"why_failed", describe(tally.why_failed)},
          {"why_pruned", describe(tally.why_pruned)},
          {"why_untried", describe(tally.why_untried)}};
}

/// The default's config is known even where it has no time.
Json describe_default(const Contest& contest) {
  if (const Candidate* const known = contest.find(contest.default_config)) return describe_time(known);
  Candidate untimed;
  untimed.config = contest.default_config;
  return describe_time(&untimed);
}

Json point(const Candidate& candidate) {
  Json json = describe_time(&candidate);
  json["predicted_us"] = candidate.predicted_us;
  json["compile_ms"] = candidate.compile_ms;
  json["samples"] = candidate.samples_us.size();
  json["rounds"] = candidate.final_us.size();
  json["registers"] = candidate.resources.registers;
  json["shared_bytes"] = candidate.resources.shared_bytes;
  return json;
}

}  // namespace

Json describe_problem(const Record& record) {
  Json json = Json::object();
  for (const auto& [field, value] : record.problem) json[field] = value;
  return json;
}

Json describe(const Environment& environment) {
  return {{"device", environment.device},
          {"workers", environment.workers},
          {"cache_bytes", environment.cache_bytes},
          {"driver", environment.driver},
          {"policy", environment.policy}};
}

Json describe_time(const Candidate* candidate) {
  if (candidate == nullptr) return nullptr;
  const auto time = candidate->time_us();
  return {{"config", to_string(candidate->config)},
          {"median_us", time ? Json(time->median) : Json(nullptr)},
          {"p20_us", time ? Json(time->p20) : Json(nullptr)},
          {"p80_us", time ? Json(time->p80) : Json(nullptr)},
          {"measured", candidate->outcome == Outcome::measured}};
}

Json describe(const ReportEntry& entry) {
  const Record& record = *entry.record;
  const Contest& contest = *entry.contest;
  const Standing& standing = entry.standing;
  return {
      {"title", title(entry)},
      {"problem", describe_problem(record)},
      {"n", contest.n},
      {"layout",
       {{"rows", record.layout.rows},
        {"cols", record.layout.cols},
        {"blocks", record.layout.blocks},
        {"density", record.layout.density()}}},
      {"best", describe_time(standing.best)},
      {"default", describe_default(contest)},
      {"second", describe_time(standing.second)},
      {"speedup", standing.standard == nullptr ? Json(nullptr) : Json(standing.speedup)},
      {"margin", standing.second == nullptr ? Json(nullptr) : Json(standing.margin)},
      {"tie", standing.tie},
      {"candidates", describe(entry.tally)},
      {"compile_ms", entry.tally.compile_ms},
      {"flops", contest.flops},
      {"bytes", contest.bytes},
      {"floor_us", contest.floor_us},
      {"floor_share", or_null(entry.floor_share())},
      {"dense_us", entry.dense ? Json(entry.dense->us) : Json(nullptr)},
      {"speedup_over_dense", or_null(entry.speedup_over_dense())},
      {"peak",
       {{"gflops", record.peak.gflops}, {"gbytes", record.peak.gbytes}, {"measured", record.peak.measured}}},
      {"environment", describe(record.environment)},
      {"compiler", record.compiler},
      {"seconds", record.seconds}};
}

Json describe_in_full(const ReportEntry& entry) {
  Json json = describe(entry);
  json["layout"]["picture"] = entry.record->layout.picture;
  json["dense"] = nullptr;
  if (entry.dense) json["dense"] = {{"flops", entry.dense->flops}, {"bytes", entry.dense->bytes}};
  json["points"] = Json::array();
  for (const Candidate& candidate : entry.contest->candidates)
    if (candidate.time_us()) json["points"].push_back(point(candidate));
  return json;
}

}  // namespace sparsekiln::tools

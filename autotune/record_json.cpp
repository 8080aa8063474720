#include "autotune/record_json.h"

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include <nlohmann/json.hpp>
#include "autotune/event.h"

namespace sparsekiln {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kVersion = 1;
constexpr std::size_t kMostBytes = std::size_t{1} << 26;
/// The members of one object by name: an object of Json would compare a name with all others.
constexpr std::size_t kMostNames = 256;
constexpr int kDeepest = 16;

constexpr std::array kOutcomes = {Outcome::untried, Outcome::pruned, Outcome::failed, Outcome::measured,
                                  Outcome::modelled};

struct ResourceField {
  const char* name;
  std::int32_t Resources::* value;
};
constexpr std::array kResources = {ResourceField{"registers", &Resources::registers},
                                   ResourceField{"shared_bytes", &Resources::shared_bytes},
                                   ResourceField{"stack_bytes", &Resources::stack_bytes},
                                   ResourceField{"spill_load_bytes", &Resources::spill_load_bytes},
                                   ResourceField{"spill_store_bytes", &Resources::spill_store_bytes},
                                   ResourceField{"constant_bytes", &Resources::constant_bytes}};

Json json_of(const Resources& resources) {
  Json json;
  for (const ResourceField& field : kResources) json[field.name] = resources.*field.value;
  json["code_bytes"] = resources.code_bytes;
  return json;
}

Json json_of(const Candidate& candidate) {
  return {{"config", to_string(candidate.config)},
          {"outcome", name(candidate.outcome)},
          {"reason", candidate.reason},
          {"predicted_us", candidate.predicted_us},
          {"compile_ms", candidate.compile_ms},
          {"resources", json_of(candidate.resources)},
          {"samples_us", candidate.samples_us},
          {"relative", candidate.relative},
          {"final_us", candidate.final_us}};
}

Json json_of(const PrunedGroup& group) {
  return {{"reason", group.reason}, {"example", to_string(group.example)}, {"count", group.count}};
}

Json json_of(const Contest& contest) {
  Json candidates = Json::array();
  for (const Candidate& candidate : contest.candidates) candidates.push_back(json_of(candidate));
  Json pruned = Json::array();
  for (const PrunedGroup& group : contest.pruned) pruned.push_back(json_of(group));
  return {{"n", contest.n},
          {"flops", contest.flops},
          {"bytes", contest.bytes},
          {"floor_us", contest.floor_us},
          {"default", to_string(contest.default_config)},
          {"candidates", std::move(candidates)},
          {"pruned", std::move(pruned)}};
}

[[noreturn]] void refuse(const std::string& place, std::string_view expected) {
  throw Error(ErrorKind::invalid_argument, fmt::format("a tuning record: {}: expected {}", place, expected));
}

/// A value and where it stands. What it is asked for it checks.
class Value {
 public:
  Value(const Json& json, std::string place) : json_(json), place_(std::move(place)) {}

  [[nodiscard]] Value operator[](const char* key) const {
    if (!json_.is_object() || !json_.contains(key)) refuse(place_, fmt::format("an object with '{}'", key));
    return {json_[key], fmt::format("{}.{}", place_, key)};
  }
  [[nodiscard]] std::string text() const {
    if (!json_.is_string()) refuse(place_, "a text");
    return json_.get<std::string>();
  }
  /// Finite, at least 0.
  [[nodiscard]] double number() const {
    if (!json_.is_number()) refuse(place_, "a number");
    const auto number = json_.get<double>();
    if (!std::isfinite(number) || number < 0) refuse(place_, "a finite number, 0 or more");
    return number;
  }
  template <typename Integer>
  [[nodiscard]] Integer integer() const {
    if (!json_.is_number_integer()) refuse(place_, "a whole number");
    const bool huge = json_.is_number_unsigned() && json_.get<std::uint64_t>() > std::uint64_t{1} << 62;
    const std::int64_t number = huge ? -1 : json_.get<std::int64_t>();
    if (number < 0 || number > std::numeric_limits<Integer>::max())
      refuse(place_, fmt::format("a whole number from 0 to {}", std::numeric_limits<Integer>::max()));
    return static_cast<Integer>(number);
  }
  [[nodiscard]] bool boolean() const {
    if (!json_.is_boolean()) refuse(place_, "true or false");
    return json_.get<bool>();
  }
  [[nodiscard]] Config config() const {
    const std::string config = text();
    try {
      return parse_config(config);
    } catch (const Error& error) {
      refuse(place_, fmt::format("a config ({})", error.what()));
    }
  }
  template <typename Use>
  void each(Use use) const {
    if (!json_.is_array()) refuse(place_, "an array");
    for (std::size_t i = 0; i < json_.size(); ++i) use(Value(json_[i], fmt::format("{}[{}]", place_, i)));
  }
  template <typename Use>
  void each_pair(Use use) const {
    if (!json_.is_object()) refuse(place_, "an object");
    for (const auto& [key, value] : json_.items())
      use(key, Value(value, fmt::format("{}.{}", place_, printable(key))));
  }
  [[nodiscard]] const std::string& place() const { return place_; }

 private:
  const Json& json_;
  std::string place_;
};

double time_of(const Value& value) {
  const double time = value.number();
  if (time == 0) refuse(value.place(), "a time above 0");
  return time;
}

std::vector<double> times(const Value& value) {
  std::vector<double> times;
  value.each([&](const Value& time) { times.push_back(time_of(time)); });
  return times;
}

Outcome outcome_of(const Value& value) {
  const std::string text = value.text();
  for (const Outcome outcome : kOutcomes)
    if (text == name(outcome)) return outcome;
  refuse(value.place(), "untried, pruned, failed, measured or modelled");
}

Resources resources_of(const Value& value) {
  Resources resources;
  for (const ResourceField& field : kResources)
    resources.*field.value = value[field.name].integer<std::int32_t>();
  resources.code_bytes = value["code_bytes"].integer<std::int64_t>();
  return resources;
}

Candidate candidate_of(const Value& value) {
  return {.config = value["config"].config(),
          .outcome = outcome_of(value["outcome"]),
          .reason = value["reason"].text(),
          .predicted_us = value["predicted_us"].number(),
          .compile_ms = value["compile_ms"].number(),
          .resources = resources_of(value["resources"]),
          .samples_us = times(value["samples_us"]),
          .relative = times(value["relative"]),
          .final_us = times(value["final_us"])};
}

Candidate checked_candidate_of(const Value& value) {
  Candidate candidate = candidate_of(value);
  if (candidate.outcome == Outcome::modelled && candidate.predicted_us == 0)
    refuse(value.place() + ".predicted_us", "a time above 0 of a modelled candidate");
  return candidate;
}

Contest contest_of(const Value& value) {
  Contest contest{.n = value["n"].integer<std::int64_t>(),
                  .flops = value["flops"].number(),
                  .bytes = value["bytes"].number(),
                  .floor_us = value["floor_us"].number(),
                  .default_config = value["default"].config(),
                  .candidates = {},
                  .pruned = {}};
  value["candidates"].each(
      [&](const Value& one) { contest.candidates.push_back(checked_candidate_of(one)); });
  value["pruned"].each([&](const Value& group) {
    contest.pruned.push_back(
        {group["reason"].text(), group["example"].config(), group["count"].integer<std::int32_t>()});
  });
  return contest;
}

LayoutSummary layout_of(const Value& value) {
  LayoutSummary layout{.rows = value["rows"].integer<std::int32_t>(),
                       .cols = value["cols"].integer<std::int32_t>(),
                       .blocks = value["blocks"].integer<std::int64_t>(),
                       .picture = {}};
  value["picture"].each([&](const Value& row) {
    layout.picture.push_back(row.text());
    const std::string& cells = layout.picture.back();
    if (cells.size() > 64 || layout.picture.size() > 64 || cells.size() != layout.picture.front().size() ||
        cells.find_first_not_of("0123456789abcdef") != std::string::npos)
      refuse(row.place(), "at most 64 hexadecimal digits, as many as in the first of at most 64 rows");
  });
  return layout;
}

Environment environment_of(const Value& value) {
  return {.device = value["device"].text(),
          .workers = value["workers"].integer<std::int32_t>(),
          .cache_bytes = value["cache_bytes"].integer<std::int64_t>(),
          .driver = value["driver"].text(),
          .policy = value["policy"].text()};
}

Record record_of(const Value& value) {
  if (value["version"].integer<std::int64_t>() != kVersion)
    refuse(value.place() + ".version", fmt::format("{}", kVersion));
  Record record;
  value["problem"].each_pair(
      [&](const std::string& field, const Value& text) { record.problem.emplace_back(field, text.text()); });
  record.layout = layout_of(value["layout"]);
  record.environment = environment_of(value["environment"]);
  const Value peak = value["peak"];
  record.peak = {peak["gflops"].number(), peak["gbytes"].number(), peak["measured"].boolean()};
  record.compiler = value["compiler"].text();
  record.seconds = value["seconds"].number();
  value["contests"].each([&](const Value& contest) { record.contests.push_back(contest_of(contest)); });
  return record;
}

/// Refuses what no record has before it costs time or memory: objects of many names, a name twice, deep
/// nesting.
class Bounds {
 public:
  bool operator()(int depth, Json::parse_event_t event, const Json& value) {
    if (depth > kDeepest)
      refuse("its depth", fmt::format("at most {} lists and objects in each other", kDeepest));
    if (event == Json::parse_event_t::object_start) names_.emplace_back();
    if (event == Json::parse_event_t::object_end) names_.pop_back();
    if (event != Json::parse_event_t::key) return true;
    const auto& name = value.get_ref<const std::string&>();
    if (!names_.back().insert(name).second) refuse(printable(name), "a name once in an object");
    if (names_.back().size() > kMostNames) refuse("an object", fmt::format("at most {} names", kMostNames));
    return true;
  }

 private:
  std::vector<std::set<std::string>> names_;  ///< of the objects that are open
};

Json parse(std::string_view text) {
  if (text.size() > kMostBytes) refuse("its size", fmt::format("at most {} bytes", kMostBytes));
  try {
    Bounds bounds;
    return Json::parse(text, [&](int depth, Json::parse_event_t event, const Json& value) {
      return bounds(depth, event, value);
    });
  } catch (const Json::exception& error) {
    throw Error(ErrorKind::invalid_argument, fmt::format("a tuning record: {}", error.what()));
  }
}

std::string line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

constexpr const char* kSample = "sample_us";
constexpr const char* kFinal = "final_us";
constexpr const char* kFinals = "finals";
constexpr const char* kCandidate = "candidate";

}  // namespace

std::string to_json(const Event& event) {
  Json json = {{"n", event.n}};
  switch (event.kind) {
    case Event::Kind::settled:
      json[kCandidate] = json_of(event.candidate);
      break;
    case Event::Kind::sample:
    case Event::Kind::final:
      json["config"] = to_string(event.candidate.config);
      json[event.kind == Event::Kind::sample ? kSample : kFinal] = event.us;
      if (event.kind == Event::Kind::sample) json["relative"] = event.relative;
      break;
    case Event::Kind::finals:
      json[kFinals] = true;
      break;
  }
  return line(json);
}

Event parse_event(std::string_view text) {
  const Json json = parse(text);
  const Value value(json, "event");
  Event event{.kind = Event::Kind::finals, .n = value["n"].integer<std::int64_t>(), .candidate = {}, .us = 0};
  if (json.contains(kFinals)) return event;
  if (json.contains(kCandidate)) {
    event.kind = Event::Kind::settled;
    event.candidate = candidate_of(value[kCandidate]);
    return event;
  }
  event.kind = json.contains(kFinal) ? Event::Kind::final : Event::Kind::sample;
  event.candidate.config = value["config"].config();
  event.us = time_of(value[event.kind == Event::Kind::final ? kFinal : kSample]);
  if (event.kind == Event::Kind::sample) event.relative = time_of(value["relative"]);
  return event;
}

std::string to_json(const Record& record) {
  Json json;
  json["version"] = kVersion;
  for (const auto& [field, value] : record.problem) json["problem"][field] = value;
  json["layout"] = {{"rows", record.layout.rows},
                    {"cols", record.layout.cols},
                    {"blocks", record.layout.blocks},
                    {"picture", record.layout.picture}};
  const Environment& environment = record.environment;
  json["environment"] = {{"device", environment.device},
                         {"workers", environment.workers},
                         {"cache_bytes", environment.cache_bytes},
                         {"driver", environment.driver},
                         {"policy", environment.policy}};
  json["peak"] = {
      {"gflops", record.peak.gflops}, {"gbytes", record.peak.gbytes}, {"measured", record.peak.measured}};
  json["compiler"] = record.compiler;
  json["seconds"] = record.seconds;
  json["contests"] = Json::array();
  for (const Contest& contest : record.contests) json["contests"].push_back(json_of(contest));
  return line(json);
}

Record parse_record(std::string_view json) {
  const Json document = parse(json);
  return record_of(Value(document, "record"));
}

}  // namespace sparsekiln

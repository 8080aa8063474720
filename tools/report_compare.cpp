#include "tools/report_compare.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "compiler/named.h"
#include "tools/entry_report.h"
#include "tools/report_json.h"
#include "tools/report_text.h"

namespace sparsekiln::tools {
namespace {

constexpr std::array kChanges = {
    Named{Change::same, "same"},        Named{Change::faster, "faster"},
    Named{Change::unlike, "unlike"},    Named{Change::regression, "regression"},
    Named{Change::untimed, "untimed"},  Named{Change::only_a, "only in A"},
    Named{Change::only_b, "only in B"},
};

/// What two entries must share to be a pair; the narrowest first.
enum class Scope : std::uint8_t { environment, target, problem };

std::vector<std::string> key_of(const ReportEntry& entry, Scope scope) {
  std::vector<std::string> key{std::to_string(entry.contest->n)};
  for (const auto& [field, value] : entry.record->problem)
    if (field != "target" || scope != Scope::problem) key.insert(key.end(), {field, value});
  if (scope == Scope::environment) key.push_back(entry.record->environment.to_string());
  return key;
}

std::optional<Spread> best_time(const ReportEntry& entry) {
  return entry.standing.best == nullptr ? std::nullopt : entry.standing.best->time_us();
}

void judge(ComparedPair& pair) {
  if (pair.a == nullptr || pair.b == nullptr) {
    pair.check_result = pair.a == nullptr ? Change::only_b : Change::only_a;
    return;
  }
  const auto a = best_time(*pair.a);
  const auto b = best_time(*pair.b);
  if (!a || !b || a->median <= 0) return;
  pair.ratio = b->median / a->median;
  if (pair.a->standing.measured != pair.b->standing.measured)
    pair.check_result = Change::unlike;
  else if (b->median > a->median * (1 + kTie) && b->p20 > a->p80)
    pair.check_result = Change::regression;
  else if (a->median > b->median * (1 + kTie) && a->p20 > b->p80)
    pair.check_result = Change::faster;
  else
    pair.check_result = Change::same;
}

/// Completes the pairs that lack a B with those that are free and share a key of this scope.
void match(std::vector<ComparedPair>& pairs, std::vector<const ReportEntry*>& free, Scope scope) {
  std::map<std::vector<std::string>, std::vector<const ReportEntry*>> by_key;
  for (const ReportEntry* const one : free) by_key[key_of(*one, scope)].push_back(one);
  for (ComparedPair& pair : pairs) {
    if (pair.b != nullptr) continue;
    const auto found = by_key.find(key_of(*pair.a, scope));
    if (found == by_key.end() || found->second.empty()) continue;
    pair.b = found->second.front();
    found->second.erase(found->second.begin());
    std::erase(free, pair.b);
  }
}

Json describe_side(const ReportEntry* entry) {
  if (entry == nullptr) return nullptr;
  return {{"best", describe_time(entry->standing.best)},
          {"target", entry->record->field("target")},
          {"environment", describe(entry->record->environment)},
          {"compiler", entry->record->compiler}};
}

std::string side_text(const ReportEntry* entry) {
  const auto time = entry == nullptr ? std::nullopt : best_time(*entry);
  return time_text(time ? std::optional(time->median) : std::nullopt);
}

}  // namespace

std::string_view name(Change change) { return name_in(kChanges, change); }

std::int64_t Comparison::count(Change change) const {
  return std::count_if(pairs.begin(), pairs.end(),
                       [&](const ComparedPair& pair) { return pair.check_result == change; });
}

Comparison compare(const std::vector<ReportEntry>& a, const std::vector<ReportEntry>& b) {
  Comparison comparison;
  for (const ReportEntry& one : a) comparison.pairs.push_back({&one, nullptr, std::nullopt, Change::untimed});
  std::vector<const ReportEntry*> free;
  for (const ReportEntry& one : b) free.push_back(&one);
  for (const Scope scope : {Scope::environment, Scope::target, Scope::problem})
    match(comparison.pairs, free, scope);
  for (const ReportEntry* const one : free)
    comparison.pairs.push_back({nullptr, one, std::nullopt, Change::untimed});
  for (ComparedPair& pair : comparison.pairs) judge(pair);
  return comparison;
}

std::string comparison_text(const Comparison& comparison) {
  std::vector<std::vector<std::string>> rows{{"A_US", "B_US", "B/A", "VERDICT", "PROBLEM"}};
  for (const ComparedPair& pair : comparison.pairs)
    rows.push_back(
        {side_text(pair.a), side_text(pair.b), pair.ratio ? fmt::format("{:.3f}", *pair.ratio) : "-",
         pair.check_result == Change::regression ? "REGRESSION" : std::string(name(pair.check_result)),
         title(pair.a != nullptr ? *pair.a : *pair.b)});
  std::string text = table(rows);
  text += fmt::format("{} compared", comparison.pairs.size());
  for (const auto& [change, word] : kChanges)
    if (const std::int64_t count = comparison.count(change); count > 0)
      text += fmt::format(", {} {}", count, word);
  return text + "\n";
}

Json describe(const Comparison& comparison) {
  Json json = {{"compared", Json::array()}};
  for (const ComparedPair& pair : comparison.pairs) {
    const ReportEntry& either = pair.a != nullptr ? *pair.a : *pair.b;
    json["compared"].push_back({{"title", title(either)},
                                {"problem", describe_problem(*either.record)},
                                {"n", either.contest->n},
                                {"a", describe_side(pair.a)},
                                {"b", describe_side(pair.b)},
                                {"ratio", pair.ratio ? Json(*pair.ratio) : Json(nullptr)},
                                {"verdict", name(pair.check_result)}});
  }
  json["regressions"] = comparison.count(Change::regression);
  json["faster"] = comparison.count(Change::faster);
  json["only_a"] = comparison.count(Change::only_a);
  json["only_b"] = comparison.count(Change::only_b);
  return json;
}

}  // namespace sparsekiln::tools

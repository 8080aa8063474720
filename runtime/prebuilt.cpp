#include "runtime/prebuilt.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/printable.h>

#include "autotune/plan_distance.h"
#include "compiler/attach.h"
#include "runtime/precompile_command.h"
#include "runtime/request.h"

namespace sparsekiln {
namespace {

constexpr std::string_view kPlan = "plan";

std::string_view value_of(const cache::Identity& identity, std::string_view field) {
  for (const auto& [name, value] : identity.fields())
    if (name == field) return value;
  return {};
}

/// The fields in which a kernel of the same kind differs from what is wanted; nothing for other entries.
std::optional<std::vector<std::string>> differences(const cache::Identity& wanted,
                                                    const cache::Identity& other) {
  const auto& fields = wanted.fields();
  const auto& others = other.fields();
  if (fields.size() != others.size()) return std::nullopt;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].first != others[i].first) return std::nullopt;
    if (fields[i].second != others[i].second) names.push_back(fields[i].first);
  }
  return names;
}

/// In which fields the nearest entry of the layers differs, for people.
std::string nearest(const cache::Identity& wanted, Layers& layers) {
  std::optional<std::vector<std::string>> fewest;
  std::optional<cache::Identity> at;
  for (cache::Identity& identity : layers.identities()) {
    const auto names = differences(wanted, identity);
    if (!names || (fewest && names->size() >= fewest->size())) continue;
    fewest = names;
    at = std::move(identity);
  }
  if (!fewest) return {};
  if (fewest->empty()) return "the entry of that key is not the kernel that it says it is; ";
  std::string text;
  for (const std::string& name : *fewest)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, printable(value_of(*at, name)));
  return fmt::format("the nearest entry, {}, has {}; ", at->key().hex(), text);
}

}  // namespace

Plan held_plan(const BuildJob& job, Layers& layers) {
  const cache::Identity wanted = identity_of(job.problem, job.target, job.plan);
  if (layers.holds(wanted)) return job.plan;
  std::optional<Plan> best;
  double least = 0;
  for (const cache::Identity& identity : layers.identities()) {
    const auto names = differences(wanted, identity);
    if (!names || names->size() != 1 || names->front() != kPlan) continue;
    Plan plan;
    try {
      plan = parse_plan(value_of(identity, kPlan));
    } catch (const Error&) {
      continue;  // no program of this version wrote it
    }
    const double far = distance(job.plan, plan);
    if (best && far >= least) continue;
    best = std::move(plan);
    least = far;
  }
  return best.value_or(job.plan);
}

std::string MissingPrebuilt::Parts::text(std::string_view file) const {
  return fmt::format("{}`{}` makes it", missing, precompile_command(problem, target, attached, config, file));
}

MissingPrebuilt::Parts MissingPrebuilt::parts_of(const BuildJob& job, Layers& layers) {
  const cache::Identity wanted = identity_of(job.problem, job.target, job.plan);
  std::string fields;
  for (const auto& [name, value] : wanted.fields())
    fields += fmt::format("{}{}={}", fields.empty() ? "" : ", ", name, value);
  const std::string where = layers.empty() ? "no packs are given (Options::packs, --pack or SPARSEKILN_PACKS)"
                                           : fmt::format("the packs ({}) do not hold it", layers.names());
  return {fmt::format("a prebuilt kernel is required, and {}: missing is {} ({}); {}", where,
                      wanted.key().hex(), fields, nearest(wanted, layers)),
          job.problem, job.target, job.pinned ? to_string(job.plan.front().config) : "", attached(job.plan)};
}

MissingPrebuilt::MissingPrebuilt(const BuildJob& job, Layers& layers)
    : MissingPrebuilt(parts_of(job, layers)) {}

MissingPrebuilt::MissingPrebuilt(Parts parts)
    : Error(ErrorKind::cache, parts.text("FILE")), parts_(std::move(parts)) {}

Error MissingPrebuilt::for_file(std::string_view file) const { return {kind(), parts_.text(file)}; }

}  // namespace sparsekiln

#include "runtime/prebuilt.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/printable.h>

#include "autotune/plan_distance.h"
#include "compiler/build.h"
#include "compiler/cuda/compatibility.h"
#include "compiler/plan.h"
#include "compiler/recipe.h"
#include "compiler/stored_binaries.h"
#include "runtime/precompile_command.h"
#include "runtime/request.h"
#include "runtime/stored_binary.h"

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

/// What layers hold under the identity of a plan.
struct Held {
  bool usable = false;     ///< some of it: the job's driver loads it, and it is whole
  std::set<int> versions;  ///< as in best_binary
  std::string damage;      ///< what is wrong with what the driver would load
};
Held held_for(const BuildJob& job, const Plan& plan, const cache::Identity& identity,
              ReadOnlyStores& layers) {
  Held held;
  held.usable = layers.find(identity, [&](std::span<const std::byte> payload, std::string& damage) {
    const auto whole = [&](const Binary& binary) {
      held.damage = damage = wrong_numbers(binary, job.problem, job.target, plan);
      return damage.empty();
    };
    return best_binary(identity, payload, job.toolchain, whole, &held.versions) != nullptr;
  });
  return held;
}

/// Why nothing that the layers hold under the wanted identity serves: it is damaged, or the driver loads none
/// of it. Empty where that is not the reason.
std::string why_unusable(const cache::Identity& wanted, const BuildJob& job, ReadOnlyStores& layers) {
  const auto [usable, versions, damage] = held_for(job, job.plan, wanted, layers);
  if (usable || versions.empty()) return {};
  if (!damage.empty()) return fmt::format("hold it damaged ({})", damage);
  const std::string fit = cuda::nvrtc_for(job.toolchain.driver_version);
  return fmt::format("hold it compiled by NVRTC {}, whose code {} does not load (what would work: {}{})",
                     versions_text(versions), cuda::describe_driver(job.toolchain),
                     fit.empty() ? "" : fmt::format("{} where the pack is made, or ", fit),
                     cuda::driver_for(*versions.begin()));
}

/// In which fields the nearest entry of the layers differs, for people.
std::string nearest(const cache::Identity& wanted, ReadOnlyStores& layers) {
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

/// Whether a plan that an identity names is one that the problem can be computed by.
bool works(const Plan& plan, const BuildJob& job) {
  const ConfigCheck check(job.problem, job.target);
  return !plan.empty() && plan.back().up_to >= job.problem.batch.bound() &&
         std::all_of(plan.begin(), plan.end(),
                     [&](const RangedConfig& range) { return check.refusal(range.config).empty(); });
}

}  // namespace

Plan held_plan(const BuildJob& job, Plan wanted, ReadOnlyStores& layers) {
  const cache::Identity identity = identity_of(job.problem, job.target, wanted);
  if (held_for(job, wanted, identity, layers).usable) return wanted;
  std::optional<Plan> best;
  double least = 0;
  for (const cache::Identity& other : layers.identities()) {
    const auto names = differences(identity, other);
    if (!names || names->size() != 1 || names->front() != kPlan) continue;
    Plan plan;
    try {
      plan = parse_plan(value_of(other, kPlan));
    } catch (const Error&) {
      continue;  // no program of this version wrote it
    }
    const double far = distance(wanted, plan);
    if ((best && far >= least) || !works(plan, job) || !held_for(job, plan, other, layers).usable) continue;
    best = std::move(plan);
    least = far;
  }
  return best.value_or(std::move(wanted));
}

std::string MissingPrebuilt::Parts::text(std::string_view file) const {
  return fmt::format("{}`{}` makes it", missing,
                     precompile_command(problem, target, attached, config, file, driver_version));
}

MissingPrebuilt::Parts MissingPrebuilt::parts_of(const BuildJob& job, ReadOnlyStores& layers) {
  const cache::Identity wanted = identity_of(job.problem, job.target, job.plan);
  std::string fields;
  for (const auto& [name, value] : wanted.fields())
    fields += fmt::format("{}{}={}", fields.empty() ? "" : ", ", name, value);
  const std::string held = why_unusable(wanted, job, layers);
  const std::string where = layers.empty() ? "no packs are given (Options::packs, --pack or SPARSEKILN_PACKS)"
                                           : fmt::format("the packs ({}) {}", layers.names(),
                                                         held.empty() ? "do not hold it" : held);
  return {fmt::format("a prebuilt kernel is required, and {}: missing is {} ({}); {}", where,
                      wanted.key().hex(), fields, held.empty() ? nearest(wanted, layers) : ""),
          job.problem,
          job.target,
          job.pinned ? to_string(job.plan.front().config) : "",
          attached(job.plan),
          job.toolchain.driver_version};
}

MissingPrebuilt::MissingPrebuilt(const BuildJob& job, ReadOnlyStores& layers)
    : MissingPrebuilt(parts_of(job, layers)) {}

MissingPrebuilt::MissingPrebuilt(Parts parts)
    : Error(ErrorKind::cache, parts.text("FILE")), parts_(std::move(parts)) {}

Error MissingPrebuilt::for_file(std::string_view file) const { return {kind(), parts_.text(file)}; }

}  // namespace sparsekiln

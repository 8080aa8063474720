#include "autotune/cuda/defaults.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <variant>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "autotune/cuda/prediction.h"
#include "autotune/cuda/timing.h"
#include "autotune/cuda/work.h"
#include "autotune/prediction.h"
#include "autotune/space.h"
#include "compiler/build.h"
#include "compiler/cuda/families.h"
#include "compiler/cuda/multiprocessor.h"
#include "compiler/problem_kind.h"

namespace sparsekiln::cuda {
namespace {

/// Configs whose times differ by less are equally fast, for all that the model knows.
constexpr double kEquallyFast = 1.01;
/// The same within a family that it knows by its structure.
constexpr double kEquallyFastByStructure = 1.02;

/// Whether the cost model can be believed: a multiprocessor holds as many CTAs as the schedule counts on, and
/// the code keeps to its costs.
template <class Computed, class Costs>
bool is_sound(const Computed& computed, const Target& target, const Config& config, const Costs& costs) {
  const auto& tuning = *find_family(computed, config.variant)->tuning;
  return config.split <= resident_ctas(target, costs.threads, costs.shared_bytes) &&
         (tuning.keeps_costs == nullptr || tuning.keeps_costs(computed, target, config, costs));
}

struct Priced {
  Config config;
  Prediction expected;
};

/// What the model can price of the candidates for a default, the least first; of equals, in the order of the
/// axes. Those whose numbers do not go together are left out.
std::vector<Priced> priced(const Problem& problem, const Target& target, std::int64_t n, Pricing& pricing) {
  std::vector<Priced> found;
  for (const Config& candidate : default_candidates(problem, target, n)) try {
      const Config config = pricing.with_derived(candidate, n);
      found.push_back({config, pricing.of(config, n)});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::invalid_argument) throw;
    }
  std::stable_sort(found.begin(), found.end(), [](const Priced& one, const Priced& other) {
    return one.expected.us < other.expected.us;
  });
  return found;
}

/// The fastest config. If several are equally fast, the one whose threads have the fewest registers: its code
/// is the shortest, and compiles fastest. In a family that is known by its structure the one that issues the
/// fewest instructions: it leaves the least to what the model does not know.
template <class Computed>
Config default_config(const Computed& computed, const Problem& problem, const Target& target, std::int64_t n,
                      Pricing& pricing) {
  const ConfigCheck compiler(problem, target);
  const auto works = [&](const Config& config) { return compiler.refusal(config).empty(); };
  const auto by_structure = [&](const Priced& one) {
    return find_family(computed, one.config.variant)->tuning->by_structure;
  };
  std::optional<Config> unsound;
  std::optional<Priced> fastest;
  Config chosen;
  double least = std::numeric_limits<double>::infinity();
  for (const Priced& one : priced(problem, target, n, pricing)) {
    const bool structure = by_structure(fastest ? *fastest : one);
    if (fastest) {
      const double factor = structure ? kEquallyFastByStructure : kEquallyFast;
      if (one.expected.us > factor * fastest->expected.us) break;
      if (structure && one.config.variant != fastest->config.variant) continue;
    }
    const auto costs = loop_costs(computed, target, one.config);
    const double price = structure ? one.expected.instructions : costs.registers;
    if (!is_sound(computed, target, one.config, costs)) {
      if (!fastest && !unsound && works(one.config)) unsound = one.config;
    } else if (price < least && works(one.config)) {
      if (!fastest) fastest = one;
      chosen = one.config;
      least = price;
    }
  }
  if (fastest) return chosen;
  if (unsound) return *unsound;
  throw Error(
      ErrorKind::internal,
      fmt::format("no default config computes {} of blocks of {} in {} on {}; a config of your own would "
                  "work, or `sparsekiln tune`, which tries more",
                  name(problem.operation), to_string(problem.block), name(problem.dtype), target.arch));
}

}  // namespace

Config default_config(const Problem& problem, const Target& target, std::int64_t n) {
  return default_configs(problem, target, std::span(&n, 1)).front();
}

std::vector<Config> default_configs(const Problem& problem, const Target& target,
                                    std::span<const std::int64_t> batches) {
  Pricing pricing(problem, target);
  std::vector<Config> configs;
  std::visit(
      [&](const auto& computed) {
        for (const std::int64_t n : batches)
          configs.push_back(default_config(computed, problem, target, n, pricing));
      },
      computed_by(problem, target));
  return configs;
}

std::vector<std::int32_t> splits_of(const Spmm& problem, const Target& target, const Config& config) {
  const SpmmTuning& tuning = *find_family(problem, config.variant)->tuning;
  const std::int32_t room = resident(target, loop_costs(problem, target, config));
  std::vector<std::int32_t> splits;
  for (const std::int32_t split : tuning.axes.split) {
    Config tried = config;
    tried.split = split;
    if (split <= room && tuning.rejection(problem, target, tried) == nullptr) splits.push_back(split);
  }
  if (splits.empty()) splits.push_back(std::max(config.split, 1));
  return splits;
}

}  // namespace sparsekiln::cuda

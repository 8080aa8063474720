#include "autotune/cuda_defaults.h"

#include <cstdint>
#include <utility>
#include <variant>

#include "autotune/cuda_work.h"
#include "autotune/prediction.h"
#include "autotune/space.h"
#include "compiler/cuda/families.h"
#include "compiler/cuda/multiprocessor.h"
#include "compiler/problem_kind.h"

namespace sparsekiln::cuda {
namespace {

/// Whether the cost model can be believed: a multiprocessor holds as many CTAs as the schedule counts on, and
/// the code keeps to its costs.
template <class Computed>
bool is_sound(const Computed& computed, const Target& target, const Config& config) {
  const auto& tuning = *find_family(computed, config.variant)->tuning;
  const auto costs = loop_costs(computed, target, config);
  return config.split <= resident_ctas(target, costs.threads, costs.shared_bytes) &&
         (tuning.keeps_costs == nullptr || tuning.keeps_costs(computed, target, config, costs));
}

/// Where no config computes the problem: one that the compiler refuses, in words of its own.
Config refused_config(const Space& space) {
  for (const RejectedConfig& rejected : space.rejected)
    if (rejected.by_compiler) return rejected.config;
  return space.rejected.empty() ? Config() : space.rejected.front().config;
}

}  // namespace

Config default_config(const Problem& problem, const Target& target, std::int64_t n) {
  const Space space = space_of(problem, target, n, {}, Breadth::defaults);
  Pricing pricing(problem, target);
  const Config* best = nullptr;
  std::pair<bool, double> least;  // whether it is unsound, and its time
  std::visit(
      [&](const auto& computed) {
        for (const Config& config : space.configs) {
          const double us = pricing.of(config, n).us;
          if (best != nullptr && !least.first && us >= least.second) continue;
          const std::pair found{!is_sound(computed, target, config), us};
          if (best != nullptr && found >= least) continue;
          best = &config;
          least = found;
        }
      },
      computed_by(problem));
  return best != nullptr ? *best : refused_config(space);
}

}  // namespace sparsekiln::cuda

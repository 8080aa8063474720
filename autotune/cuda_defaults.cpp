#include "autotune/cuda_defaults.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include <sparsekiln/error.h>

#include "autotune/architecture.h"
#include "autotune/cuda_prediction.h"
#include "autotune/cuda_work.h"
#include "autotune/prediction.h"
#include "autotune/space.h"
#include "compiler/build.h"
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

struct Priced {
  Config config;
  double us;
};

/// What the model can price of the candidates for a default, the least first; of equals, in the order of the
/// axes. `refused`: one that it cannot, since the numbers do not go together.
template <class Computed>
std::vector<Priced> priced(const Computed& computed, const Problem& problem, const Target& target,
                           std::int64_t n, Config& refused) {
  const Architecture figures = architecture(target);
  Pricing pricing(problem, target);
  std::vector<Priced> found;
  for (const Config& candidate : default_candidates(problem, target, n)) try {
      const Config config = with_derived(computed, target, candidate, n, figures);
      found.push_back({config, pricing.of(config, n).us});
    } catch (const Error&) {
      refused = candidate;
    }
  std::stable_sort(found.begin(), found.end(),
                   [](const Priced& one, const Priced& other) { return one.us < other.us; });
  return found;
}

template <class Computed>
Config default_config(const Computed& computed, const Problem& problem, const Target& target,
                      std::int64_t n) {
  const ConfigCheck compiler(problem, target);
  Config refused;
  std::optional<Config> unsound;
  for (const Priced& one : priced(computed, problem, target, n, refused)) {
    const bool sound = is_sound(computed, target, one.config);
    if (!sound && unsound) continue;
    if (!compiler.refusal(one.config).empty())
      refused = one.config;
    else if (sound)
      return one.config;
    else
      unsound = one.config;
  }
  return unsound.value_or(refused);
}

}  // namespace

Config default_config(const Problem& problem, const Target& target, std::int64_t n) {
  return std::visit([&](const auto& computed) { return default_config(computed, problem, target, n); },
                    computed_by(problem));
}

}  // namespace sparsekiln::cuda

#include "autotune/cuda_defaults.h"

#include <cstddef>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "autotune/cuda_prediction.h"
#include "autotune/cuda_work.h"
#include "autotune/space.h"
#include "compiler/cuda/mma_shape.h"
#include "compiler/cuda/multiprocessor.h"
#include "compiler/problem_kind.h"

namespace sparsekiln::cuda {
namespace {

/// Whether a multiprocessor holds as many CTAs as the schedule counts on.
bool all_at_once(const Spmm& problem, const Target& target, const Config& config) {
  const LoopCosts costs = loop_costs(problem, target, config);
  return config.split <= resident_ctas(target, costs.threads, costs.shared_bytes);
}

/// Whether what the lanes of a warp that share a batch row store at once are whole sectors. Where blocks are
/// read by columns, outputs keep their order, and a warp may have too few.
bool stores_sectors(const Spmm& problem, const Target& target, const Config& config) {
  constexpr std::size_t kSector = 32;  // bytes
  if (config.variant != Variant::mma || !problem.by_columns() || problem.feature_major()) return true;
  const std::size_t lanes = config.operand_a == OperandA::w ? 8 : 4;
  const auto run = static_cast<std::size_t>(mma_shape(problem, target, config).run);
  return lanes * run * size_of(problem.out_dtype) >= kSector;
}

/// What the cost model does not see of a config: such a one is chosen only where there is no other.
bool is_sound(const Spmm& problem, const Target& target, const Config& config) {
  return all_at_once(problem, target, config) && stores_sectors(problem, target, config);
}
bool is_sound(const Sddmm&, const Target&, const Config&) { return true; }

}  // namespace

Config default_config(const Problem& problem, const Target& target, std::int64_t n) {
  const Space space = space_of(problem, target, n, {}, Breadth::defaults);
  const Config* best = nullptr;
  std::pair<bool, double> least;  // whether it is unsound, and its time
  std::visit(
      [&](const auto& computed) {
        for (const Config& config : space.configs) {
          const std::pair found{!is_sound(computed, target, config), predict(computed, target, config, n).us};
          if (best != nullptr && found >= least) continue;
          best = &config;
          least = found;
        }
      },
      computed_by(problem));
  if (best != nullptr) return *best;
  throw Error(ErrorKind::internal,
              fmt::format("no family of kernels has a default config for {} with math {}: {}",
                          name(problem.dtype), name(problem.math),
                          space.rejected.empty() ? "there are none" : space.rejected.front().reason));
}

}  // namespace sparsekiln::cuda

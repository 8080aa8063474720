#include "autotune/cuda_defaults.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>

#include "autotune/cuda_work.h"
#include "autotune/prediction.h"
#include "autotune/space.h"
#include "compiler/cuda/mma_shape.h"
#include "compiler/cuda/multiprocessor.h"
#include "compiler/problem_kind.h"

namespace sparsekiln::cuda {
namespace {

/// Whether a multiprocessor holds as many CTAs as the schedule counts on.
bool all_at_once(const Target& target, const Config& config, const CtaCosts& costs) {
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

/// Registers of a thread, by the family's estimate, that compile without spills: fewer where copies are more
/// than queued, since their addresses take registers, too.
bool has_registers(const Computation& problem, bool cut, const CtaCosts& costs, std::int32_t most) {
  constexpr std::int32_t kMostBesideAddresses = 130;
  const bool plain = !problem.feature_major() && problem.alignment == 16 && !problem.gates && !cut &&
                     problem.derivative == Activation::none;
  return costs.registers <= (plain ? most : kMostBesideAddresses);
}

/// Where there is no asynchronous copy, what a chunk brings passes through registers: too many of a single
/// warp.
bool shares_copies(const Target& target, const Config& config) {
  return target.compute_capability() >= 80 || config.variant != Variant::simt || config.warps > 1;
}

/// What the cost model does not see of a config: such a one is chosen only where there is no other.
bool is_sound(const Spmm& problem, const Target& target, const Config& config) {
  const LoopCosts costs = loop_costs(problem, target, config);
  return all_at_once(target, config, costs) && stores_sectors(problem, target, config) &&
         has_registers(problem, problem.cut_in != 0, costs, 208) && shares_copies(target, config);
}
bool is_sound(const Sddmm& gradient, const Target& target, const Config& config) {
  const SddmmCosts costs = loop_costs(gradient, target, config);
  return all_at_once(target, config, costs) && has_registers(gradient, gradient.cut_in != 0, costs, 190);
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

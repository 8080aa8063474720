#include "autotune/space.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "autotune/backend.h"
#include "autotune/prediction.h"
#include "autotune/quotient_up.h"
#include "compiler/build.h"
#include "compiler/family_tuning.h"
#include "compiler/problem_kind.h"

namespace sparsekiln {
namespace {

auto tunings_for(const Spmm&, const Target& target) { return tuning_of(target).spmm_tunings(); }
auto tunings_for(const Sddmm&, const Target& target) { return tuning_of(target).sddmm_tunings(); }

// What works and is never worth a try, whatever the family. The first reason that holds is recorded: those of
// the family come between these two lists.

struct Case {
  const Problem& problem;
  const Target& target;
  std::int64_t n;
  const Config& config;
  std::int64_t most_small_tiles = tuning_of(target).most_small_tiles;
};

/// Each chunk of at most four blocks has its own code, of which the compiler takes eight.
constexpr std::int64_t kUnrolledBlocks = 32;

struct Constraint {
  bool (*holds)(const Case&);
  const char* reason;
};

/// Why a config in clusters is none. (A string, since GCC 12 sees an overflow where it inlines a literal.)
const std::string kOddTiles = "an odd number of batch tiles at once makes no clusters of two";
const std::string kNotAsked = "no driver has said how many clusters of four the device holds at once";

bool is_product(const Case& one) { return kind_of(one.problem.operation) == ProblemKind::spmm; }

constexpr std::array kBeforeFamily = {
    Constraint{[](const Case& one) {
                 const std::int64_t rows = one.problem.operation == Operation::forward
                                               ? one.problem.output_rows(one.n)
                                               : one.problem.input_rows(one.n);
                 return !is_product(one) || one.config.tile_n <= std::max<std::int64_t>(2 * rows - 1, 16);
               },
               "the tile has at least twice as many batch rows as the batch"},
    Constraint{[](const Case& one) {
                 return !is_product(one) || one.config.tile_n >= 64 ||
                        quotient_up(one.n, one.config.tile_n) <= one.most_small_tiles;
               },
               "the batch has so many of such small tiles that the weight is read again and again"},
    Constraint{[](const Case& one) {
                 return !is_product(one) ||
                        one.config.rows * one.config.cluster_rows <= std::max(one.problem.layout.rows(), 1);
               },
               "there are fewer block rows than output tiles of an item"},
};
constexpr std::array kAfterFamily = {
    Constraint{[](const Case& one) {
                 return one.config.merge == 1 || ((one.problem.operation == Operation::forward ||
                                                   one.config.variant == Variant::halo) &&
                                                  !one.problem.strict_absent && !one.problem.block_scales);
               },
               "block rows are merged only in forward products and by halo, without block scales, where "
               "zeros may fill them up"},
    Constraint{[](const Case& one) {
                 return one.config.table != TableForm::unrolled ||
                        one.problem.layout.blocks() <= kUnrolledBlocks;
               },
               "there are too many blocks for each to have code of its own"},
    // The tables of all ranges of a dynamic batch share the constant memory: the plan's maker chooses.
    Constraint{
        [](const Case& one) { return !one.problem.batch.dynamic() || one.config.table == TableForm::global; },
        "the form of a dynamic batch's tables is chosen for all of its ranges together"},
};

/// The reason of the first that does not hold; null where all do.
const char* broken(std::span<const Constraint> constraints, const Case& one) {
  for (const Constraint& constraint : constraints)
    if (!constraint.holds(one)) return constraint.reason;
  return nullptr;
}

std::span<const ClusterShape> clusters_of(const SearchAxes& axes) {
  static constexpr ClusterShape kNone[] = {{1, 1}};
  if (axes.clusters.size() == 0) return kNone;
  return {axes.clusters.begin(), axes.clusters.size()};
}

using Knobs = std::array<std::int32_t, kMostKnobs>;
std::span<const Knobs> knobs_of(const SearchAxes& axes) {
  static constexpr Knobs kNone[] = {{}};
  if (axes.knobs.size() == 0) return kNone;
  return {axes.knobs.begin(), axes.knobs.size()};
}

void each(Variant variant, const SearchAxes& axes, const auto& use) {
  Config config;
  config.variant = variant;
  config.in_flight = kAllInFlight;  // with_derived decides
  for (const OperandA operand_a : axes.operand_a)
    for (const TableForm table : axes.table)
      for (const std::int32_t tile_n : axes.tile_n)
        for (const std::int32_t tile_out : axes.tile_out)
          for (const std::int32_t warps : axes.warps)
            for (const ItemTiles& tiles : axes.tiles)
              for (const std::int32_t stages : axes.stages)
                for (const std::int32_t split : axes.split)
                  for (const ClusterShape& cluster : clusters_of(axes))
                    for (const Knobs& knobs : knobs_of(axes)) {
                      config.operand_a = operand_a;
                      config.table = table;
                      config.tile_n = tile_n;
                      config.tile_out = tile_out;
                      config.warps = warps;
                      config.split = split;
                      config.rows = tiles.rows;
                      config.merge = tiles.merge;
                      config.stages = stages;
                      config.cluster = cluster.tiles;
                      config.cluster_rows = cluster.rows;
                      config.knobs = knobs;
                      use(config);
                    }
}

/// Asks the compiler of configs, one after the other. Where it refuses none with tables in global memory for
/// its split, it is not asked again of one that differs in `split` alone from the one before, if that works.
class RefusalOfEach {
 public:
  RefusalOfEach(const Problem& problem, const Target& target)
      : check_(problem, target), may_refuse_split_(tuning_of(target).may_refuse_split) {}

  const std::string& of(const Config& config) {
    Config alike = config;
    if (!may_refuse_split_ && config.table == TableForm::global) alike.split = 1;
    if (alike != last_ || !refusal_.empty()) refusal_ = check_.refusal(config);
    last_ = alike;
    return refusal_;
  }

 private:
  const ConfigCheck check_;
  const bool may_refuse_split_;
  std::optional<Config> last_;
  std::string refusal_;
};

/// Why a config is not worth a try; null where it is.
template <class Computed>
const char* rejection(const FamilyTuning<Computed>& tuning, const Computed& computed, const Case& one) {
  if (const char* const reason = broken(kBeforeFamily, one)) return reason;
  if (one.n > tuning.most_batch) return "its variant is for smaller batches";
  if (one.n < tuning.least_batch) return "its variant is for larger batches";
  if (const char* const reason = tuning.rejection(computed, one.target, one.config)) return reason;
  return broken(kAfterFamily, one);
}

/// Clusters of more CTAs may leave multiprocessors without work, and a launch take two rounds for one.
constexpr std::int32_t kAlwaysHeld = 2;

template <class Computed>
Space space_of(const Computed& computed, const Problem& problem, const Target& target, std::int64_t n,
               const Part& part) {
  Space space;
  RefusalOfEach compiler(problem, target);
  Pricing pricing(problem, target, part);
  const auto reject = [&](const Config& config, std::string reason, bool by_compiler = false) {
    space.rejected.push_back({config, std::move(reason), by_compiler});
  };
  const auto consider = [&](const FamilyTuning<Computed>& tuning, const Config& config) {
    if (const char* const reason = rejection(tuning, computed, {problem, target, n, config}))
      return reject(config, reason);
    if (config.cluster * config.cluster_rows > kAlwaysHeld && part.clusters_of_four == 0)
      return reject(config, kNotAsked);
    if (const std::string& refusal = compiler.of(config); !refusal.empty())
      return reject(config, refusal, true);
    const Config derived = pricing.with_derived(config, n);
    if (derived.cluster != config.cluster) return reject(config, kOddTiles);
    space.configs.push_back(derived);
  };
  for (const FamilyTuning<Computed>* const tuning : tunings_for(computed, target))
    each(tuning->variant, tuning->axes, [&](const Config& config) { consider(*tuning, config); });
  return space;
}

template <class Computed>
std::vector<Config> default_candidates(const Computed& computed, const Problem& problem, const Target& target,
                                       std::int64_t n) {
  const auto may_be_default = tuning_of(target).may_be_default;
  std::vector<Config> candidates;
  for (const FamilyTuning<Computed>* const tuning : tunings_for(computed, target))
    each(tuning->variant, tuning->default_axes, [&](const Config& config) {
      if (may_be_default != nullptr && !may_be_default(problem, config, n)) return;
      if (rejection(*tuning, computed, {problem, target, n, config}) == nullptr) candidates.push_back(config);
    });
  return candidates;
}

}  // namespace

Space space_of(const Problem& problem, const Target& target, std::int64_t n, const Part& part) {
  return std::visit([&](const auto& computed) { return space_of(computed, problem, target, n, part); },
                    computed_by(problem, target));
}

std::vector<Config> default_candidates(const Problem& problem, const Target& target, std::int64_t n) {
  return std::visit([&](const auto& computed) { return default_candidates(computed, problem, target, n); },
                    computed_by(problem, target));
}

}  // namespace sparsekiln

#include "autotune/backend.h"

#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "autotune/batch_ranges.h"
#include "autotune/cuda/defaults.h"
#include "autotune/cuda/prediction.h"
#include "autotune/cuda/work.h"
#include "autotune/default_plan.h"
#include "autotune/prediction.h"
#include "compiler/build.h"
#include "compiler/computation_fields.h"
#include "compiler/cuda/emit.h"
#include "compiler/cuda/families.h"
#include "compiler/cuda/sddmm.h"
#include "compiler/cuda/sddmm_tables.h"
#include "compiler/cuda/tables.h"

namespace sparsekiln::cuda {
namespace {

/// Whether tables in constant memory would serve: the lanes of a warp with chunks of its own read different
/// steps at once, which constant memory gives one after the other.
bool suits_constants(const Spmm& problem, const Target& target, const Config& config) {
  return !loop_costs(problem, target, config).chunk_per_warp;
}

/// The tables of all entries of a module share its constant memory.
void choose_tables(Plan& plan, const Spmm& problem, const Target& target) {
  std::int64_t bytes = 0;
  for (const RangedConfig& range : plan)
    if (suits_constants(problem, target, range.config))
      bytes += table_bound(problem, range.config, chunk_shape(problem, target, range.config),
                           std::int64_t{target.workers} * range.config.split);
  const TableForm form = bytes <= kConstantTableLimit ? TableForm::constant : TableForm::global;
  for (RangedConfig& range : plan)
    range.config.table = suits_constants(problem, target, range.config) ? form : TableForm::global;
}

void choose_tables(Plan& plan, const Sddmm& gradient, const Target&) {
  for (RangedConfig& range : plan)
    range.config.table =
        table_bound(gradient, range.config) <= kConstantTableLimit ? TableForm::constant : TableForm::global;
}

/// Whether two ranges would have the same kernel. Where as many batch tiles are computed at once in both, the
/// schedule for the rounds of the larger range serves both. An image of a convolution has so many rows that
/// this is so from few images on.
bool are_one_kernel(const Problem& problem, const Config& one, const Config& other) {
  return problem.convolution.present() && one == other && one.in_flight != kAllInFlight;
}

/// The numbers of a CUDA plan; its tables are in global memory. A gradient of the weight has one kernel for
/// every n, which takes as many slices of a batch as are worth it.
Plan choose_numbers(const Problem& problem, const Target& target) {
  const bool ranges = kind_of(problem.operation) == ProblemKind::spmm;
  const std::vector<std::int64_t> ends =
      ranges ? range_ends(problem.batch, problem.convolution.present() ? BatchOf::images : BatchOf::rows)
             : std::vector<std::int64_t>{problem.batch.bound()};
  const std::vector<Config> configs = default_configs(problem, target, ends);
  Plan plan;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (!plan.empty() && are_one_kernel(problem, plan.back().config, configs[i]))
      plan.back().up_to = ends[i];
    else
      plan.push_back({ends[i], configs[i]});
  }
  return plan;
}

Plan plan_by_price(const Problem& problem, const Target& target) {
  Plan plan = choose_numbers(problem, target);
  std::visit([&](const auto& computed) { choose_tables(plan, computed, target); },
             computed_by(problem, target));
  return plan;
}

/// Plans that were chosen, by everything that decides them.
class ChosenPlans {
 public:
  template <class Choose>
  Plan find_or(const Problem& problem, const Target& target, const Choose& choose) {
    std::string key = fmt::format("{} {} {} {}", problem.layout.digest().hex(), problem.cut_in_features,
                                  problem.cut_out_features, target.to_string());
    for (const ComputationField& field : computation_fields()) key += ' ' + field.text(problem);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
    }
    Plan plan = choose();
    const std::lock_guard lock(mutex_);
    if (plans_.size() >= kMost) plans_.clear();
    return plans_.emplace(std::move(key), std::move(plan)).first->second;
  }

 private:
  static constexpr std::size_t kMost = 1024;
  std::mutex mutex_;
  std::unordered_map<std::string, Plan> plans_;
};

Plan choose_by_price(const Problem& problem, const Target& target) {
  std::visit([&](const auto& computed) { validate(computed, target); }, computed_by(problem, target));
  static ChosenPlans chosen;
  return chosen.find_or(problem, target, [&] { return plan_by_price(problem, target); });
}

/// The problem with a layout as any: what an attached kernel's config is priced for. Layers of convolutions
/// have few blocks, and many positions. Gradients of the weight have neither few blocks for the CTAs of a
/// GPU, which sum up to twelve at once, nor just too many for one wave of them. Where features are cut, the
/// last block has as many of them.
Problem of_any_layout(Problem problem) {
  constexpr double kDensity = 0.1;
  static const Layout of_linear = patterns::random(128, 128, kDensity, 1);
  static const Layout of_gradient = patterns::random(112, 112, kDensity, 1);
  static const Layout of_convolution = patterns::random(8, 8, kDensity, 1);
  problem.layout = problem.convolution.present()                 ? of_convolution
                   : problem.operation == Operation::grad_weight ? of_gradient
                                                                 : of_linear;
  const auto cut = [&](std::int64_t& features, std::int32_t side) {
    if (features != 0) features = (problem.layout.rows() - 1) * std::int64_t{side} + features % side;
  };
  const bool transposed = problem.convolution.transposed;
  cut(transposed ? problem.cut_in_features : problem.cut_out_features, problem.block.out);
  cut(transposed ? problem.cut_out_features : problem.cut_in_features, problem.block.in);
  return problem;
}

/// A plan with in_flight and split left to a layout.
Plan left_to_layout(Plan plan) {
  for (RangedConfig& range : plan) {
    range.config.in_flight = kDerivedInFlight;
    range.config.split = kDerivedSplit;
  }
  return plan;
}

/// The config with what it leaves to the layout. More CTAs must be worth it.
Config at_layout(const Config& config, const Problem& problem, const Target& target, Pricing& pricing,
                 std::int64_t up_to, std::int64_t least) {
  constexpr double kWorthIt = 0.99;
  const std::vector<std::int32_t> splits = config.split == kDerivedSplit
                                               ? splits_of(on_rows(Spmm(problem)), target, config)
                                               : std::vector{config.split};
  Config best = config;
  double least_us = std::numeric_limits<double>::infinity();
  for (const std::int32_t split : splits) {
    Config tried = config;
    tried.split = split;
    if (config.in_flight == kDerivedInFlight)
      tried.in_flight = pricing.with_derived(tried, up_to, least).in_flight;
    const double us = splits.size() == 1 ? 0 : pricing.of(tried, up_to).us;
    if (us >= kWorthIt * least_us) continue;
    best = tried;
    least_us = us;
  }
  return best;
}

/// A gradient of the weight leaves nothing to the layout.
Plan choose_attached_plan(const Problem& problem, const Target& target) {
  Plan plan = with_attached_tables(choose_by_price(of_any_layout(problem), target));
  return kind_of(problem.operation) == ProblemKind::spmm ? left_to_layout(std::move(plan)) : plan;
}

/// With attached tables that is left to the layout.
void pin(Config& config, const Problem& problem, const Target& target) {
  const bool product = kind_of(problem.operation) == ProblemKind::spmm;
  if (config.in_flight != kDerivedInFlight || (product && config.table == TableForm::attached)) return;
  // What the compiler will refuse has no price.
  const bool priced = product && ConfigCheck(problem, target).refusal(config).empty();
  config.in_flight =
      priced ? Pricing(problem, target).with_derived(config, problem.batch.bound()).in_flight : kAllInFlight;
}

Plan plan_at_layout(Plan plan, const Problem& problem, const Target& target) {
  if (kind_of(problem.operation) == ProblemKind::sddmm) return plan;
  std::optional<Pricing> pricing;
  std::int64_t begin = 1;
  for (auto& [up_to, config] : plan) {
    const std::int64_t least = problem.batch.dynamic() ? begin : up_to;
    begin = up_to + 1;
    if (config.in_flight != kDerivedInFlight && config.split != kDerivedSplit) continue;
    if (!pricing) pricing.emplace(problem, target);
    config = at_layout(config, problem, target, *pricing, up_to, least);
  }
  return plan;
}

Plan with_baked_tables(Plan plan, const Problem& problem, const Target& target) {
  plan = plan_at_layout(std::move(plan), problem, target);
  std::visit([&](const auto& computed) { choose_tables(plan, computed, target); },
             computed_by(problem, target));
  return plan;
}

class CudaPrices final : public Prices {
 public:
  CudaPrices(Computed computed, Target target, const Part& part)
      : computed_(std::move(computed)),
        target_(std::move(target)),
        figures_(architecture(target_, part)),
        rows_(layout_of_product(computed_)) {}

  Prediction of(const Config& config, std::int64_t n) override {
    return std::visit(
        [&](const auto& of_kind) { return predict(of_kind, target_, config, n, figures_, rows_); },
        computed_);
  }
  Config with_derived(const Config& config, std::int64_t n, std::int64_t begin) override {
    return std::visit(
        [&](const auto& of_kind) {
          return cuda::with_derived(of_kind, target_, config, n, begin, figures_, rows_);
        },
        computed_);
  }

 private:
  static Layout layout_of_product(const Computed& computed) {
    const auto* const product = std::get_if<Spmm>(&computed);
    return product == nullptr ? Layout() : product->layout;
  }

  Computed computed_;
  Target target_;
  Architecture figures_;
  RowShares rows_;
};

template <class Computed>
std::vector<const FamilyTuning<Computed>*> tunings_of(const auto& families) {
  std::vector<const FamilyTuning<Computed>*> tunings;
  for (const auto* const family : families) tunings.push_back(family->tuning);
  return tunings;
}

/// The price of CTAs that share x needs a schedule. `stream` was measured for two batch tiles at most.
bool may_be_default(const Problem& problem, const Config& config, std::int64_t n) {
  if (config.cluster_rows > 1 && problem.layout.blocks() > kMostScheduled) return false;
  return config.variant != Variant::stream || n <= 2 * std::int64_t{config.tile_n};
}

MachinePeak documented_peak(const Problem& problem, const Target& target, const Part& part) {
  const Architecture figures = architecture(target, part);
  return {2 * figures.products(problem.dtype, problem.math) * figures.clock_ghz * target.workers,
          figures.memory_gbytes, false};
}

}  // namespace

extern const TuningBackend kTuning;
constexpr TuningBackend kTuning{
    .kind = Target::Kind::cuda,
    .spmm_tunings = [] { return tunings_of<Spmm>(spmm_families()); },
    .sddmm_tunings = [] { return tunings_of<Sddmm>(sddmm_families()); },
    .most_small_tiles = 8,
    .may_be_default = may_be_default,
    .may_refuse_split = false,
    .choose_plan = choose_by_price,
    .choose_attached_plan = choose_attached_plan,
    .pin = pin,
    .at_layout = plan_at_layout,
    .with_baked_tables = with_baked_tables,
    .prices = [](Computed computed, const Target& target, const Part& part) -> std::unique_ptr<Prices> {
      return std::make_unique<CudaPrices>(std::move(computed), target, part);
    },
    .documented_peak = documented_peak};

}  // namespace sparsekiln::cuda

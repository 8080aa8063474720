#include "autotune/backend.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "autotune/batch_ranges.h"
#include "autotune/cpu/defaults.h"
#include "autotune/cpu/prediction.h"
#include "autotune/default_plan.h"
#include "compiler/family_tuning.h"
#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln::cpu {
namespace {

/// As few ranges as there are configs.
template <class Computed>
Plan few_ranges(const Computed& problem, const Target& target) {
  Plan plan;
  for (const std::int64_t end : range_ends(problem.batch)) {
    const Config config = default_config(problem, target, end);
    if (plan.empty() || plan.back().config != config)
      plan.push_back({end, config});
    else
      plan.back().up_to = end;
  }
  return plan;
}

/// A product has a schedule for each range, and up to four batch rows have loops of their own. Few images of
/// a convolution have tiles for all threads.
Plan ranges_for(const Spmm& problem, const Target& target) {
  if (problem.correlation) return few_ranges(problem, target);
  Plan plan;
  for (const std::int64_t end : range_ends(problem.batch, BatchOf::rows_from_one))
    plan.push_back({end, default_config(problem, target, end)});
  return plan;
}

Plan ranges_for(const Sddmm& gradient, const Target& target) { return few_ranges(gradient, target); }

Plan choose_by_rules(const Problem& problem, const Target& target) {
  return std::visit([&](const auto& computed) { return ranges_for(computed, target); }, computed_by(problem));
}

/// Rules ask for the size of a layout alone; the plan is for any.
Plan choose_attached_plan(const Problem& problem, const Target& target) {
  Problem any = problem;
  any.layout = Layout();
  return with_attached_tables(choose_by_rules(any, target));
}

void pin(Config& config, const Problem&, const Target&) {
  if (config.in_flight == kDerivedInFlight) config.in_flight = kAllInFlight;
}

Plan with_baked_tables(Plan plan, const Problem&, const Target&) {
  for (RangedConfig& range : plan) range.config.table = TableForm::global;
  return plan;
}

class CpuPrices final : public Prices {
 public:
  CpuPrices(Computed computed, Target target) : computed_(std::move(computed)), target_(std::move(target)) {}
  Prediction of(const Config& config, std::int64_t n) override {
    return std::visit([&](const auto& of_kind) { return predict(of_kind, target_, config, n); }, computed_);
  }

 private:
  Computed computed_;
  Target target_;
};

const char* rejection(const Spmm& problem, const Target& target, const Config& config);

const FamilyTuning<Spmm> kSpmmVector{.variant = Variant::vector,
                                     .axes = {.tile_n = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128},
                                              .tile_out = {0, 2, 3, 4, 6, 8},
                                              .stages = {1},
                                              .warps = {1},
                                              .split = {1, 2, 4, 8},
                                              .tiles = {{1, 1}},
                                              .table = {TableForm::global},
                                              .operand_a = {OperandA::x}},
                                     .rejection = rejection};
const FamilyTuning<Sddmm> kSddmmVector{.variant = Variant::vector,
                                       .axes = {.tile_n = {16, 32, 64, 128},
                                                .tile_out = {0},
                                                .stages = {1, 2},
                                                .warps = {1},
                                                .split = {1, 2, 4, 8},
                                                .tiles = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {8, 1}},
                                                .table = {TableForm::global},
                                                .operand_a = {OperandA::x}},
                                       .rejection = rejects_nothing<Sddmm>};

const char* rejection(const Spmm& problem, const Target& target, const Config& config) {
  if (config.tile_n > kMostBatchRows && !problem.correlation)
    return "tiles are so wide only where a convolution packs what lies between them twice";
  const auto tile = expected_tile(problem, target, config);
  Config less = config;
  const auto same = [&](std::int32_t tile_out) {
    less.tile_out = tile_out;
    return tile_out < config.tile_out && expected_tile(problem, target, less) == tile;
  };
  const auto& values = kSpmmVector.axes.tile_out;
  return std::any_of(values.begin(), values.end(), same) ? "a smaller tile_out gives the same register tiles"
                                                         : nullptr;
}

/// What the tuner knows of the cpu target's families of kernels, by kind of problem.
std::vector<const FamilyTuning<Spmm>*> spmm_tunings() { return {&kSpmmVector}; }
std::vector<const FamilyTuning<Sddmm>*> sddmm_tunings() { return {&kSddmmVector}; }

}  // namespace

extern const TuningBackend kTuning;
constexpr TuningBackend kTuning{
    .kind = Target::Kind::cpu,
    .spmm_tunings = spmm_tunings,
    .sddmm_tunings = sddmm_tunings,
    .choose_plan = choose_by_rules,
    .choose_attached_plan = choose_attached_plan,
    .pin = pin,
    .with_baked_tables = with_baked_tables,
    .prices = [](Computed computed, const Target& target, const Part&) -> std::unique_ptr<Prices> {
      return std::make_unique<CpuPrices>(std::move(computed), target);
    }};

}  // namespace sparsekiln::cpu

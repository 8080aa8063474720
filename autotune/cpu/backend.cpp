#include "autotune/backend.h"

#include <utility>
#include <variant>

#include "autotune/batch_ranges.h"
#include "autotune/cpu/defaults.h"
#include "autotune/cpu/families.h"
#include "autotune/cpu/prediction.h"
#include "autotune/default_plan.h"

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

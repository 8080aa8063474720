#include "autotune/prediction.h"

#include <utility>

#include "autotune/backend.h"
#include "compiler/problem_kind.h"

namespace sparsekiln {

Pricing::Pricing(const Problem& problem, const Target& target, const Part& part)
    : batch_(problem.batch), batch_of_(problem.convolution.present() ? BatchOf::images : BatchOf::rows) {
  prices_ = tuning_of(target).prices(computed_by(problem, target), target, part);
}

Pricing::~Pricing() = default;

Prediction Pricing::of(const Config& config, std::int64_t n) { return prices_->of(config, n); }

Config Pricing::with_derived(const Config& config, std::int64_t n) {
  return with_derived(config, n, range_begin(batch_, n, batch_of_));
}

Config Pricing::with_derived(const Config& config, std::int64_t n, std::int64_t begin) {
  return prices_->with_derived(config, n, begin);
}

Prediction predict(const Problem& problem, const Target& target, const Config& config, std::int64_t n,
                   const Part& part) {
  return Pricing(problem, target, part).of(config, n);
}

Floor floor_of(const Problem& problem, std::int64_t n) {
  const LayoutStatistics& statistics = problem.layout.statistics();
  const auto element = static_cast<double>(size_of(problem.dtype));
  const auto result = static_cast<double>(size_of(problem.out_dtype));
  const double weights = problem.epilogue.glu ? 2 : 1;
  const double elements = weights * static_cast<double>(problem.weight_blocks(statistics.blocks)) *
                          problem.block.out * problem.block.in;
  const auto share = [](std::int32_t all, std::int32_t empty) {
    return all == 0 ? 0 : static_cast<double>(all - empty) / all;
  };
  const double out =
      static_cast<double>(problem.output_rows(n)) * static_cast<double>(problem.out_features());
  const double in = static_cast<double>(problem.input_rows(n)) * static_cast<double>(problem.in_features());
  // Activations that meet no block are not needed; results are written all the same.
  double of_rows = share(problem.layout.rows(), statistics.empty_rows);
  double of_cols = share(problem.layout.cols(), statistics.empty_cols);
  if (problem.convolution.transposed) std::swap(of_rows, of_cols);
  const double out_needed = out * of_rows;
  const double in_needed = in * of_cols;
  Floor least;
  const double gates = problem.gates_of_cell();
  const double cell = cell_bytes(problem);
  const double groups = problem.normalised_groups();
  least.flops = problem.flops(n);
  switch (problem.operation) {
    case Operation::forward:
      least.bytes = (elements + in_needed) * element + out * (result / groups + cell);
      break;
    case Operation::grad_input:
      least.bytes = (elements + gates * out_needed) * element + in * (gates * groups * result + cell);
      break;
    case Operation::grad_weight:
      least.bytes = elements * result + (in_needed + gates * out_needed) * element;
      break;
  }
  return least;
}

MachinePeak peak_of(const Problem& problem, const Target& target, const Part& part) {
  const TuningBackend& tuning = tuning_of(target);
  return tuning.documented_peak == nullptr ? MachinePeak{} : tuning.documented_peak(problem, target, part);
}

}  // namespace sparsekiln

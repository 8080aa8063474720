#include "autotune/prediction.h"

#include <variant>

#include "autotune/cpu_prediction.h"
#include "autotune/cuda_prediction.h"
#include "compiler/problem_kind.h"

namespace sparsekiln {

Prediction predict(const Problem& problem, const Target& target, const Config& config, std::int64_t n,
                   const Part& part) {
  return std::visit(
      [&](const auto& computed) {
        return target.kind == Target::Kind::cpu ? cpu::predict(computed, target, config, n)
                                                : cuda::predict(computed, target, config, n, part);
      },
      computed_by(problem));
}

Floor floor_of(const Problem& problem, std::int64_t n) {
  const LayoutStatistics& statistics = problem.layout.statistics();
  const auto element = static_cast<double>(size_of(problem.dtype));
  const auto result = static_cast<double>(size_of(problem.out_dtype));
  const double weights = problem.epilogue.glu ? 2 : 1;
  const double elements =
      weights * static_cast<double>(statistics.blocks) * problem.block.out * problem.block.in;
  const auto share = [](std::int32_t all, std::int32_t empty) {
    return all == 0 ? 0 : static_cast<double>(all - empty) / all;
  };
  const auto batch = static_cast<double>(n);
  const double out = batch * static_cast<double>(problem.out_features());
  const double in = batch * static_cast<double>(problem.in_features());
  // Activations that meet no block are not needed; results are written all the same.
  const double out_needed = out * share(problem.layout.rows(), statistics.empty_rows);
  const double in_needed = in * share(problem.layout.cols(), statistics.empty_cols);
  Floor least;
  least.flops = problem.flops(n);
  switch (problem.operation) {
    case Operation::forward:
      least.bytes = (elements + in_needed) * element + out * result;
      break;
    case Operation::grad_input:
      least.bytes = (elements + out_needed) * element + in * result;
      break;
    case Operation::grad_weight:
      least.bytes = elements * result + (in_needed + out_needed) * element;
      break;
  }
  return least;
}

}  // namespace sparsekiln

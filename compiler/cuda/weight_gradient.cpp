#include "compiler/cuda/weight_gradient.h"

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln::cuda {

void validate(const Sddmm& gradient, const Target& target, const Config&) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("{} on {}: CUDA targets compute {} and {}", name(gradient.operation), target.arch,
                          name(Operation::forward), name(Operation::grad_input)));
}

std::int64_t table_bound(const Sddmm& gradient, const Config& config) {
  return run_bound(gradient, config.rows) * 12 + gradient.layout.blocks() * 4;
}

Source emit(const Sddmm& gradient, const Target& target, const Plan& plan, const std::vector<BlockRuns>&) {
  for (const RangedConfig& range : plan) validate(gradient, target, range.config);
  return {};
}

}  // namespace sparsekiln::cuda

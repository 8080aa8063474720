#include "compiler/cpu/weight_gradient.h"

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln::cpu {

void validate(const Sddmm& gradient, const Target& target, const Config&) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("{} on {}: the cpu target computes {} and {}; a CUDA target would work",
                          name(gradient.operation), target.to_string(), name(Operation::forward),
                          name(Operation::grad_input)));
}

Source emit(const Sddmm& gradient, const Target& target, const Plan& plan, const std::vector<BlockRuns>&) {
  for (const RangedConfig& range : plan) validate(gradient, target, range.config);
  return {};
}

}  // namespace sparsekiln::cpu

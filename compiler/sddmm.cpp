#include "compiler/sddmm.h"

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln {

Sddmm::Sddmm(const Problem& problem)
    : Computation(problem),
      layout(problem.layout),
      cut_in(problem.cut_in_features),
      cut_out(problem.cut_out_features) {
  if (operation != Operation::grad_weight)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} is a product with the weight, not the gradient of it, which {} is",
                            name(operation), name(Operation::grad_weight)));
}

namespace {

[[noreturn]] void refuse(const Sddmm& gradient, std::string_view target, std::string_view what,
                         std::string_view instead) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("{} of {} on {}: no kernel there computes it; {} would work", what,
                          name(gradient.operation), target, instead));
}

}  // namespace

void require_whole_blocks(const Sddmm& gradient, std::string_view target) {
  if (gradient.cut_in != 0 || gradient.cut_out != 0)
    refuse(
        gradient, target,
        fmt::format("{} to {} features, which cut a block", gradient.in_features(), gradient.out_features()),
        "whole blocks");
  if (gradient.alignment != 16)
    refuse(gradient, target, fmt::format("activations aligned to {} bytes", gradient.alignment), "16");
}

void require_built(const Sddmm& gradient, std::string_view target) {
  require_whole_blocks(gradient, target);
  if (gradient.derivative != Activation::none)
    refuse(gradient, target, fmt::format("derivative {}", name(gradient.derivative)), "none");
  if (gradient.gates) refuse(gradient, target, "gates", "a gradient that is scaled afterwards");
  if (gradient.bias_gradient) refuse(gradient, target, "bias_gradient", "a sum of dy over the batch");
  if (gradient.feature_major())
    refuse(gradient, target, fmt::format("{} activations", name(gradient.order)),
           name(ActivationOrder::batch_major));
}

}  // namespace sparsekiln

#include "compiler/sddmm.h"

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/spmm.h"

namespace sparsekiln {

Sddmm::Sddmm(const Problem& problem)
    : Computation(problem),
      layout(of_all_gates(problem.layout, problem)),
      cut_in(problem.cut_in_features),
      cut_out(problem.cut_out_features) {
  if (operation != Operation::grad_weight)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} is a product with the weight, not the gradient of it, which {} is",
                            name(operation), name(Operation::grad_weight)));
  if (convolution.present()) {
    correlation = std::make_shared<const Correlation>(
        convolution, exchanged() ? Operation::grad_input : Operation::forward);
    layout = with_taps(layout, convolution);
  }
  if (block_scales) block_scale_map = BlockScales(convolution, layout.blocks());
}

}  // namespace sparsekiln

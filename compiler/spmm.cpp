#include "compiler/spmm.h"

#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln {
namespace {

bool transposes(Operation operation) {
  if (operation == Operation::grad_weight)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} is no product with a sparse matrix: forward and {} are", name(operation),
                            name(Operation::grad_input)));
  return operation == Operation::grad_input;
}

}  // namespace

Spmm::Spmm(const Problem& problem)
    : Computation(problem),
      weight(problem.layout),
      layout(transposes(operation) ? weight.transposed() : weight),
      cut_in(problem.cut_in_features),
      cut_out(problem.cut_out_features) {
  if (!by_columns()) return;
  std::swap(block.out, block.in);
  std::swap(cut_in, cut_out);
}

}  // namespace sparsekiln

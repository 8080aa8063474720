#include "compiler/spmm.h"

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
    : operation(problem.operation),
      weight(problem.layout),
      layout(transposes(operation) ? weight.transposed() : weight),
      block(transposes(operation) ? BlockShape{problem.block.in, problem.block.out} : problem.block),
      batch(problem.batch),
      dtype(problem.dtype),
      out_dtype(problem.out_dtype),
      math(problem.math),
      order(problem.order),
      strict_absent(problem.strict_absent) {}

}  // namespace sparsekiln

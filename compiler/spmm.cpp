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

void require_built(const Spmm& product, std::string_view target) {
  const auto refuse = [&](std::string_view what, std::string_view instead) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} on {}: no kernel there computes it; {} would work", what, target, instead));
  };
  if (product.epilogue.gated)
    refuse(fmt::format("epilogue {}", to_string(product.epilogue)), "a kernel for each weight");
  if (product.derivative != Activation::none)
    refuse(fmt::format("derivative {}", name(product.derivative)), "none");
  if (product.gates) refuse("gates", "a weight that is already scaled");
  if (product.cut_in != 0 || product.cut_out != 0)
    refuse(fmt::format("{} to {} features, which cut a block", product.in_features(), product.out_features()),
           "whole blocks");
  if (product.alignment != 16)
    refuse(fmt::format("activations aligned to {} bytes", product.alignment), "16");
}

}  // namespace sparsekiln

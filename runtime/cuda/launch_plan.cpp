#include "runtime/cuda/launch_plan.h"

#include <fmt/format.h>

#include <sparsekiln/error.h>

namespace sparsekiln::cuda {

LaunchPlan::LaunchPlan(std::span<const Argument> arguments) : count_(arguments.size()) {
  if (count_ > kMaxArguments) {
    throw Error(ErrorKind::internal, fmt::format("a kernel with {} parameters: at most {} can be launched",
                                                 count_, kMaxArguments));
  }
  for (std::size_t i = 0; i < count_; ++i) offset_[i] = offset_of(arguments[i]);
}

std::uint16_t LaunchPlan::offset_of(Argument argument) {
  switch (argument) {
    case Argument::x:
      return offsetof(LaunchOperands, x);
    case Argument::w:
      return offsetof(LaunchOperands, w);
    case Argument::y:
      return offsetof(LaunchOperands, y);
    case Argument::workspace:
      return offsetof(LaunchOperands, workspace);
    case Argument::x_stride:
      return offsetof(LaunchOperands, x_stride);
    case Argument::y_stride:
      return offsetof(LaunchOperands, y_stride);
    case Argument::v:
      return offsetof(LaunchOperands, v);
    case Argument::bias:
      return offsetof(LaunchOperands, bias);
    case Argument::v_bias:
      return offsetof(LaunchOperands, v_bias);
    case Argument::residual:
      return offsetof(LaunchOperands, residual);
    case Argument::residual_stride:
      return offsetof(LaunchOperands, residual_stride);
    case Argument::z:
      return offsetof(LaunchOperands, z);
    case Argument::z_stride:
      return offsetof(LaunchOperands, z_stride);
    case Argument::gates:
      return offsetof(LaunchOperands, gates);
    case Argument::dbias:
      return offsetof(LaunchOperands, dbias);
    case Argument::dgates:
      return offsetof(LaunchOperands, dgates);
    case Argument::alpha:
      return offsetof(LaunchOperands, alpha);
    case Argument::beta:
      return offsetof(LaunchOperands, beta);
    case Argument::pairs:
      return offsetof(LaunchOperands, pairs);
    case Argument::edge_gain:
      return offsetof(LaunchOperands, edge_gain);
    case Argument::edge_bias:
      return offsetof(LaunchOperands, edge_bias);
    case Argument::row_scale:
      return offsetof(LaunchOperands, row_scale);
    case Argument::v_row_scale:
      return offsetof(LaunchOperands, v_row_scale);
    case Argument::pair_x:
      return offsetof(LaunchOperands, pairs.pair[0].x);
    case Argument::pair_dy:
      return offsetof(LaunchOperands, pairs.pair[0].dy);
    case Argument::images:
      return offsetof(LaunchOperands, images);
    case Argument::cell:
      return offsetof(LaunchOperands, cell);
    case Argument::normalisation:
      return offsetof(LaunchOperands, normalisation);
    case Argument::n:
      return kN;
    case Argument::tables:
      return kTables;
    case Argument::tensor_map:
      return kTensorMap;
  }
  throw Error(ErrorKind::internal,
              fmt::format("a kernel with a parameter of unknown kind {}", static_cast<int>(argument)));
}

}  // namespace sparsekiln::cuda

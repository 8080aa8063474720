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

std::uint8_t LaunchPlan::offset_of(Argument argument) {
  using Operands = Values::Operands;
  switch (argument) {
    case Argument::x:
      return offsetof(Operands, x);
    case Argument::w:
      return offsetof(Operands, w);
    case Argument::y:
      return offsetof(Operands, y);
    case Argument::workspace:
      return offsetof(Operands, workspace);
    case Argument::n:
      return offsetof(Operands, n);
    case Argument::x_stride:
      return offsetof(Operands, x_stride);
    case Argument::y_stride:
      return offsetof(Operands, y_stride);
    case Argument::tables:
      return kTables;
  }
  throw Error(ErrorKind::internal,
              fmt::format("a kernel with a parameter of unknown kind {}", static_cast<int>(argument)));
}

}  // namespace sparsekiln::cuda

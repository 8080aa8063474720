#include "runtime/cuda/launch_plan.h"

#include <fmt/format.h>

#include <sparsekiln/error.h>

namespace sparsekiln::cuda {

LaunchPlan::LaunchPlan(std::span<const Argument> arguments) : count_(arguments.size()) {
  if (count_ > kMaxArguments) {
    throw Error(ErrorKind::internal, fmt::format("a kernel with {} parameters: at most {} can be launched",
                                                 count_, kMaxArguments));
  }
  for (std::size_t i = 0; i < count_; ++i) offset_[i] = place_of(arguments[i]);
}

std::uint16_t LaunchPlan::place_of(Argument argument) {
  if (argument == Argument::n) return kN;
  if (argument == Argument::tables) return kTables;
  if (argument == Argument::tensor_map) return kTensorMap;
  return offset_of(argument);
}

}  // namespace sparsekiln::cuda

#pragma once

#include "compiler/launch_operands.h"

namespace sparsekiln::cpu {

/// Everything a pass reads. One pointer to it, the worker and the batch tile are a pass's parameters:
/// `void pass(const Call*, int32_t worker, int32_t batch_tile)`. In the workspace lie the counters of all
/// batch tiles, then (64-byte aligned) the parts of each.
using Call = LaunchOperands;

}  // namespace sparsekiln::cpu

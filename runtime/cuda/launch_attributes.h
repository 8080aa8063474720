#pragma once

#include <vector>

#include <cuda.h>
#include <sparsekiln/binary.h>

#include "runtime/cuda/context.h"

namespace sparsekiln::cuda {

/// What cuLaunchKernelEx is given for an entry; nothing where cuLaunchKernel does. Throws `driver`, with what
/// would work, where the driver has no such function or the device is older than sm_90, and `internal` where
/// the entry's workers do not make whole clusters.
[[nodiscard]] std::vector<CUlaunchAttribute> launch_attributes(const Context& context, const Entry& entry);

}  // namespace sparsekiln::cuda

#pragma once

#include <vector>

#include <cuda.h>
#include <sparsekiln/binary.h>

#include "runtime/cuda/context.h"

namespace sparsekiln::cuda {

/// What cuLaunchKernelEx is given for a pass of an entry; nothing where cuLaunchKernel does. Overlap with the
/// launch before is the last attribute. It is left out where the driver has no such function or the device is
/// older than sm_90: nothing but time is lost. For clusters this throws `driver`, with what would work, and
/// `internal` where the entry's workers do not make whole clusters.
[[nodiscard]] std::vector<CUlaunchAttribute> launch_attributes(const Context& context, const Entry& entry,
                                                               std::size_t pass);

/// Whether a stream that is captured takes launches that overlap others into its graph.
[[nodiscard]] bool captures_overlap(const Context& context);

}  // namespace sparsekiln::cuda

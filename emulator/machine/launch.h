#pragma once

#include "emulator/machine/counters.h"
#include "emulator/machine/launch_request.h"

namespace sparsekiln::emulator {

/// Runs a kernel to its end, blocks spread over host threads. A block runs on its own until it talks to
/// others (an atomic, or a strong access of global memory); there it waits for its turn, which the seed
/// decides: so the result, the counters and every report are the same on each run. Throws Fault.
[[nodiscard]] Counters run(const LaunchRequest& request);

}  // namespace sparsekiln::emulator

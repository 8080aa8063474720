#pragma once

#include <functional>

#include "tools/stopwatch.h"

namespace sparsekiln::tools {

/// As `time_launches`, by the clock of the CUDA device whose context is current: events on a stream made for
/// it, with all launches of a sample between two of them, so that neither the host's clock nor waiting for
/// the device shows. `launch` queues one launch on the stream that it is given.
[[nodiscard]] Timing time_device_launches(const std::function<void(void* stream)>& launch, int samples);

}  // namespace sparsekiln::tools

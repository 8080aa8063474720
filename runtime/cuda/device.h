#pragma once

#include <memory>

#include "runtime/cuda/context.h"
#include "runtime/device.h"

namespace sparsekiln::cuda {

/// A CUDA device by its number, through its primary context; -1: the device and the very context that is
/// current on the calling thread, else device 0. A thread that had no current context has this one
/// afterwards. Throws `driver`.
[[nodiscard]] std::shared_ptr<const Device> open_device(int ordinal = -1);

/// The device of a context.
[[nodiscard]] std::shared_ptr<const Device> open_device(std::shared_ptr<const Context> context);

/// The context that a device was opened with; null where it is not a CUDA device.
[[nodiscard]] std::shared_ptr<const Context> context_of(const Device& device);

}  // namespace sparsekiln::cuda

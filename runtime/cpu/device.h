#pragma once

#include <memory>

#include "runtime/device.h"

namespace sparsekiln::cpu {

/// This machine's processors. `workers` is what Device::target() reports; 0: one a hardware thread that the
/// process may use. A Binary runs with as many threads as its own target names, at most: see
/// threads.h.
[[nodiscard]] std::shared_ptr<const Device> open_device(std::int32_t workers = 0);

}  // namespace sparsekiln::cpu

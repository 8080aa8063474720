#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include <sparsekiln/target.h>

#include "autotune/record.h"
#include "runtime/device.h"

namespace sparsekiln {

/// The device that kernels of `target` run on, where `asked` (Options::target) was resolved to it; null where
/// this machine has none.
[[nodiscard]] std::shared_ptr<const Device> device_at_hand(const Target& target, std::string_view asked);

/// Where kernels of `target` would be timed; nothing where this machine has no such device. Of a processor it
/// is read once.
[[nodiscard]] std::optional<Environment> environment_of(const Target& target, std::string_view asked);

}  // namespace sparsekiln

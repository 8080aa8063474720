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

/// Where kernels are timed on a device.
[[nodiscard]] Environment environment_on(const Target& target, const Device& device);

/// The environment of the device which `asked` names, or of this machine's processor; nothing where it names
/// an architecture of GPUs: no GPU is opened unless it was asked for.
[[nodiscard]] std::optional<Environment> environment_of(const Target& target, std::string_view asked);

}  // namespace sparsekiln

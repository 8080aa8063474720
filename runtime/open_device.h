#pragma once

#include <memory>
#include <string_view>

#include "runtime/device.h"

namespace sparsekiln {

/// "cpu", "auto", "cuda", "cuda:1", "emulated", "emulated:sm_80" (what follows the colon is a target; its
/// workers are the schedule's, the device has its own). Throws `driver` where there is none.
[[nodiscard]] std::shared_ptr<const Device> open_device(std::string_view text);

/// The device that a Binary for `target` is loaded on: the one that `asked` (Options::target) names, else the
/// current one of its kind.
[[nodiscard]] std::shared_ptr<const Device> open_device_for(const Target& target, std::string_view asked);

/// Whether a text names a device, or is "auto", and no architecture.
[[nodiscard]] bool names_device(std::string_view text);

/// Whether a text names a device that is emulated, where nothing is timed, and launches are counted.
[[nodiscard]] bool names_emulator(std::string_view text);

/// The CUDA context that a kernel for `target` (as in Options) would be loaded in, made current where the
/// thread had none (an emulated one is not); null for the cpu. Kernels of different contexts are different.
/// Throws as `open_device` does.
[[nodiscard]] const void* context_for(std::string_view target);

}  // namespace sparsekiln

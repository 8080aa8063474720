#pragma once

#include <memory>
#include <string_view>

#include "runtime/device.h"

namespace sparsekiln {

/// "cpu" (or an x86-64 level), "auto", "cuda", "cuda:1", "emulated", "emulated:sm_80" (what follows the colon
/// is a target; its workers are the schedule's, the device has its own). Throws `driver` where there is none.
[[nodiscard]] std::shared_ptr<const Device> open_device(std::string_view text);

/// The CUDA context that a kernel for `target` (as in Options) would be loaded in, made current where the
/// thread had none (an emulated one is not); null for the cpu. Kernels of different contexts are different.
/// Throws as `open_device` does.
[[nodiscard]] const void* context_for(std::string_view target);

}  // namespace sparsekiln

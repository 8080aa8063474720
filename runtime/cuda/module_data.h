#pragma once

#include <span>

#include <sparsekiln/binary.h>

#include "runtime/cuda/driver.h"

namespace sparsekiln::cuda {

/// Writes the data of a Binary to the variables of its module; it is there when this returns. May be called
/// while streams are captured. The module's context must be current. Throws `driver`, and `cache` where the
/// module has no such variable or one of another size: then its code was not made with this data.
void upload(const Driver& driver, CUmodule module, std::span<const ModuleData> data);

}  // namespace sparsekiln::cuda

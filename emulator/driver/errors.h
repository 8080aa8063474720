#pragma once

#include "emulator/driver/interface.h"

namespace sparsekiln::driver {

/// "CUDA_ERROR_OUT_OF_MEMORY"; null if the number is not a CUresult.
[[nodiscard]] const char* error_name(CUresult result);
/// "out of memory"; null if the number is not a CUresult.
[[nodiscard]] const char* error_text(CUresult result);

}  // namespace sparsekiln::driver

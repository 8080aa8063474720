#pragma once

/// cuda.h as a driver sees it: every interface under the name that libcuda exports (cuMemAlloc_v2, not a
/// macro cuMemAlloc), and what is defined of it visible from outside.
#define __CUDA_API_VERSION_INTERNAL 1
#pragma GCC visibility push(default)
#include <cuda.h>

#include "emulator/control.h"
#pragma GCC visibility pop

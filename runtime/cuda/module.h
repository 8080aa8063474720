#pragma once

#include <memory>

#include "runtime/cuda/context.h"
#include "runtime/device.h"

namespace sparsekiln::cuda {

/// Puts a Binary's code into a context: the cubin, or where the driver does not take it, the PTX. All of it
/// is resident when this returns, whatever CUDA_MODULE_LOADING says, so a first launch may be captured.
/// Throws `driver`, with the log of the driver's compiler, or `invalid_argument` for a batch beyond 32 bits.
[[nodiscard]] std::unique_ptr<Module> load_module(std::shared_ptr<const Context> context,
                                                  std::shared_ptr<const Binary> binary);

}  // namespace sparsekiln::cuda

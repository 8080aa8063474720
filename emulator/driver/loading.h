#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "emulator/driver/process.h"

namespace sparsekiln::driver {

/// Why an image is not loaded: the answer, and the message for CU_JIT_ERROR_LOG_BUFFER.
class LoadError : public std::runtime_error {
 public:
  LoadError(CUresult result, const std::string& message) : std::runtime_error(message), result_(result) {}
  [[nodiscard]] CUresult result() const noexcept { return result_; }

 private:
  CUresult result_;
};

/// The PTX that `image` holds, a text that ends with NUL. Throws LoadError for machine code
/// (CUDA_ERROR_NO_BINARY_FOR_GPU) and what is neither (CUDA_ERROR_INVALID_IMAGE).
[[nodiscard]] std::string ptx_of(const void* image);

/// Loads a module into a context: every kernel is decoded, every variable gets memory. Throws LoadError
/// naming the line and the instruction of what is malformed or not implemented.
[[nodiscard]] CUmodule load_module(const std::shared_ptr<Context>& context, std::string text);

/// Removes a module and its kernels; false where there is none.
bool unload_module(CUmodule handle);

}  // namespace sparsekiln::driver

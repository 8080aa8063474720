#pragma once

#include <memory>
#include <string>

#include <sparsekiln/binary.h>

#include "runtime/cuda/context.h"

namespace sparsekiln::cuda {

/// The machine code of a Binary in a context, until this is destroyed.
///
/// A CUmodule and not a CUlibrary: a library belongs to every context of the process, and with
/// CUDA_MODULE_LOADING=EAGER is loaded into all of them, on devices it was not compiled for as well. A Kernel
/// belongs to one.
class LoadedCode {
 public:
  /// The cubin; where the driver does not take it, the PTX, compiled by the driver. Either with its data,
  /// which is there when this returns. The context must be current. Throws `driver` with what the driver
  /// answered to each, and its compiler's log; `cache` where code and data do not go together.
  LoadedCode(std::shared_ptr<const Context> context, const Binary& binary);
  LoadedCode(const LoadedCode&) = delete;
  LoadedCode& operator=(const LoadedCode&) = delete;
  ~LoadedCode();

  /// An entry point, resident. Throws `driver` where there is none of that name.
  [[nodiscard]] CUfunction function(const std::string& name) const;

 private:
  void load(const Binary& binary);

  std::shared_ptr<const Context> context_;
  CUmodule module_ = nullptr;
};

}  // namespace sparsekiln::cuda

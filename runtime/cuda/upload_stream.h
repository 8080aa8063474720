#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "runtime/cuda/driver.h"

namespace sparsekiln::cuda {

/// A stream for one upload. The legacy stream, which a plain copy uses, must not be touched while a stream
/// that waits for it is captured. The context must be current. All members throw `driver`.
class UploadStream {
 public:
  /// `what` is uploaded, for messages.
  UploadStream(const Driver& driver, std::string what);
  UploadStream(const UploadStream&) = delete;
  UploadStream& operator=(const UploadStream&) = delete;
  ~UploadStream();

  void copy(CUdeviceptr to, std::span<const std::byte> from) const;
  /// Until all copies have ended.
  void wait() const;

 private:
  const Driver& driver_;
  std::string what_;
  CUstream stream_ = nullptr;
};

}  // namespace sparsekiln::cuda

#pragma once

#include "runtime/cuda/driver_api.h"

namespace sparsekiln::cuda {

/// Lets this thread allocate while some other stream is being captured, which by default is refused and
/// spoils that capture. Memory that is allocated here has nothing to do with it.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const DriverApi& api) : api_(api) {
    entered_ = api_.thread_exchange_stream_capture_mode(&mode_) == CUDA_SUCCESS;
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() {
    if (entered_) static_cast<void>(api_.thread_exchange_stream_capture_mode(&mode_));
  }

 private:
  const DriverApi& api_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool entered_ = false;
};

}  // namespace sparsekiln::cuda

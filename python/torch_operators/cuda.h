#pragma once

#include <cstdint>
#include <optional>

#include <dlpack/dlpack.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

namespace sparsekiln::torch_operators {

/// Where a tensor is, if kernels are launched there from here.
std::optional<DLDevice> device_of(std::int32_t type, std::int32_t index);

/// A CUDA device, which is PyTorch's current one for as long as this lives.
class CudaDevice {
 public:
  explicit CudaDevice(std::int32_t index);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice();
  /// PyTorch's current one.
  [[nodiscard]] void* stream() const { return stream_; }
  /// Whether a CUDA graph captures it: then Python launches, which gives the graph a workspace of its own.
  [[nodiscard]] bool captured() const { return captured_; }

 private:
  void* stream_ = nullptr;
  bool captured_ = false;
  DeviceGuardHandle guard_ = nullptr;
};

}  // namespace sparsekiln::torch_operators

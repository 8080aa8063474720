#include "python/torch_operators/cuda.h"

#include <dlfcn.h>

#include <torch/headeronly/util/shim_utils.h>

namespace sparsekiln::torch_operators {
namespace {

using CurrentStream = AOTITorchError (*)(std::int32_t device, void** stream);

/// PyTorch's function, which builds for the cpu lack; null there.
CurrentStream stream_of_pytorch() {
  void* const library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr
             ? nullptr
             : reinterpret_cast<CurrentStream>(dlsym(library, "aoti_torch_get_current_cuda_stream"));
}

CurrentStream current_stream() {
  static const CurrentStream function = stream_of_pytorch();
  return function;
}

using IsCapturing = int (*)(void* stream, int* status);

/// Whether launches in a stream go into a CUDA graph, as far as the driver says.
bool captures(void* stream) {
  static const auto ask = [] {
    void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    return driver == nullptr ? nullptr : reinterpret_cast<IsCapturing>(dlsym(driver, "cuStreamIsCapturing"));
  }();
  int status = 0;
  return ask == nullptr || ask(stream, &status) != 0 || status != 0;
}

/// What stands in for PyTorch's part in CUDA where tests say so: see sparsekiln_torch_pretend_cuda.
bool cpu_is_cuda = false;

}  // namespace

std::optional<DLDevice> device_of(std::int32_t type, std::int32_t index) {
  if (type == aoti_torch_device_type_cpu()) return DLDevice{cpu_is_cuda ? kDLCUDA : kDLCPU, 0};
  if (type == aoti_torch_device_type_cuda() && current_stream() != nullptr) return DLDevice{kDLCUDA, index};
  return {};
}

CudaDevice::CudaDevice(std::int32_t index) {
  if (cpu_is_cuda) return;
  std::int32_t now = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_device_index(&now));
  if (now != index) TORCH_ERROR_CODE_CHECK(aoti_torch_create_device_guard(index, &guard_));
  TORCH_ERROR_CODE_CHECK(current_stream()(index, &stream_));
  captured_ = captures(stream_);
}

CudaDevice::~CudaDevice() {
  if (guard_ != nullptr) aoti_torch_delete_device_guard(guard_);
}

}  // namespace sparsekiln::torch_operators

/// For tests and benchmarks without a GPU: from now on, tensors of the cpu are launched on as those of CUDA
/// device 0 are, in the default stream. The driver must be one whose memory is the host's.
extern "C" __attribute__((visibility("default"))) void sparsekiln_torch_pretend_cuda(bool on) {
  sparsekiln::torch_operators::cpu_is_cuda = on;
}

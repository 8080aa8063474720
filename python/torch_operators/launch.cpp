#include "python/torch_operators/launch.h"

#include <algorithm>
#include <utility>

#include "python/torch_operators/cuda.h"
#include "python/torch_operators/request.h"

namespace sparsekiln::torch_operators {
namespace {

constexpr std::size_t kMostDimensions = 8;  ///< of a tensor that is read as a matrix

/// DLPack's name of a type of PyTorch that kernels take.
std::optional<DLDataType> type_of(std::int32_t dtype) {
  static const std::array<std::pair<std::int32_t, DLDataType>, 4> types{{
      {aoti_torch_dtype_float32(), {kDLFloat, 32, 1}},
      {aoti_torch_dtype_float16(), {kDLFloat, 16, 1}},
      {aoti_torch_dtype_bfloat16(), {kDLBfloat, 16, 1}},
      {aoti_torch_dtype_float64(), {kDLFloat, 64, 1}},
  }};
  for (const auto& [number, type] : types)
    if (number == dtype) return type;
  return {};
}

std::int32_t device_type_of(const Tensor& tensor) {
  std::int32_t type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &type));
  return type;
}

std::int32_t threads() {
  if (const std::int32_t stated = interface().stated_threads(); stated != 0) return stated;
  std::uint32_t of_torch = 0;
  TORCH_ERROR_CODE_CHECK(torch_get_num_threads(&of_torch));
  return static_cast<std::int32_t>(of_torch);
}

}  // namespace

std::int32_t dtype_of(const Tensor& tensor) {
  std::int32_t dtype = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &dtype));
  return dtype;
}

Tensor empty(std::span<const std::int64_t> shape, const Tensor& like, std::optional<std::int32_t> dtype) {
  std::array<std::int64_t, kMostDimensions> strides{};
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(shape[i], 1);
  }
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<std::int64_t>(shape.size()), shape.data(),
                                                  strides.data(), dtype.value_or(dtype_of(like)),
                                                  device_type_of(like), like.get_device_index(), &handle));
  return Tensor(handle);
}

std::int64_t rows_of(const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  if (sizes.size() == 2) return sizes[0];
  if (sizes.empty() || sizes.size() > kMostDimensions || sizes.back() == 0 || !tensor.is_contiguous())
    return -1;
  return tensor.numel() / sizes.back();
}

Tensor unrepeated(const Tensor& tensor) {
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  bool repeats = false;
  for (std::size_t i = 0; i < sizes.size(); ++i) repeats = repeats || (strides[i] == 0 && sizes[i] > 1);
  if (!repeats || sizes.size() > kMostDimensions) return tensor;
  const Tensor copy = empty(std::span(sizes.data(), sizes.size()), tensor);
  TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(copy.get(), tensor.get(), 0));
  return copy;
}

Tensor empty_rows(const Tensor& tensor, std::int64_t features) {
  const auto sizes = tensor.sizes();
  std::array<std::int64_t, kMostDimensions> shape{};
  std::copy(sizes.begin(), sizes.end(), shape.begin());
  shape[sizes.size() - 1] = features;
  return empty(std::span(shape).first(sizes.size()), tensor);
}

Launch::Launch(const KnownKernel& kernel) : kernel_(kernel) {}

/// An operand without extents; null where it cannot be one.
DLTensor* Launch::start(const char* name, const Tensor& tensor, std::int32_t dimensions) {
  const auto type = type_of(dtype_of(tensor));
  const auto device = device_of(device_type_of(tensor), tensor.get_device_index());
  possible_ = possible_ && count_ < kMost && type && device && dimensions <= SK_MOST_DIMENSIONS;
  if (!possible_) return nullptr;
  DLTensor& operand = tensors_[count_];
  operand = {tensor.data_ptr(),       *device, dimensions, *type, shapes_[count_].data(),
             strides_[count_].data(), 0};
  operands_[count_] = {name, &operand};
  ++count_;
  return &operand;
}

void Launch::add(const char* name, const Tensor& tensor, std::optional<std::int64_t> length) {
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  const DLTensor* const operand = start(name, tensor, static_cast<std::int32_t>(sizes.size()));
  if (operand == nullptr) return;
  std::copy(sizes.begin(), sizes.end(), operand->shape);
  std::copy(strides.begin(), strides.end(), operand->strides);
  if (length) operand->shape[0] = *length;
}

void Launch::add_rows(const char* name, const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  if (sizes.size() == 2) return add(name, tensor);
  const DLTensor* const operand = start(name, tensor, 2);
  if (operand == nullptr) return;
  operand->shape[0] = rows_of(tensor);
  operand->shape[1] = operand->strides[0] = sizes.back();
  operand->strides[1] = 1;
}

bool Launch::run() {
  if (!possible_) return false;
  const DLDevice device = tensors_[0].device;
  sk_launch launch{};
  launch.size = sizeof(launch);
  launch.alpha = 1;
  launch.epsilon = 1e-5;
  if (device.device_type == kDLCPU) {
    launch.threads = threads();
    return interface().kernel_run(kernel_.kernel.get(), operands_.data(), count_, &launch) == SK_OK;
  }
  const CudaDevice current(device.device_id);
  if (current.captured()) return false;
  launch.stream = current.stream();
  return interface().kernel_run(kernel_.kernel.get(), operands_.data(), count_, &launch) == SK_OK;
}

}  // namespace sparsekiln::torch_operators

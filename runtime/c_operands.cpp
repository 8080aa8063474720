#include "runtime/c_operands.h"

#include <string>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/element.h"

namespace sparsekiln {
namespace {

DType dtype_of(std::string_view name, const DLDataType& type) {
  std::string known;
  for (const Element& element : elements()) {
    if (type.lanes == 1 && type.code == element.dlpack.code && type.bits == element.dlpack.bits)
      return element.value;
    const bool last = &element == &elements().back();
    known += fmt::format("{}{}", known.empty() ? "" : last ? " and " : ", ", element.array_name);
  }
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("operand {}: its elements have {} bits and DLPack's type code {}; {} are computed with",
                  name, type.bits * type.lanes, type.code, known));
}

std::int32_t device_of(std::string_view name, const DLTensor& tensor) {
  switch (tensor.device.device_type) {
    case kDLCPU:
      return kHostDevice;
    case kDLCUDA:
      return tensor.device.device_id;
    case kDLCUDAHost:
    case kDLCUDAManaged:
      return kAnyDevice;  // both read it
    default:
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("operand {}: it lies on a device of DLPack's type {}; the memory of the cpu and of "
                      "CUDA devices is read",
                      name, static_cast<int>(tensor.device.device_type)));
  }
}

}  // namespace

TensorView view_of(std::string_view name, const DLTensor* tensor) {
  if (tensor == nullptr) return {};
  TensorView view;
  if (tensor->ndim < 1 || tensor->ndim > kMaxRank)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("operand {}: it has {} dimensions; 1 to {} are taken", name, tensor->ndim, kMaxRank));
  view.data = static_cast<std::byte*>(tensor->data) + tensor->byte_offset;
  view.dtype = dtype_of(name, tensor->dtype);
  view.device = device_of(name, *tensor);
  view.rank = tensor->ndim;
  std::int64_t dense = 1;
  for (std::int32_t i = view.rank - 1; i >= 0; --i) {
    view.shape[i] = tensor->shape[i];
    view.stride[i] = tensor->strides != nullptr ? tensor->strides[i] : dense;
    dense *= tensor->shape[i];
  }
  return view;
}

}  // namespace sparsekiln

#include "runtime/operand_forms.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/operand_refusal.h"
#include "runtime/weight_check.h"

namespace sparsekiln {
namespace {

std::string device_name(std::int32_t device) {
  return device == kHostDevice ? "the host" : fmt::format("CUDA device {}", device);
}
[[noreturn, gnu::cold]] void refuse_device(std::string_view name, std::int32_t is, std::int32_t wanted) {
  refuse(name, fmt::format("it lies on {}, the kernel is on {}", device_name(is), device_name(wanted)));
}
void check_device(std::string_view name, const TensorView& view, std::int32_t device) {
  if (view.device != kAnyDevice && view.device != device) refuse_device(name, view.device, device);
}

[[noreturn, gnu::cold]] void refuse_matrix(std::string_view name, const TensorView& is, std::int64_t features,
                                           bool feature_major) {
  const std::string matrix =
      feature_major ? fmt::format("[{}, n]", features) : fmt::format("[n, {}]", features);
  refuse_shape(name, is, matrix + ", or a batch of such matrices");
}

/// Whether the images of an activation are those of the layer's inputs.
bool is_of_inputs(const OperandRow& row, const OperandContract& contract) {
  if (row.features == Features::inputs) return true;
  return row.features != Features::gradients && !is_forward(contract);
}

/// Bytes that addresses and strides are multiples of.
std::int64_t alignment_of(const OperandRow& row, const OperandContract& contract) {
  // The state of an LSTM's cell may have larger elements than the activations that the contract speaks of.
  const auto element = static_cast<std::int64_t>(size_of(type_of(row.type, contract)));
  if (row.features == Features::statistics) return element;
  return std::max<std::int64_t>(contract.alignment, element);
}

/// Checks the matrices of a linear layer.
Activation2D check_matrices(const OperandRow& row_of, const TensorView& view,
                            const OperandContract& contract) {
  const std::int64_t features = count(row_of.features, contract);
  const bool feature_major = contract.feature_major();
  const int first = view.rank == 3 ? 1 : 0;  // axis of a matrix's rows
  if (view.rank != 2 && view.rank != 3) refuse_matrix(row_of.name, view, features, feature_major);
  const std::int64_t rows = view.shape[first];
  const std::int64_t row = view.shape[first + 1];
  Activation2D result;
  result.name = row_of.name;
  result.view = &view;
  result.n = feature_major ? row : rows;
  if (view.rank == 3) result.matrices = view.shape[0];
  if ((feature_major ? rows : row) != features || result.n < 0 || result.matrices < 0)
    refuse_matrix(row_of.name, view, features, feature_major);
  const auto bytes = static_cast<std::int64_t>(size_of(view.dtype));
  const std::int64_t alignment = alignment_of(row_of, contract);
  const std::int64_t unit = alignment / bytes;
  // An axis of extent 1 may have any stride. Kernels form the addresses of rows beyond the last one, too;
  // they read nothing there, but what they copy must be aligned.
  result.stride = rows > 1 ? view.stride[first] : (row + unit - 1) / unit * unit;
  result.joined_stride = result.stride;
  if (rows == 0 || row == 0 || result.matrices == 0) return result;
  check_address(row_of.name, view.data, alignment);
  if ((row > 1 && view.stride[first + 1] != 1) ||
      (rows > 1 && (result.stride < row || result.stride % unit != 0)))
    refuse_stride(row_of.name, view.stride[first], view.stride[first + 1], row, unit);
  if (result.matrices == 1) return result;
  result.matrix_bytes = view.stride[0] * bytes;
  if (result.matrix_bytes % alignment != 0)
    refuse(row_of.name, fmt::format("its matrices are {} bytes apart, which is no multiple of {}",
                                    result.matrix_bytes, alignment));
  if (rows == 1) result.joined_stride = view.stride[0];
  result.joins =
      !feature_major && (rows == 1 ? view.stride[0] >= row : view.stride[0] == rows * result.stride);
  return result;
}

}  // namespace

void refuse_missing(std::string_view name, const OperandContract& contract) {
  std::string takes;
  const TakenOperands taken(contract);
  for (const OperandRow* const& row : taken) {
    const bool last = &row + 1 == taken.end();
    takes += fmt::format("{}{}", takes.empty() ? "" : last ? " and " : ", ", row->name);
  }
  const std::string_view pairs = is_grad_weight(contract) ? "; or pairs of x and dy" : "";
  refuse(name, fmt::format("it was not given; a kernel of {} takes {}{}",
                           sparsekiln::name(contract.operation), takes, pairs));
}

Activation2D check_activation(const OperandRow& row, const TensorView& view, const ImageExtents& images,
                              const OperandContract& contract, std::int32_t device) {
  if (view.rank == 0) refuse_missing(row.name, contract);
  if (const DType type = type_of(row.type, contract); view.dtype != type)
    refuse_type(row.name, view.dtype, type);
  check_device(row.name, view, device);
  if (!contract.convolution.present()) return check_matrices(row, view, contract);
  return check_images(row.name, view, is_of_inputs(row, contract) ? images.inputs : images.outputs,
                      count(row.features, contract), contract);
}

Region check_dense(const OperandRow& row, const TensorView& view, const OperandContract& contract,
                   std::int32_t device) {
  if (view.rank == 0) refuse_missing(row.name, contract);
  const DType type = type_of(row.type, contract);
  if (view.dtype != type) refuse_type(row.name, view.dtype, type);
  check_device(row.name, view, device);
  DenseExtents wanted = extents_of(row.per, contract);
  bool shaped = view.rank == wanted.rank;
  if (shaped && wanted.any_rows) wanted.extents[0] = std::max<std::int64_t>(view.shape[0], 1);
  bool dense = true;
  std::int64_t elements = 1;
  for (auto axis = static_cast<std::size_t>(wanted.rank); shaped && axis-- > 0;) {
    shaped = view.shape[axis] == wanted.extents[axis];
    dense = dense && (wanted.extents[axis] == 1 || view.stride[axis] == elements);
    elements *= wanted.extents[axis];
  }
  if (!shaped || (!dense && elements != 0))
    refuse_strides(
        row.name, view,
        fmt::format("dense [{}]{}",
                    fmt::join(std::span(wanted.extents).first(static_cast<std::size_t>(wanted.rank)), ", "),
                    wanted.meaning));
  const auto element = static_cast<std::int64_t>(size_of(type));
  if (elements != 0) check_address(row.name, view.data, element);
  return {row.name, static_cast<const std::byte*>(view.data), 1, elements * element, elements * element};
}

Region check_weight(const OperandRow& row, const TensorView& view, const OperandContract& contract,
                    std::int32_t device) {
  if (view.rank == 0 && contract.blocks != 0) refuse_missing(row.name, contract);
  check_device(row.name, view, device);
  const DType type = type_of(row.type, contract);
  if (contract.packed && view.rank != 0)
    check_packed(row.name, view, contract);
  else
    check_blocks(row.name, view, type, contract);
  const std::int64_t bytes = weight_elements(contract) * static_cast<std::int64_t>(size_of(type));
  return {row.name, static_cast<const std::byte*>(view.data), 1, bytes, bytes};
}

}  // namespace sparsekiln

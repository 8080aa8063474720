#include "runtime/operand_planes.h"

#include <cstddef>
#include <span>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/operand_refusal.h"

namespace sparsekiln {
namespace {

using Extents = Convolution::Extents;

[[noreturn, gnu::cold]] void refuse_planes(std::string_view name, const TensorView& is,
                                           const Extents& extents, std::int64_t features,
                                           std::int32_t dimensions) {
  const std::span last = std::span(extents).last(static_cast<std::size_t>(dimensions));
  refuse_shape(
      name, is,
      fmt::format("n images of {} positions, channels-first: [n, {}, {}] or [n, {}, {}]",
                  fmt::join(last, " x "), features, fmt::join(last, ", "), features, fmt::join(last, " * ")));
}
[[noreturn, gnu::cold]] void refuse_apart(std::string_view name, const TensorView& is, std::int64_t image,
                                          std::int64_t unit) {
  refuse(name,
         fmt::format("shape {} and strides {}: channels-first, the {} elements of an image must be "
                     "contiguous, and images {} or more apart, a multiple of {}; dense memory would work",
                     shape_of(is), list_of(is.stride, is.rank), image, image, unit));
}

}  // namespace

Activation2D check_planes(std::string_view name, const TensorView& view, std::int64_t features, bool inputs,
                          const OperandContract& contract) {
  const Convolution& convolution = contract.convolution;
  const Extents extents = inputs ? convolution.input : convolution.output();
  Activation2D result;
  result.name = name;
  result.view = &view;
  result.images = true;
  result.positions = std::int64_t{extents[0]} * extents[1] * extents[2];
  const std::int32_t dimensions = convolution.dimensions;
  const bool of_extents = view.rank == dimensions + 2;
  bool fits = (of_extents || view.rank == 3) && view.shape[0] >= 0 && view.shape[1] == features;
  for (std::int32_t axis = 2; fits && axis < view.rank; ++axis)
    fits = view.shape[axis] ==
           (of_extents ? extents[static_cast<std::size_t>(1 + axis - dimensions)] : result.positions);
  if (!fits) refuse_planes(name, view, extents, features, dimensions);
  result.n = view.shape[0];
  std::int64_t rows = 0;
  if (__builtin_mul_overflow(result.n, result.positions, &rows)) refuse_batch(name, result.n, contract.batch);
  std::int64_t image = 1;
  bool dense = true;
  for (std::int32_t axis = view.rank - 1; axis > 0; --axis) {
    dense = dense && (view.shape[axis] == 1 || view.stride[axis] == image);
    if (__builtin_mul_overflow(image, view.shape[axis], &image)) refuse_batch(name, result.n, contract.batch);
  }
  const std::int64_t unit = contract.alignment / static_cast<std::int64_t>(size_of(view.dtype));
  result.stride = (image + unit - 1) / unit * unit;
  if (rows != 0 && image != 0) {
    check_address(name, view.data, contract.alignment);
    if (result.n > 1) result.stride = view.stride[0];
    if (!dense || result.stride < image || result.stride % unit != 0) refuse_apart(name, view, image, unit);
  }
  result.joined_stride = result.stride;
  return result;
}

}  // namespace sparsekiln

#include "runtime/operand_images.h"

#include <cstddef>
#include <span>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/operand_refusal.h"

namespace sparsekiln {
namespace {

using Extents = Convolution::Extents;

std::int64_t positions_of(const Extents& extents) {
  return std::int64_t{extents[0]} * extents[1] * extents[2];
}

[[noreturn, gnu::cold]] void refuse_images(std::string_view name, const TensorView& is,
                                           const Extents& extents, std::int64_t features,
                                           const OperandContract& contract) {
  const std::span last = std::span(extents).last(static_cast<std::size_t>(contract.convolution.dimensions));
  const std::string images = fmt::format("n images of {} positions", fmt::join(last, " x "));
  refuse_shape(name, is,
               contract.feature_major()
                   ? fmt::format("{}, channels-first: [n, {}, {}] or [n, {}, {}]", images, features,
                                 fmt::join(last, ", "), features, fmt::join(last, " * "))
                   : fmt::format("{}: [n, {}, {}], or their rows, [n * {}, {}]", images,
                                 fmt::join(last, ", "), features, fmt::join(last, " * "), features));
}
[[noreturn, gnu::cold]] void refuse_extents(std::string_view name, const TensorView& is,
                                            const Convolution& convolution) {
  const std::span most = std::span(convolution.input).last(static_cast<std::size_t>(convolution.dimensions));
  refuse_shape(name, is,
               fmt::format("images with axes of their own for up to {} positions, and enough of them for an "
                           "output ({})",
                           fmt::join(most, " x "), to_string(convolution)));
}
[[noreturn, gnu::cold]] void refuse_rows(std::string_view name, std::int64_t rows, std::int64_t positions) {
  refuse(name, fmt::format("{} rows are no whole number of images of {} positions", rows, positions));
}
[[noreturn, gnu::cold]] void refuse_far_rows(std::string_view name, const TensorView& is) {
  refuse(name,
         fmt::format("shape {} and strides {}: all positions of all images must be at one distance from "
                     "the next; dense memory would work",
                     shape_of(is), list_of(is.stride, is.rank)));
}
[[noreturn, gnu::cold]] void refuse_apart(std::string_view name, const TensorView& is, std::int64_t image,
                                          std::int64_t unit) {
  refuse(name,
         fmt::format("shape {} and strides {}: channels-first, the {} elements of an image must be "
                     "contiguous, and images {} or more apart, a multiple of {}; dense memory would work",
                     shape_of(is), list_of(is.stride, is.rank), image, image, unit));
}

/// Whether axes from `first` on are the last `dimensions` of these extents.
bool has_extents(const TensorView& view, std::int32_t first, const Extents& extents,
                 std::int32_t dimensions) {
  for (std::int32_t i = 0; i < dimensions; ++i)
    if (view.shape[first + i] != extents[static_cast<std::size_t>(3 - dimensions + i)]) return false;
  return true;
}

/// The elements from one row of a view to the next, where all axes but the last one are of rows.
std::int64_t stride_of_rows(std::string_view name, const TensorView& view) {
  std::int64_t stride = 0;
  std::int64_t rows = 1;
  for (std::int32_t axis = view.rank - 2; axis >= 0; --axis) {
    const std::int64_t extent = view.shape[axis];
    if (extent == 1) continue;  // of any stride
    std::int64_t wanted = view.stride[axis];
    if (rows == 1)
      stride = wanted;
    else if (__builtin_mul_overflow(stride, rows, &wanted) || view.stride[axis] != wanted)
      refuse_far_rows(name, view);
    rows *= extent;
  }
  return stride;
}

/// What all activations of images have in common, n of them.
Activation2D activation_of(std::string_view name, const TensorView& view, std::int64_t n,
                           std::int64_t positions, const OperandContract& contract) {
  Activation2D result;
  result.name = name;
  result.view = &view;
  result.n = n;
  result.positions = positions;
  std::int64_t rows = 0;
  if (__builtin_mul_overflow(n, positions, &rows)) refuse_batch(name, n, contract.batch);
  return result;
}

Activation2D check_rows(std::string_view name, const TensorView& view, const Extents& extents,
                        std::int64_t features, const OperandContract& contract) {
  const std::int32_t dimensions = contract.convolution.dimensions;
  const std::int64_t positions = positions_of(extents);
  const bool of_rows = view.rank == 2;
  const bool of_extents = view.rank == dimensions + 2;
  const bool fits = (of_rows || (of_extents && has_extents(view, 1, extents, dimensions))) &&
                    view.shape[0] >= 0 && view.shape[view.rank - 1] == features;
  if (!fits) refuse_images(name, view, extents, features, contract);
  if (of_rows && view.shape[0] % positions != 0) refuse_rows(name, view.shape[0], positions);
  Activation2D result =
      activation_of(name, view, of_rows ? view.shape[0] / positions : view.shape[0], positions, contract);
  const std::int64_t rows = result.batch_rows();
  const std::int64_t unit = contract.alignment / static_cast<std::int64_t>(size_of(view.dtype));
  result.stride = (features + unit - 1) / unit * unit;
  if (rows != 0 && features != 0) {
    check_address(name, view.data, contract.alignment);
    if (rows > 1) result.stride = stride_of_rows(name, view);
    const std::int64_t element = view.stride[view.rank - 1];
    if ((features > 1 && element != 1) ||
        (rows > 1 && (result.stride < features || result.stride % unit != 0)))
      refuse_stride(name, result.stride, element, features, unit);
  }
  result.joined_stride = result.stride;
  return result;
}

Activation2D check_planes(std::string_view name, const TensorView& view, const Extents& extents,
                          std::int64_t features, const OperandContract& contract) {
  const std::int32_t dimensions = contract.convolution.dimensions;
  const std::int64_t positions = positions_of(extents);
  const bool of_extents = view.rank == dimensions + 2;
  const bool fits = (of_extents || view.rank == 3) && view.shape[0] >= 0 && view.shape[1] == features &&
                    (of_extents ? has_extents(view, 2, extents, dimensions) : view.shape[2] == positions);
  if (!fits) refuse_images(name, view, extents, features, contract);
  Activation2D result = activation_of(name, view, view.shape[0], positions, contract);
  result.images = true;
  std::int64_t image = 1;
  bool dense = true;
  for (std::int32_t axis = view.rank - 1; axis > 0; --axis) {
    dense = dense && (view.shape[axis] == 1 || view.stride[axis] == image);
    if (__builtin_mul_overflow(image, view.shape[axis], &image)) refuse_batch(name, result.n, contract.batch);
  }
  const std::int64_t unit = contract.alignment / static_cast<std::int64_t>(size_of(view.dtype));
  result.stride = (image + unit - 1) / unit * unit;
  if (result.n != 0 && image != 0) {
    check_address(name, view.data, contract.alignment);
    if (result.n > 1) result.stride = view.stride[0];
    if (!dense || result.stride < image || result.stride % unit != 0) refuse_apart(name, view, image, unit);
  }
  result.joined_stride = result.stride;
  return result;
}

}  // namespace

ImageExtents image_extents(std::string_view name, const TensorView& inputs, const OperandContract& contract) {
  const Convolution& convolution = contract.convolution;
  if (!convolution.dynamic) return {convolution.input, convolution.output()};
  Extents extents{1, 1, 1};
  const std::int32_t dimensions = convolution.dimensions;
  const std::int32_t first = contract.feature_major() ? 2 : 1;
  bool fits = inputs.rank == dimensions + 2;
  for (std::int32_t i = 0; fits && i < dimensions; ++i) {
    const auto place = static_cast<std::size_t>(3 - dimensions + i);
    const std::int64_t extent = inputs.shape[first + i];
    fits = extent >= 1 && extent <= convolution.input[place];
    extents[place] = static_cast<std::int32_t>(extent);
  }
  if (!fits || !convolution.takes(extents)) refuse_extents(name, inputs, convolution);
  return {extents, convolution.output(extents)};
}

Activation2D check_images(std::string_view name, const TensorView& view, const Extents& extents,
                          std::int64_t features, const OperandContract& contract) {
  return contract.feature_major() ? check_planes(name, view, extents, features, contract)
                                  : check_rows(name, view, extents, features, contract);
}

}  // namespace sparsekiln

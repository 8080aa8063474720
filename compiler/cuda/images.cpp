#include "compiler/cuda/images.h"

#include <algorithm>

namespace sparsekiln::cuda {
namespace {

/// The shared memory of a warp's tile: kTransposedWords of templates/images.cuh.
constexpr std::int32_t kTileBytes = 4 * 32 * 33;
/// Warps of a CTA that transpose at most: their tiles fit in static shared memory, too.
constexpr std::int32_t kMostWarps = 8;

/// The warps of a CTA that transpose: no more than the product has shared memory for.
std::int32_t warps_of(const Instance& instance) {
  const std::int32_t most = std::min(kMostWarps, instance.threads / 32);
  if (instance.dynamic_shared_bytes == 0) return most;
  return std::max(1, std::min(most, instance.dynamic_shared_bytes / kTileBytes));
}

std::int64_t row_bytes_of(const TransposedImages::Side& side) {
  const std::int64_t row = side.features * static_cast<std::int64_t>(size_of(side.dtype));
  return side.activations * side.positions * ((row + 15) / 16 * 16);
}

}  // namespace

TransposedImages::TransposedImages(const Spmm& product)
    : x{product.in_features(), product.x_rows(1), product.dtype,
        product.derivative == Activation::none ? 1 : 2},
      y{product.out_features(), product.y_rows(1), product.out_dtype, product.epilogue.residual ? 2 : 1},
      dynamic(product.convolution.dynamic) {}

TransposedImages::TransposedImages(const Sddmm& gradient)
    : x{gradient.in_features(), gradient.x_rows(1), gradient.dtype, 1},
      y{gradient.out_features(), gradient.dy_rows(1), gradient.dtype,
        gradient.derivative == Activation::none ? 1 : 2},
      dynamic(gradient.convolution.dynamic),
      x_displaced(!gradient.exchanged()) {}

std::int64_t TransposedImages::row_bytes() const { return row_bytes_of(x) + row_bytes_of(y); }

std::int32_t shared_bytes_with_images(const Instance& instance) {
  return instance.dynamic_shared_bytes == 0 ? 0 : std::max(instance.dynamic_shared_bytes, kTileBytes);
}

Declarations transposition_declarations(const TransposedImages& images, std::int32_t alignment,
                                        const Instance& instance, std::int64_t rows_begin,
                                        std::int64_t rows_begin_of_tile) {
  Declarations members;
  members.number("x_features", images.x.features);
  members.number("x_positions", images.dynamic ? 0 : images.x.positions, "of an image; 0: the launch's");
  members.number("y_features", images.y.features);
  members.number("y_positions", images.dynamic ? 0 : images.y.positions);
  members.flag("x_displaced", images.x_displaced, "by taps");
  members.number("image_alignment", alignment, "bytes that images and their distances are multiples of");
  members.number("image_warps", warps_of(instance), "which transpose");
  members.number("rows_begin", rows_begin, "in the workspace");
  members.number("rows_begin_of_tile", rows_begin_of_tile, "more for each batch tile");
  members.flag("images_dynamic", instance.dynamic_shared_bytes != 0, "transposed in dynamic shared memory");
  return members;
}

}  // namespace sparsekiln::cuda

#include "autotune/cuda/images.h"

#include <numeric>

#include "autotune/quotient_up.h"
#include "compiler/cuda/images.h"

namespace sparsekiln::cuda {
namespace {

/// Instructions of a warp's tile (templates/images.cuh), of 32 rows of 32 words; and of each unit of a lane,
/// when it is read and when it is written.
constexpr std::int64_t kTileWords = 32 * 32;
constexpr double kInstructionsOfTile = 60;
constexpr double kInstructionsOfRead = 9;
constexpr double kInstructionsOfWord = 2;
constexpr double kInstructionsOfWrite = 6;

/// `into`: images to rows; otherwise rows to images.
void add(Transpositions& work, const TransposedImages& all, const TransposedImages::Side& side,
         std::int32_t alignment, std::int64_t n, bool into) {
  const auto element = static_cast<std::int64_t>(size_of(side.dtype));
  const std::int64_t images = n * side.positions * side.features * element;
  const std::int64_t row = quotient_up(side.features * element, 16) * 16;
  work.global_bytes += images + (into ? n * side.positions * row : images);
  work.memory_bytes += images;
  const std::int64_t columns = 32 * 4 / element;
  const std::int64_t tiles = into ? n * quotient_up(side.features, 32) * quotient_up(side.positions, columns)
                                  : n * quotient_up(side.positions, 32) * quotient_up(side.features, columns);
  work.shared_bytes += tiles * 2 * 4 * kTileWords;
  // The rows of a feature of dynamic images may begin anywhere.
  const std::int64_t of_feature = all.dynamic ? element : side.positions * element;
  const std::int64_t of_images = std::gcd(std::gcd(of_feature, std::int64_t{16}), alignment);
  const std::int64_t of_rows = into ? 16 : std::gcd(side.features * element, std::int64_t{16});
  const auto lane_units = [](std::int64_t unit) { return static_cast<double>(4 * kTileWords / 32 / unit); };
  const double read = lane_units(into ? of_images : of_rows);
  const double written = lane_units(into ? of_rows : of_images);
  work.instructions += static_cast<std::int64_t>(
      static_cast<double>(tiles) * (kInstructionsOfTile + kInstructionsOfRead * read +
                                    kInstructionsOfWrite * written + kInstructionsOfWord * kTileWords / 32));
}

}  // namespace

Transpositions transpositions_of(const Spmm& product, std::int64_t n) {
  Transpositions work;
  if (product.image_alignment == 0) return work;
  const TransposedImages images(product);
  for (std::int32_t i = 0; i < images.x.activations; ++i)
    add(work, images, images.x, product.image_alignment, n, true);
  for (std::int32_t i = 0; i < images.y.activations; ++i)  // a residual is read, and y is written
    add(work, images, images.y, product.image_alignment, n, i != 0);
  work.kernels = 2;
  return work;
}

Transpositions transpositions_of(const Sddmm& gradient, std::int64_t n) {
  Transpositions work;
  if (gradient.image_alignment == 0) return work;
  const TransposedImages images(gradient);
  add(work, images, images.x, gradient.image_alignment, n, true);
  for (std::int32_t i = 0; i < images.y.activations; ++i)
    add(work, images, images.y, gradient.image_alignment, n, true);
  work.kernels = 1;
  return work;
}

}  // namespace sparsekiln::cuda

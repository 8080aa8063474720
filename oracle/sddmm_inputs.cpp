#include "oracle/sddmm_inputs.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "compiler/element.h"
#include "oracle/arbitrary_strides.h"
#include "oracle/spmm_inputs.h"

namespace sparsekiln {
namespace {

/// Streams of draws, each with a seed of its own.
enum Stream : std::uint64_t { kWeight, kBlockScales, kOldDw, kOldDbias, kOldDblockScales, kPairs };

/// Bounds of integer inputs, which keep all sums exact. They grow by alpha and beta, by block scales, and
/// over what a block scale multiplies.
struct IntegerBounds {
  std::int64_t largest = 0;      ///< magnitude of each input
  std::int64_t weight_step = 1;  ///< of W, each so many elements have one that may not be 0
};

IntegerBounds integer_bounds(const Sddmm& gradient, const SddmmLaunch& launch) {
  const auto k = static_cast<double>(std::max<std::int64_t>(
      std::max(gradient.dy_rows(launch.n), gradient.product_rows(launch.n)) * launch.pairs, 1));
  double growth = gradient.block_scales ? 2 : 1;
  if (gradient.epilogue.scale) growth *= std::max(1.0, launch.alpha) + std::max(launch.beta, -launch.beta);
  IntegerBounds bounds;
  if (gradient.block_scale_gradient) {
    const std::int64_t scaled = gradient.block_elements() * gradient.taps();
    const auto most = std::max<std::int64_t>(1, static_cast<std::int64_t>(0x1p24 / (growth * k)));
    // Odd, so that it is in another column of each row.
    if (scaled > most) bounds.weight_step = (scaled + most - 1) / most | 1;
    growth *= static_cast<double>((scaled + bounds.weight_step - 1) / bounds.weight_step);
  }
  bounds.largest = largest_integer(k, growth, gradient.out_dtype);
  return bounds;
}

struct Filler {
  Inputs kind;
  std::int64_t largest;
  std::uint64_t seed;

  [[nodiscard]] std::vector<std::byte> dense(DType type, std::int64_t elements, std::uint64_t stream,
                                             std::int64_t at_most = 8) const {
    std::vector<std::byte> to(static_cast<std::size_t>(elements) * size_of(type));
    fill(type, to.data(), 0, elements, kind, std::min(largest, at_most), draw(seed, stream), 0);
    return to;
  }
  /// Rows with NaN after each.
  [[nodiscard]] std::vector<std::byte> rows(DType type, std::int64_t rows, std::int64_t width,
                                            std::int64_t stride, std::uint64_t stream) const {
    std::vector<std::byte> to(static_cast<std::size_t>(strided_elements(rows, width, stride)) *
                              size_of(type));
    const std::vector<float> gap(static_cast<std::size_t>(stride - width),
                                 std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t row = 0; row < rows; ++row) {
      fill(type, to.data(), row * stride, width, kind, largest, draw(seed, stream), row * width);
      if (row + 1 < rows) store(type, gap, to.data(), row * stride + width);
    }
    return to;
  }
};

void put(PoisonedOutput& output, const std::vector<std::byte>& old) {
  if (!old.empty()) std::memcpy(output.y(), old.data(), old.size());
}

}  // namespace

SddmmInputs make_inputs(const Sddmm& gradient, const SddmmLaunch& launch, Inputs kind, std::uint64_t seed) {
  const IntegerBounds bounds =
      kind == Inputs::small_integers ? integer_bounds(gradient, launch) : IntegerBounds{};
  const Filler filler{kind, bounds.largest, seed};
  const bool features_first = gradient.feature_major();
  const bool of_images = gradient.channels_first();
  // Contiguous elements, of so many rows for each of the batch.
  const auto width = [&](std::int64_t features, std::int64_t rows) {
    return of_images ? features * rows : features_first ? launch.n : features;
  };
  const auto count = [&](std::int64_t features, std::int64_t rows) {
    return of_images ? launch.n : features_first ? features : rows;
  };
  const std::int64_t x_rows = gradient.x_rows(launch.n);
  const std::int64_t dy_rows = gradient.dy_rows(launch.n);
  const std::int64_t in = gradient.in_features();
  const std::int64_t out = gradient.out_features();
  SddmmInputs inputs;
  inputs.kind = kind;
  inputs.seed = seed;
  inputs.n = launch.n;
  // Feature-major rows of n elements are rounded up to what a launch takes.
  const std::int64_t unit = gradient.alignment / static_cast<std::int64_t>(size_of(gradient.dtype));
  const std::int64_t x_width = width(in, gradient.x_rows(1));
  const std::int64_t dy_width = width(out, gradient.dy_rows(1));
  const auto stride = [&](std::int64_t length) { return (length + unit - 1) / unit * unit + launch.padding; };
  inputs.x_stride = stride(x_width);
  inputs.dy_stride = stride(dy_width);
  for (std::int64_t pair = 0; pair < launch.pairs; ++pair) {
    const auto stream = static_cast<std::uint64_t>(kPairs + 3 * pair);
    inputs.pairs.push_back(
        {filler.rows(gradient.dtype, count(in, x_rows), x_width, inputs.x_stride, stream),
         filler.rows(gradient.dtype, count(out, dy_rows), dy_width, inputs.dy_stride, stream + 1),
         gradient.derivative == Activation::none
             ? std::vector<std::byte>{}
             : filler.rows(gradient.dtype, count(out, dy_rows), dy_width, inputs.dy_stride, stream + 2)});
  }
  const DType sums = gradient.sum_type();
  const std::int64_t blocks = gradient.layout.blocks();
  const std::int64_t block_scales = gradient.block_scale_map.count();
  const std::int64_t weights = blocks * gradient.block_elements();
  if (gradient.block_scale_gradient) {
    inputs.w = filler.dense(gradient.dtype, weights, kWeight, 1);
    for (std::int64_t i = 0; i < weights; ++i)
      if (i % bounds.weight_step != 0) store(gradient.dtype, 0, inputs.w.data(), i);
    poison_beyond(gradient.layout, gradient.taps(), gradient.block, gradient.row_features(),
                  gradient.col_features(), gradient.dtype, inputs.w.data());
  }
  if (gradient.block_scales) {
    inputs.block_scales = filler.dense(sums, block_scales, kBlockScales, 2);
    for (std::int64_t block_scale = 0; block_scale < block_scales; block_scale += 3)
      store(sums, 0, inputs.block_scales.data(), block_scale);
  }
  if (!gradient.epilogue.scale) return inputs;
  inputs.alpha = launch.alpha;
  inputs.beta = launch.beta;
  if (launch.beta == 0) return inputs;
  inputs.old_dw = filler.dense(gradient.out_dtype, weights, kOldDw);
  if (gradient.bias_gradient) inputs.old_dbias = filler.dense(sums, out, kOldDbias);
  if (gradient.block_scale_gradient)
    inputs.old_dblock_scales = filler.dense(sums, block_scales, kOldDblockScales);
  return inputs;
}

SddmmOutputs::SddmmOutputs(const Sddmm& gradient, const SddmmInputs& inputs)
    : dw(gradient.out_dtype, gradient.layout.blocks() * gradient.block.out, gradient.block.in, "dw"),
      dbias(gradient.sum_type(), gradient.bias_gradient ? 1 : 0, gradient.out_features(), "dbias"),
      dblock_scales(gradient.sum_type(), gradient.block_scale_gradient ? 1 : 0,
                    gradient.block_scale_map.count(), "dblock_scales") {
  put(dw, inputs.old_dw);
  put(dbias, inputs.old_dbias);
  put(dblock_scales, inputs.old_dblock_scales);
}

Operands operands_of(const Sddmm& gradient, const SddmmInputs& inputs, const SddmmOutputs& outputs,
                     const SddmmAddresses& addresses, bool image_axes, std::vector<ActivationPair>& pairs) {
  std::uint64_t views_made = 0;
  const auto activation = [&](const void* data, bool of_x) {
    const std::int64_t features = of_x ? gradient.in_features() : gradient.out_features();
    const std::int64_t stride = of_x ? inputs.x_stride : inputs.dy_stride;
    const std::int64_t n = of_x ? gradient.x_rows(inputs.n) : gradient.dy_rows(inputs.n);
    const std::int64_t rows = gradient.feature_major() ? features : n;
    const std::int64_t row = gradient.feature_major() ? inputs.n : features;
    const std::uint64_t seed = draw(inputs.seed, views_made++);
    const Convolution::Extents extents = of_x ? gradient.convolution.input : gradient.convolution.output();
    const std::int32_t dimensions = gradient.convolution.dimensions;
    if (gradient.channels_first())
      return as_images(strided_view(data, gradient.dtype, inputs.n,
                                    features * (of_x ? gradient.x_rows(1) : gradient.dy_rows(1)), stride),
                       seed, features, extents, dimensions, image_axes);
    const TensorView matrix = strided_view(data, gradient.dtype, rows, row, stride);
    if (!gradient.correlation) return with_arbitrary_strides(matrix, seed);
    return with_arbitrary_strides(matrix, seed, extents, dimensions, image_axes);
  };
  pairs.clear();
  for (const LaunchPairs::Pair& pair : addresses.pairs) {
    ActivationPair& views = pairs.emplace_back();
    views.x = activation(pair.x, true);
    views.dy = activation(pair.dy, false);
    if (gradient.derivative != Activation::none) views.z = activation(pair.z, false);
  }
  const std::int64_t blocks = gradient.layout.blocks();
  const std::int64_t block_scales = gradient.block_scale_map.count();
  const auto [out, in] = gradient.block;
  Operands operands;
  operands.dw = view(outputs.dw.address(addresses.dw), gradient.out_dtype, blocks, out, in);
  if (gradient.bias_gradient)
    operands.dbias =
        view(outputs.dbias.address(addresses.dbias), gradient.sum_type(), gradient.out_features());
  if (gradient.block_scales)
    operands.block_scales = view(addresses.block_scales, gradient.sum_type(), block_scales);
  if (gradient.block_scale_gradient) {
    operands.dblock_scales =
        view(outputs.dblock_scales.address(addresses.dblock_scales), gradient.sum_type(), block_scales);
    operands.w = view(addresses.w, gradient.dtype, blocks, out, in);
  }
  operands.alpha = inputs.alpha;
  operands.beta = inputs.beta;
  operands.pairs = pairs;
  return operands;
}

}  // namespace sparsekiln

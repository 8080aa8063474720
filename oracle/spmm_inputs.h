#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <sparsekiln/problem.h>

#include "compiler/spmm.h"
#include "oracle/draw.h"
#include "oracle/host_operands.h"
#include "oracle/spmm_reference.h"

namespace sparsekiln {

/// An activation in host memory: [n, features], or feature-major [features, n], rows of contiguous elements
/// `stride` apart. Its memory ends with the last row. The n of a convolution are all positions of all images;
/// feature-major, its rows are images, [features, positions].
struct HostActivation {
  DType dtype = DType::f32;
  ActivationOrder order = ActivationOrder::batch_major;
  std::int64_t n = 0;
  std::int64_t features = 0;
  std::int64_t stride = 0;  ///< elements
  std::vector<std::byte> bytes;
  std::int64_t image = 0;  ///< positions of an image of a feature-major convolution; else 0

  [[nodiscard]] std::int64_t rows() const {
    return image != 0 ? n / image : order == ActivationOrder::batch_major ? n : features;
  }
  [[nodiscard]] std::int64_t row_length() const {
    return image != 0 ? features * image : order == ActivationOrder::batch_major ? features : n;
  }
  /// The offset of an element, in elements.
  [[nodiscard]] std::int64_t at(std::int64_t entry, std::int64_t feature) const {
    if (image != 0) return offset_in_images(entry, feature, stride, image);
    return order == ActivationOrder::batch_major ? entry * stride + feature : feature * stride + entry;
  }
};

/// What an LSTM's cell reads, of the features of an output; what an operation has not is empty.
struct HostCell {
  HostActivation projection;  ///< of four gates, of the output type, as are activations
  HostActivation activations;
  HostActivation c_before;  ///< of one, of the type of sums, as are c and dc
  HostActivation c;
  HostActivation dc;
};

/// What a layer normalisation reads besides; what an operation has not is empty. Rows of matrices have gaps.
struct HostNormalisation {
  std::vector<std::byte> gain;  ///< of all groups, of the output type, as is bias
  std::vector<std::byte> bias;
  HostActivation multiplier;  ///< of the features of a group, of the output type, as is addend
  HostActivation addend;
  HostActivation sums;        ///< grad_input: of all groups, of the output type. Some rows are zeros
  HostActivation statistics;  ///< grad_input: those of `sums`, of the type of sums
  HostActivation dnorm;       ///< grad_input: what it holds before, a row for each part; dense
  double epsilon = 1e-5;
};

/// The operands that a product reads, in host memory; those that it has not are empty.
struct HostInputs {
  Inputs kind = Inputs::random;
  std::uint64_t seed = 0;
  std::int64_t n = 0;                  ///< the batch: images of a convolution
  std::int64_t x_stride = 0;           ///< elements
  std::vector<std::byte> x;            ///< as HostActivation has it; what is between the rows is NaN
  std::vector<std::byte> w;            ///< blocks (and taps) × block_out × block_in elements
  std::vector<std::byte> v;            ///< as w
  std::vector<std::byte> bias;         ///< out_features elements of the output type
  std::vector<std::byte> v_bias;       ///< as bias
  HostActivation residual;             ///< of the output type
  std::vector<std::byte> edge_gain;    ///< [situations, out_features], of the type of sums
  std::vector<std::byte> edge_bias;    ///< as edge_gain
  std::vector<std::byte> row_scale;    ///< a float32 for each block row
  std::vector<std::byte> v_row_scale;  ///< as row_scale
  HostActivation y;                    ///< what y holds before, where beta is not 0
  HostActivation z;                    ///< like x
  HostCell cell;
  HostNormalisation normalisation;
  std::vector<std::byte> gates;  ///< one of the type of sums for each block: some of them 0, some 1
  double alpha = 1;              ///< numbers of the type of sums, as is beta
  double beta = 0;

  [[nodiscard]] HostOperands operands() const {
    return {x.data(), w.data(), x_stride, z.bytes.data(), z.stride, gates.empty() ? nullptr : gates.data()};
  }
};

/// The least distance of rows of `length` elements that the computation allows, in elements.
[[nodiscard]] std::int64_t packed_stride(const Computation& what, DType dtype, std::int64_t length);

/// From the first element of such rows to the end of the last one.
[[nodiscard]] std::int64_t strided_elements(std::int64_t rows, std::int64_t length, std::int64_t stride);

/// Inputs for a batch of n; the same arguments give the same bytes on every machine. `x_stride` 0:
/// packed_stride of a row. Weights beyond the last features are NaN. Throws `invalid_argument` where the
/// stride is less than a row, or where rows are too long for exact integers.
[[nodiscard]] HostInputs make_inputs(const Spmm& problem, std::int64_t n, Inputs kind, std::uint64_t seed,
                                     std::int64_t x_stride = 0);

/// Another number of parts of dnorm, all of which hold numbers.
void take_parts(const Spmm& problem, HostInputs& inputs, std::int64_t parts);

/// Overwrites a few elements of x, chosen by the seed, with Inf, -Inf and NaN; the rest of x stays. Types
/// that have no infinities get what they make of a NaN.
void plant_non_finite(const Spmm& problem, HostInputs& inputs, std::uint64_t seed);

}  // namespace sparsekiln

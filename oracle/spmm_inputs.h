#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include <sparsekiln/binary.h>
#include <sparsekiln/problem.h>

#include "compiler/operand_table.h"
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

/// The operands that a product reads, in host memory; those that it has not are empty.
struct HostInputs {
  Inputs kind = Inputs::random;
  std::uint64_t seed = 0;
  std::int64_t n = 0;         ///< the batch: images of a convolution
  std::int64_t x_stride = 0;  ///< elements
  std::vector<std::byte> x;   ///< as HostActivation has it; what is between the rows is NaN
  std::vector<std::byte> w;   ///< blocks (and taps) × block_out × block_in elements
  /// All others that the launch reads or adds to, by their names in the table of operands. Activations may
  /// have gaps between their rows, with NaN in them. Dense operands are batch-major without gaps: one row, or
  /// the rows of two dimensions. A weight is one row of what w has.
  std::map<std::string_view, HostActivation> read;
  HostActivation y;  ///< what y holds before, where beta is not 0
  double alpha = 1;  ///< numbers of the type of sums, as is beta
  double beta = 0;
  double epsilon = 1e-5;  ///< of a layer normalisation

  /// One of `read`; empty where the launch has not that operand.
  [[nodiscard]] const HostActivation& of(std::string_view name) const;
  /// Throws `internal` where the launch has not that operand.
  [[nodiscard]] HostActivation& at(std::string_view name);

  [[nodiscard]] HostOperands operands() const {
    const HostActivation& z = of("z");
    const HostActivation& block_scales = of("block_scales");
    return {x.data(),       w.data(), x_stride,
            z.bytes.data(), z.stride, block_scales.bytes.empty() ? nullptr : block_scales.bytes.data()};
  }
};

/// The launch of a product as the table of operands takes it: with the whole epilogue, and the extents of the
/// problem.
[[nodiscard]] OperandContract contract_of(const Spmm& problem);

/// An activation of the table for a batch of n, without its elements. Its rows are `gap` units of alignment
/// further apart than they must be, or elements where `statistics` are concerned, which need no alignment.
/// `launch`: contract_of(problem).
[[nodiscard]] HostActivation activation_of(const Spmm& problem, const OperandContract& launch,
                                           const OperandRow& row, std::int64_t n, std::int64_t gap = 0);

/// The least distance of rows of `length` elements that the computation allows, in elements.
[[nodiscard]] std::int64_t packed_stride(const Computation& what, DType dtype, std::int64_t length);

/// From the first element of such rows to the end of the last one.
[[nodiscard]] std::int64_t strided_elements(std::int64_t rows, std::int64_t length, std::int64_t stride);

/// Inputs for a batch of n; the same arguments give the same bytes on every machine. `x_stride` 0:
/// packed_stride of a row. Weights beyond the last features are NaN. Throws `invalid_argument` where the
/// stride is less than a row, or where rows are too long for exact integers.
[[nodiscard]] HostInputs make_inputs(const Spmm& problem, std::int64_t n, Inputs kind, std::uint64_t seed,
                                     std::int64_t x_stride = 0);

/// Another number of parts of dnorm, all of which hold numbers. Throws `internal` where there is no dnorm.
void take_parts(const Spmm& problem, HostInputs& inputs, std::int64_t parts);

/// Overwrites a few elements of x, chosen by the seed, with Inf, -Inf and NaN; the rest of x stays. Types
/// that have no infinities get what they make of a NaN.
void plant_non_finite(const Spmm& problem, HostInputs& inputs, std::uint64_t seed);

}  // namespace sparsekiln

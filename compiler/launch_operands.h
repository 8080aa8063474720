#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <sparsekiln/binary.h>
#include <sparsekiln/error.h>
#include <sparsekiln/problem.h>

namespace sparsekiln {

/// The addresses of the (x, dy) pairs of grad_weight, as a kernel takes them. All have the strides of the
/// first.
struct LaunchPairs {
  struct Pair {
    const void* x = nullptr;
    const void* dy = nullptr;
    const void* z = nullptr;
  };
  Pair pair[kMostPairs];
  std::int32_t count = 0;
};

/// The extents of the images of a launch, as Correlation has them (compiler/correlation.h): of what taps
/// displace, and of what they do not.
struct LaunchImages {
  std::int32_t input[3]{};
  std::int32_t output[3]{};
};

struct LaunchMatrix {
  void* data = nullptr;
  std::int64_t stride = 0;  ///< elements from a batch row (feature-major: feature) to the next
};

/// The matrices of an LSTM's cell (Epilogue::lstm), those that an operation has: with four gates of
/// `features` each, or with one.
struct LaunchCell {
  using Matrix = LaunchMatrix;
  Matrix projection;
  Matrix activations;
  Matrix c_before;
  Matrix c;
  Matrix dc;
  Matrix dc_before;
  std::int64_t features = 0;
};

/// What a layer normalisation (Epilogue::layer_norm) takes besides the product, whose sums a pass after it
/// finishes: of forward they are in `sums`, of grad_input in `dh`. LaunchCell has the state of a cell.
struct LaunchNormalisation {
  LaunchMatrix y;  ///< dx of grad_input
  /// grad_input: dh in the type of the sums, which the pass overwrites with what becomes of it before it is
  /// dx. It is where dx is if that has this type; else in the workspace, see Workspace::sums_of_one.
  LaunchMatrix dh;
  LaunchMatrix sums;
  LaunchMatrix statistics;
  LaunchMatrix multiplier;
  LaunchMatrix addend;
  LaunchMatrix dmultiplier;
  LaunchMatrix daddend;
  LaunchMatrix dnorm;
  const void* gain = nullptr;
  const void* bias = nullptr;
  std::int64_t features = 0;  ///< of a group
  std::int64_t parts = 0;     ///< of dnorm
  double epsilon64 = 0;
  float epsilon = 0;
};

/// What a launch hands to a kernel: what an Argument names is the member of that name. Plain data, read by
/// the code of the cpu target too. x and y stand for what an operation reads and writes in their places: dy
/// and dx of grad_input, and y for the sums of a product that are normalised. For grad_weight y is dw, x and
/// dy are in `pairs`, and x_stride and y_stride theirs.
struct LaunchOperands {
  const void* x = nullptr;
  const void* w = nullptr;
  void* y = nullptr;
  void* workspace = nullptr;  ///< see Workspace
  std::int64_t n = 0;
  std::int64_t x_stride = 0;  ///< elements, here and below
  std::int64_t y_stride = 0;
  const void* v = nullptr;  ///< the second weight; further ones are as far apart as the first two
  const void* bias = nullptr;
  const void* v_bias = nullptr;
  const void* residual = nullptr;
  std::int64_t residual_stride = 0;
  const void* z = nullptr;
  std::int64_t z_stride = 0;
  const void* block_scales = nullptr;
  void* dbias = nullptr;
  void* dblock_scales = nullptr;
  float alpha = 1;  ///< see set_scale, here and below
  float beta = 0;
  LaunchPairs pairs;
  const void* tables = nullptr;  ///< on the cpu: TableImage::bytes of an attached layout
  double alpha64 = 1;            ///< of problems whose sums are float64
  double beta64 = 0;
  const void* edge_gain = nullptr;
  const void* edge_bias = nullptr;
  LaunchCell cell;
  LaunchNormalisation normalisation;
  LaunchImages images;                  ///< of a dynamic convolution, here and below
  std::int64_t rows_of_one = 0;         ///< rows of the product for each of the batch; 0: the entry's
  const void* vectors[kMostVectors]{};  ///< Argument::vector and what follows it

  /// Sets alpha and beta in both types: those of float32 are the nearest.
  void set_scale(double with_alpha, double with_beta) {
    alpha = static_cast<float>(with_alpha);
    beta = static_cast<float>(with_beta);
    alpha64 = with_alpha;
    beta64 = with_beta;
  }
};

/// Where an argument is in LaunchOperands: bytes from its beginning.
struct ArgumentPlace {
  Argument argument;
  std::uint16_t offset;
  bool is_pointer;
};
/// Without those from Argument::vector on, and n, tables and tensor maps, which are made for each launch.
inline constexpr ArgumentPlace kArgumentPlaces[] = {
    {Argument::x, offsetof(LaunchOperands, x), true},
    {Argument::w, offsetof(LaunchOperands, w), true},
    {Argument::y, offsetof(LaunchOperands, y), true},
    {Argument::workspace, offsetof(LaunchOperands, workspace), true},
    {Argument::x_stride, offsetof(LaunchOperands, x_stride), false},
    {Argument::y_stride, offsetof(LaunchOperands, y_stride), false},
    {Argument::v, offsetof(LaunchOperands, v), true},
    {Argument::bias, offsetof(LaunchOperands, bias), true},
    {Argument::v_bias, offsetof(LaunchOperands, v_bias), true},
    {Argument::residual, offsetof(LaunchOperands, residual), true},
    {Argument::residual_stride, offsetof(LaunchOperands, residual_stride), false},
    {Argument::z, offsetof(LaunchOperands, z), true},
    {Argument::z_stride, offsetof(LaunchOperands, z_stride), false},
    {Argument::block_scales, offsetof(LaunchOperands, block_scales), true},
    {Argument::dbias, offsetof(LaunchOperands, dbias), true},
    {Argument::dblock_scales, offsetof(LaunchOperands, dblock_scales), true},
    {Argument::alpha, offsetof(LaunchOperands, alpha), false},
    {Argument::beta, offsetof(LaunchOperands, beta), false},
    {Argument::pairs, offsetof(LaunchOperands, pairs), false},
    {Argument::edge_gain, offsetof(LaunchOperands, edge_gain), true},
    {Argument::edge_bias, offsetof(LaunchOperands, edge_bias), true},
    {Argument::pair_x, offsetof(LaunchOperands, pairs.pair[0].x), true},
    {Argument::pair_dy, offsetof(LaunchOperands, pairs.pair[0].dy), true},
    {Argument::images, offsetof(LaunchOperands, images), false},
    {Argument::cell, offsetof(LaunchOperands, cell), false},
    {Argument::normalisation, offsetof(LaunchOperands, normalisation), false},
};
/// Its row; null: it has none.
[[nodiscard]] constexpr const ArgumentPlace* place_of(Argument argument) {
  for (const ArgumentPlace& place : kArgumentPlaces)
    if (place.argument == argument) return &place;
  return nullptr;
}
static_assert(
    [] {
      for (int number = 0; number < static_cast<int>(Argument::vector); ++number) {
        const auto argument = static_cast<Argument>(number);
        const bool of_launch =
            argument == Argument::n || argument == Argument::tables || argument == Argument::tensor_map;
        if ((place_of(argument) == nullptr) != of_launch) return false;
      }
      return true;
    }(),
    "each argument that no launch makes has a place");

/// The offset of an argument. Throws `internal` for what has no place.
[[nodiscard]] constexpr std::uint16_t offset_of(Argument argument) {
  if (argument >= Argument::vector && argument <= kLastArgument)
    return static_cast<std::uint16_t>(
        offsetof(LaunchOperands, vectors) +
        sizeof(void*) * (static_cast<std::size_t>(argument) - static_cast<std::size_t>(Argument::vector)));
  if (const ArgumentPlace* const place = place_of(argument)) return place->offset;
  throw Error(ErrorKind::internal,
              "an argument that no operand is: number " + std::to_string(static_cast<int>(argument)));
}

}  // namespace sparsekiln

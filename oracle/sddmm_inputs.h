#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <sparsekiln/compile.h>
#include <sparsekiln/problem.h>

#include "compiler/launch_operands.h"
#include "compiler/sddmm.h"
#include "oracle/draw.h"
#include "oracle/poisoned_output.h"

namespace sparsekiln {

/// What a launch of grad_weight reads, in host memory. Activations are n rows of features, or feature-major
/// rows of n; what is between the rows is NaN, and their memory ends with the last one.
struct SddmmInputs {
  struct Pair {
    std::vector<std::byte> x;
    std::vector<std::byte> dy;
    std::vector<std::byte> z;  ///< where there is a derivative
  };
  Inputs kind = Inputs::random;
  std::uint64_t seed = 0;
  std::int64_t n = 0;
  std::int64_t x_stride = 0;   ///< elements
  std::int64_t dy_stride = 0;  ///< the same of dy and z
  std::vector<Pair> pairs;
  std::vector<std::byte> w;             ///< where there is a gradient of block scales
  std::vector<std::byte> block_scales;  ///< of the type of sums, where there are any; every third is 0
  double alpha = 1;                     ///< numbers of the type of sums, as is beta
  double beta = 0;
  /// With beta != 0 what the results held before: of the output type, and of that of sums.
  std::vector<std::byte> old_dw;
  std::vector<std::byte> old_dbias;
  std::vector<std::byte> old_dblock_scales;
};

/// What there is to choose of a launch in addition to the problem.
struct SddmmLaunch {
  std::int64_t n = 1;
  std::int64_t pairs = 1;
  std::int64_t padding = 0;  ///< elements between the rows of activations
  double alpha = 2;          ///< here and below: with Epilogue::scale
  double beta = 0;
};

/// The same arguments give the same bytes on every machine. Throws `invalid_argument` where sums are too long
/// for exact integers.
[[nodiscard]] SddmmInputs make_inputs(const Sddmm& gradient, const SddmmLaunch& launch, Inputs kind,
                                      std::uint64_t seed);

/// The host images of what a launch computes: poison, or the old values where it adds to them. An output
/// that is not asked for has no elements.
struct SddmmOutputs {
  explicit SddmmOutputs(const Sddmm& gradient, const SddmmInputs& inputs);

  PoisonedOutput dw;             ///< blocks · block_out rows of block_in
  PoisonedOutput dbias;          ///< a row of out_features
  PoisonedOutput dblock_scales;  ///< a row of blocks
};

/// The addresses of copies of the inputs and of the images.
struct SddmmAddresses {
  std::vector<LaunchPairs::Pair> pairs;
  const void* w = nullptr;
  const void* block_scales = nullptr;
  void* dw = nullptr;  ///< images
  void* dbias = nullptr;
  void* dblock_scales = nullptr;
};

/// The operands of a launch on copies of the inputs, activations with arbitrary strides where their axes have
/// extent 1, and where `image_axes` says so with axes of their own for positions of images. `pairs` holds the
/// views that they refer to.
[[nodiscard]] Operands operands_of(const Sddmm& gradient, const SddmmInputs& inputs,
                                   const SddmmOutputs& outputs, const SddmmAddresses& addresses,
                                   bool image_axes, std::vector<ActivationPair>& pairs);

}  // namespace sparsekiln

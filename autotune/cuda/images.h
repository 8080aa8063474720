#pragma once

#include <cstdint>

#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// What the passes of a launch do that transpose channels-first images, in the measures of Work
/// (autotune/cuda/work.h). All zeros where there are none.
struct Transpositions {
  std::int64_t global_bytes = 0;  ///< exact where beta is 0
  std::int64_t memory_bytes = 0;  ///< of the images: the product counts their rows
  std::int64_t shared_bytes = 0;
  std::int64_t instructions = 0;
  std::int32_t kernels = 0;
};
[[nodiscard]] Transpositions transpositions_of(const Spmm& product, std::int64_t n);
[[nodiscard]] Transpositions transpositions_of(const Sddmm& gradient, std::int64_t n);

}  // namespace sparsekiln::cuda

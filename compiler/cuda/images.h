#pragma once

#include <cstdint>

#include "compiler/cuda/declarations.h"
#include "compiler/cuda/family.h"
#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// The channels-first activations of a launch, of a problem that on_rows (compiler/problem_kind.h) made one
/// of rows, which templates/images.cuh transposes. For a gradient of the weight y's are those of dy.
struct TransposedImages {
  struct Side {
    std::int64_t features = 0;
    std::int64_t positions = 0;
    DType dtype = DType::f32;
    std::int32_t activations = 1;  ///< of this shape
  };
  Side x;
  Side y;
  bool dynamic = false;  ///< positions are those of the largest images
  bool x_displaced = true;

  explicit TransposedImages(const Spmm& product);
  explicit TransposedImages(const Sddmm& gradient);

  /// What the rows of an image take of the workspace: a multiple of 16.
  [[nodiscard]] std::int64_t row_bytes() const;
};

/// The dynamic shared memory of an instance whose launch also transposes images.
[[nodiscard]] std::int32_t shared_bytes_with_images(const Instance& instance);

/// The members of Config that templates/images.cuh reads. `rows_begin` and `rows_begin_of_tile`: what the
/// workspace has in front of the rows.
[[nodiscard]] Declarations transposition_declarations(const TransposedImages& images, std::int32_t alignment,
                                                      const Instance& instance, std::int64_t rows_begin,
                                                      std::int64_t rows_begin_of_tile);

}  // namespace sparsekiln::cuda

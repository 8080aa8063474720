#pragma once

#include <cstdint>
#include <string_view>

#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/correlation.h"
#include "compiler/cuda/declarations.h"
#include "compiler/halo_box.h"

namespace sparsekiln::cuda {

/// Throws `invalid_argument` unless variant halo `works`: why it does not, and that variant mma would.
void require_halo(bool works, std::string_view why);

/// Throws `invalid_argument` where a computation's images are not as variant halo reads them, whatever blocks
/// it has. `gathered`: its convolution; null where it gathers nothing. `image_alignment`: Spmm's, or Sddmm's.
void require_halo_images(const Computation& problem, const Correlation* gathered,
                         std::int32_t image_alignment, const Target& target);

/// Throws `invalid_argument` where the copy engine skips no so many positions. `step`: from one to the next.
void require_halo_steps(const Convolution::Extents& step);

/// The members of a Config that templates/halo_rings.cuh's HaloBox needs.
void declare_box(Declarations& members, const HaloBox& box);

}  // namespace sparsekiln::cuda

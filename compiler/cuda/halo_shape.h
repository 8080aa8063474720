#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/tables.h"
#include "compiler/halo_box.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// The numbers of templates/spmm_halo.cuh that follow from a config.
struct HaloShape {
  HaloBox box;
  std::int32_t threads = 0;
  std::int32_t stages_w = 0;      ///< steps of an output tile
  std::int64_t bytes_x = 0;       ///< of a stage, copied
  std::int64_t bytes_w = 0;       ///< of a step
  std::int64_t shared_bytes = 0;  ///< of all stages, dynamic
  ChunkShape chunk;
};

/// Throws `invalid_argument`, with what would work, where the copy engine has no such boxes.
void check_box(const Config& config, const HaloBox& box);

/// Throws `invalid_argument`, with what would work, where the numbers do not go together.
[[nodiscard]] HaloShape halo_shape(const Spmm& problem, const Target& target, const Config& config);

}  // namespace sparsekiln::cuda

#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// The config of a CUDA target for a batch of `n` where nothing was measured, besides the form of its table:
/// tensor cores for every type that they take, CUDA cores for float32 with ieee math; up to 16 batch rows
/// on either the main loop that streams the weight, where one tile holds them.
[[nodiscard]] Config default_config(const Spmm& problem, const Target& target, std::int64_t n);

/// The same for the gradient of the weight: as many blocks side by side as fill a tile, fewer where the
/// layout would not keep all workers busy.
[[nodiscard]] Config default_config(const Sddmm& gradient, const Target& target, std::int64_t n);

}  // namespace sparsekiln::cuda

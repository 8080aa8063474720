#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln::cpu {

/// The most batch rows of a linear layer's tile: every tile reads the whole weight, and beyond this its sums
/// and panels crowd the weight out of L1.
inline constexpr std::int32_t kMostBatchRows = 64;

/// The config of the cpu target for a batch of `n` where nothing was measured. Only the
/// numbers of block rows and of blocks of the problem matter; an empty layout stands for any.
[[nodiscard]] Config default_config(const Spmm& problem, const Target& target, std::int64_t n);

/// The overload for the gradient of the weight; an empty layout stands for any, of about 4096 features.
[[nodiscard]] Config default_config(const Sddmm& gradient, const Target& target, std::int64_t n);

}  // namespace sparsekiln::cpu

#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "autotune/predicted_time.h"

namespace sparsekiln::cuda {

/// As sparsekiln::predict, for CUDA targets. Formulas are in docs/tuning-model.md.
[[nodiscard]] Prediction predict(const Problem& problem, const Target& target, const Config& config,
                                 std::int64_t n);

}  // namespace sparsekiln::cuda

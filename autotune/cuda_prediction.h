#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "autotune/predicted_time.h"
#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// As sparsekiln::predict, for CUDA targets. Formulas are in docs/tuning-model.md.
[[nodiscard]] Prediction predict(const Spmm& problem, const Target& target, const Config& config,
                                 std::int64_t n);
[[nodiscard]] Prediction predict(const Sddmm& gradient, const Target& target, const Config& config,
                                 std::int64_t n);

}  // namespace sparsekiln::cuda

#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "autotune/architecture.h"
#include "autotune/cuda_counts.h"
#include "autotune/predicted_time.h"
#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// As sparsekiln::Pricing, for CUDA targets: on a part with these figures. `rows`: of the problem's layout.
/// Formulas are in docs/tuning-model.md.
[[nodiscard]] Prediction predict(const Spmm& problem, const Target& target, const Config& config,
                                 std::int64_t n, const Architecture& figures, RowShares& rows);
[[nodiscard]] Prediction predict(const Sddmm& gradient, const Target& target, const Config& config,
                                 std::int64_t n, const Architecture& figures, RowShares& rows);

/// Fills in what follows from the other numbers of a config: in_flight, so that the batch tiles at once leave
/// x in their share of L2, and split_saves, the steps that a worker takes while parts are combined. A
/// gradient of the weight has neither.
[[nodiscard]] Config with_derived(const Spmm& problem, const Target& target, Config config, std::int64_t n,
                                  const Architecture& figures);
[[nodiscard]] inline Config with_derived(const Sddmm&, const Target&, const Config& config, std::int64_t,
                                         const Architecture&) {
  return config;
}

}  // namespace sparsekiln::cuda

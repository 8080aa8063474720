#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "autotune/architecture.h"
#include "autotune/cuda/counts.h"
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

/// Fills in what follows from the other numbers of a config: in_flight, with which it is predicted to be
/// fastest, and split_saves, the steps that a worker takes while parts are combined, or four times as many. A
/// gradient of the weight has neither. `begin`: the smallest n that is computed by the same entry, which has
/// no more batch tiles at once. `rows`: of the problem's layout.
[[nodiscard]] Config with_derived(const Spmm& problem, const Target& target, Config config, std::int64_t n,
                                  std::int64_t begin, const Architecture& figures, RowShares& rows);
[[nodiscard]] inline Config with_derived(const Sddmm&, const Target&, const Config& config, std::int64_t,
                                         std::int64_t, const Architecture&, RowShares&) {
  return config;
}

}  // namespace sparsekiln::cuda

#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "autotune/architecture.h"
#include "autotune/predicted_time.h"

namespace sparsekiln {

/// Prices one launch of a batch of n from the layout's statistics; no schedule is made. Microseconds on a
/// part of the target's architecture, the usual one where nothing is known of it. For configs that validate;
/// a few microseconds a call.
[[nodiscard]] Prediction predict(const Problem& problem, const Target& target, const Config& config,
                                 std::int64_t n, const Part& part = {});

/// What every launch must do, whatever its config.
struct Floor {
  double flops = 0;  ///< of present blocks
  double bytes = 0;  ///< each operand once: weight on present blocks, activations, results
};
[[nodiscard]] Floor floor_of(const Problem& problem, std::int64_t n);

}  // namespace sparsekiln

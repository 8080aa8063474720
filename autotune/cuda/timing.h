#pragma once

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "autotune/architecture.h"
#include "autotune/cuda/work.h"
#include "autotune/predicted_time.h"
#include "compiler/cuda/loop_tuning.h"

namespace sparsekiln::cuda {

/// What a launch takes that does this work, on a part with these figures. Formulas are in
/// docs/tuning-model.md.
[[nodiscard]] Prediction timed(const Computation& problem, const Target& target, const Config& config,
                               const CtaCosts& costs, const Work& work, const Architecture& figures);

/// CTAs that a multiprocessor holds at once, their registers considered.
[[nodiscard]] std::int32_t resident(const Target& target, const CtaCosts& costs);

/// What a step takes a CTA that has its multiprocessor to itself, as the last one has.
[[nodiscard]] double step_us(const Spmm& problem, const Target& target, const LoopCosts& costs,
                             const Architecture& figures);

/// The part of L2 that holds what is read again.
inline constexpr double kUsableCache = 0.662;

/// Microseconds that combining the parts of a split row takes a CTA besides what they are: it waits for
/// another.
inline constexpr double kCombineUs = 1.02;

}  // namespace sparsekiln::cuda

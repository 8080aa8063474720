#pragma once

#include <cstdint>
#include <string_view>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

namespace sparsekiln {

/// What bounds the time of a launch.
enum class Bound : std::uint8_t {
  memory,        ///< bytes that come from memory once
  cache,         ///< bytes that come from L2, or from the last-level cache
  arithmetic,    ///< products
  instructions,  ///< everything else that is issued
  latency,       ///< beginning, filling the pipeline, waiting for one another
};
[[nodiscard]] std::string_view name(Bound bound);

/// What a config is expected to take.
struct Prediction {
  double us = 0;  ///< of a launch
  Bound bound = Bound::memory;
};

/// Prices one launch of a batch of n from the layout's statistics; no schedule is made. Microseconds on the
/// usual part of the target's architecture. For configs that validate; a few microseconds a call.
[[nodiscard]] Prediction predict(const Problem& problem, const Target& target, const Config& config,
                                 std::int64_t n);

/// What every launch must do, whatever its config.
struct Floor {
  double flops = 0;  ///< of present blocks
  double bytes = 0;  ///< each operand once: weight on present blocks, activations, results
};
[[nodiscard]] Floor floor_of(const Problem& problem, std::int64_t n);

}  // namespace sparsekiln

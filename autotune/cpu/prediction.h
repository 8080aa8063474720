#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "autotune/predicted_time.h"
#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln::cpu {

/// The register tiles of a product's blocks, as compiler/cpu/level.cpp makes them of a config: which needs no
/// LLVM to be known.
struct ExpectedTile {
  double outputs = 1;  ///< in the mean
  double vectors = 1;
  friend bool operator==(const ExpectedTile&, const ExpectedTile&) = default;
};
[[nodiscard]] ExpectedTile expected_tile(const Spmm& problem, const Target& target, const Config& config);

/// Prices a launch on the cpu target: the multiply-adds of its register tiles, the weight and the panels on
/// their way through the caches, packing, and what passes and shares cost. For a processor of the level such
/// as servers have; what is known of it stands above the code.
[[nodiscard]] Prediction predict(const Spmm& problem, const Target& target, const Config& config,
                                 std::int64_t n);
[[nodiscard]] Prediction predict(const Sddmm& problem, const Target& target, const Config& config,
                                 std::int64_t n);

}  // namespace sparsekiln::cpu

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "autotune/architecture.h"

namespace sparsekiln {

/// A config of the space that cannot serve, and why.
struct RejectedConfig {
  Config config;
  std::string reason;
  bool by_compiler = false;  ///< it cannot be compiled; else it is never worth a try
};

/// All configs that might be the fastest for a problem at a batch of n.
struct Space {
  std::vector<Config> configs;  ///< that work, in the order of the axes; no two are the same
  std::vector<RejectedConfig> rejected;
};

/// Goes through the axes of the families of kernels for the target and the kind of problem
/// (FamilyTuning::axes), and asks the compiler of each config whether it works. Never changes what a caller
/// sees of a kernel: how the weight lies (Config::packed) is no axis, and neither are attached tables.
/// Clusters of four are among them where the part says how many it holds.
[[nodiscard]] Space space_of(const Problem& problem, const Target& target, std::int64_t n,
                             const Part& part = {});

/// The few of those among which a default is chosen (FamilyTuning::default_axes), on CUDA targets. The
/// compiler was not asked: it may refuse some.
[[nodiscard]] std::vector<Config> default_candidates(const Problem& problem, const Target& target,
                                                     std::int64_t n);

}  // namespace sparsekiln

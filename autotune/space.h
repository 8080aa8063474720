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

/// Whether all configs are meant or, on CUDA targets, the few from which defaults are chosen. What is not
/// worth a try is then left out of the rejected ones.
enum class Breadth : std::uint8_t { all, defaults };

/// Goes through the axes of the families of kernels for the target and the kind of problem
/// (FamilyTuning::axes), and asks the compiler of each config whether it works. Never changes what a caller
/// sees of a kernel: how the weight lies (Config::packed) is no axis, and neither are attached tables.
[[nodiscard]] Space space_of(const Problem& problem, const Target& target, std::int64_t n,
                             const Part& part = {}, Breadth breadth = Breadth::all);

}  // namespace sparsekiln

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// The config of a CUDA target for a batch of `n` where nothing was measured: the one that the cost model
/// gives the least time, of those that families offer (FamilyTuning::default_axes), or within 1 % of that the
/// one with the shortest code. Its tables are in global memory. The problem must be one that cuda::validate
/// lets through: one of the configs then computes it.
[[nodiscard]] Config default_config(const Problem& problem, const Target& target, std::int64_t n);
/// `default_config` of each of several batches. What their prices share, such as which rows are put together,
/// is found once.
[[nodiscard]] std::vector<Config> default_configs(const Problem& problem, const Target& target,
                                                  std::span<const std::int64_t> batches);

/// Numbers for Config::split of a product: those that its family offers (SearchAxes::split) and does not
/// reject, as far as a multiprocessor holds as many CTAs of the config; that of the config, or 1, where there
/// are none.
[[nodiscard]] std::vector<std::int32_t> splits_of(const Spmm& problem, const Target& target,
                                                  const Config& config);

}  // namespace sparsekiln::cuda

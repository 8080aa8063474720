#pragma once

#include <initializer_list>
#include <string>

#include <sparsekiln/config.h>
#include <sparsekiln/error.h>
#include <sparsekiln/layout.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/emit.h"
#include "compiler/cuda/simt_shape.h"
#include "compiler/schedule.h"

namespace sparsekiln::cuda {

inline constexpr std::initializer_list<std::int32_t> kSides = {8, 16, 32, 64, 128};

/// 4 × 23 blocks: a full row, which several workers have to share; an empty one; one of five; one of a single
/// block.
inline Layout skewed_layout() {
  std::vector<std::uint8_t> mask(4 * 23, 0);
  for (std::size_t col = 0; col < 23; ++col) mask[col] = 1;
  for (const std::size_t col : {1, 4, 5, 17, 22}) mask[2 * 23 + col] = 1;
  mask[3 * 23 + 11] = 1;
  return Layout::from_mask(4, 23, mask);
}

inline Problem skewed_problem(BlockShape block, Batch batch) {
  Problem problem;
  problem.layout = skewed_layout();
  problem.block = block;
  problem.batch = batch;
  return problem;
}

/// The first config with these numbers whose threads share the tile out evenly.
inline Config fitting_config(BlockShape block, const Target& target, std::int32_t tile_n, std::int32_t stages,
                             TableForm table) {
  for (const std::int32_t warps : {4, 8, 2, 1}) {
    for (const std::int32_t tile_out : {4, 8, 2, 1}) {
      Config config;
      config.tile_n = tile_n;
      config.tile_out = tile_out;
      config.stages = stages;
      config.warps = warps;
      config.table = table;
      try {
        (void)simt_shape(skewed_problem(block, 64), target, config);
        return config;
      } catch (const Error&) {
        continue;
      }
    }
  }
  throw Error(ErrorKind::internal, "no config fits block " + to_string(block));
}

inline Source emit_plan(const Problem& problem, const Target& target, const Plan& plan,
                        std::vector<Schedule>* schedules = nullptr) {
  std::vector<Schedule> made;
  for (const RangedConfig& range : plan)
    made.push_back(make_schedule(problem, target, range.config, range.up_to));
  Source source = emit(problem, target, plan, made);
  if (schedules != nullptr) *schedules = std::move(made);
  return source;
}

}  // namespace sparsekiln::cuda

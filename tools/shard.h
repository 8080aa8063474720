#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tools/jobs.h"

namespace sparsekiln::tools {

/// One of `count` machines that share out a list of jobs: `index` is 0 to count - 1, as batch engines number
/// the tasks of an array.
struct Shard {
  std::size_t index = 0;
  std::size_t count = 1;
};

/// "3/8"; empty: the only one. Throws `invalid_argument`.
[[nodiscard]] Shard parse_shard(const std::string& text);

/// The jobs of a shard: each `count`-th of those that differ, so that no two machines do the same, and long
/// ones beside one another in the list go to different machines. What `sameness` calls equal is one job.
[[nodiscard]] std::vector<KernelJob> jobs_of_shard(
    std::vector<KernelJob> jobs, const Shard& shard,
    const std::function<std::string(const KernelJob&)>& sameness);

}  // namespace sparsekiln::tools

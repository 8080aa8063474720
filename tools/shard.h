#pragma once

#include <cstddef>
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

/// "3/8". Throws `invalid_argument`.
[[nodiscard]] Shard parse_shard(const std::string& text);

/// Throws `invalid_argument` where a store's jobs would be shared out: each machine has a store of its own.
void check_shard(const Shard& shard, bool from_store);

/// The jobs of a shard: each `count`-th of the list, so that long ones beside one another go to different
/// machines. Positions alone decide: plans depend on what a machine has tuned, and would move the numbers.
[[nodiscard]] std::vector<KernelJob> jobs_of_shard(std::vector<KernelJob> jobs, const Shard& shard);

}  // namespace sparsekiln::tools

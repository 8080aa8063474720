#include "compiler/block_runs.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/even_shares.h"

namespace sparsekiln {
namespace {

std::vector<BlockRun> cut_rows(const Sddmm& gradient, std::int32_t width) {
  const auto crow = gradient.layout.crow();
  std::vector<BlockRun> runs;
  for (std::int32_t row = 0; row < gradient.layout.rows(); ++row) {
    const std::int32_t begin = crow[static_cast<std::size_t>(row)];
    const std::int32_t end = crow[static_cast<std::size_t>(row) + 1];
    if (begin == end && gradient.bias_gradient) runs.push_back({row, begin, 0, true});
    for (std::int32_t first = begin; first < end; first += width)
      runs.push_back({row, first, std::min(width, end - first), first == begin});
  }
  return runs;
}

/// Runs that are computed at the same time are neighbors: CTAs go through the batch together, and those of
/// one block row then share its dy. In each wave, every worker gets a run: the costliest goes to the one with
/// the least to do.
std::vector<std::int32_t> in_waves(const std::vector<BlockRun>& runs, std::int32_t workers) {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(workers));
  std::vector<std::int32_t> result(runs.size());
  for (std::size_t first = 0; first < runs.size(); first += loads.size()) {
    std::vector<std::size_t> wave(std::min(loads.size(), runs.size() - first));
    std::iota(wave.begin(), wave.end(), first);
    std::stable_sort(wave.begin(), wave.end(),
                     [&](std::size_t a, std::size_t b) { return cost_of(runs[a]) > cost_of(runs[b]); });
    std::vector<std::int32_t> order(loads.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return loads[static_cast<std::size_t>(a)] < loads[static_cast<std::size_t>(b)];
    });
    for (std::size_t i = 0; i < wave.size(); ++i) {
      result[wave[i]] = order[i];
      loads[static_cast<std::size_t>(order[i])] += cost_of(runs[wave[i]]);
    }
  }
  return result;
}

/// Which worker has each run, where any may have any.
std::vector<std::int32_t> in_any_order(const std::vector<BlockRun>& runs, std::int32_t workers) {
  std::vector<std::int64_t> costs;
  for (const BlockRun& run : runs) costs.push_back(cost_of(run));
  std::vector<std::int32_t> result(runs.size());
  std::int32_t worker = 0;
  for (const auto& share : even_shares(costs, workers)) {
    for (const std::int32_t run : share) result[static_cast<std::size_t>(run)] = worker;
    ++worker;
  }
  return result;
}

/// Groups of pieces: each worker has every so many.
BlockRuns in_turn(const std::vector<BlockGroup>& groups, const Target& target, const Config& config) {
  const std::size_t workers = std::clamp<std::size_t>(
      groups.size(), 1, static_cast<std::size_t>(target.workers) * static_cast<std::size_t>(config.split));
  BlockRuns result;
  result.worker_begin.push_back(0);
  for (std::size_t worker = 0; worker < workers; ++worker) {
    for (std::size_t group = worker; group < groups.size(); group += workers)
      result.groups.push_back(groups[group]);
    result.worker_begin.push_back(static_cast<std::int32_t>(result.groups.size()));
  }
  return result;
}

std::int64_t largest(const std::vector<BlockRun>& runs, const std::vector<std::int32_t>& worker,
                     std::int32_t workers) {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(workers));
  for (std::size_t run = 0; run < runs.size(); ++run)
    loads[static_cast<std::size_t>(worker[run])] += cost_of(runs[run]);
  return *std::max_element(loads.begin(), loads.end());
}

}  // namespace

std::span<const BlockRun> BlockRuns::runs_of(std::int32_t worker) const {
  const auto begin = static_cast<std::size_t>(worker_begin[static_cast<std::size_t>(worker)]);
  const auto end = static_cast<std::size_t>(worker_begin[static_cast<std::size_t>(worker) + 1]);
  return std::span(runs).subspan(begin, end - begin);
}

std::span<const BlockGroup> BlockRuns::groups_of(std::int32_t worker) const {
  const auto begin = static_cast<std::size_t>(worker_begin[static_cast<std::size_t>(worker)]);
  const auto end = static_cast<std::size_t>(worker_begin[static_cast<std::size_t>(worker) + 1]);
  return std::span(groups).subspan(begin, end - begin);
}

std::vector<BlockRuns> make_schedules(const Sddmm& gradient, const Target& target, const Plan& plan) {
  std::vector<BlockRuns> schedules;
  for (const RangedConfig& range : plan) schedules.push_back(make_block_runs(gradient, target, range.config));
  return schedules;
}

std::int64_t run_bound(const Sddmm& gradient, std::int32_t width) {
  const std::int64_t rows = gradient.layout.rows();
  const std::int64_t blocks = gradient.layout.blocks();
  // A row with blocks has at most one run that is not full.
  return blocks / width + (gradient.bias_gradient ? rows : std::min(rows, blocks));
}

BlockRuns make_block_runs(const Sddmm& gradient, const Target& target, const Config& config) {
  if (config.rows < 1 || config.split < 1 || target.workers < 1)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("config '{}' for {}: rows, split and workers are 1 or more", to_string(config),
                            target.to_string()));
  if (groups_blocks(config)) return in_turn(make_block_groups(gradient, target, config), target, config);
  const std::vector<BlockRun> runs = cut_rows(gradient, config.rows);
  const std::int64_t most = std::int64_t{target.workers} * config.split;
  const auto workers =
      static_cast<std::int32_t>(std::clamp<std::int64_t>(static_cast<std::int64_t>(runs.size()), 1, most));

  std::vector<std::int32_t> worker = in_waves(runs, workers);
  const std::vector<std::int32_t> balanced = in_any_order(runs, workers);
  if (10 * largest(runs, worker, workers) > 11 * largest(runs, balanced, workers)) worker = balanced;

  BlockRuns result;
  result.worker_begin.assign(static_cast<std::size_t>(workers) + 1, 0);
  for (const std::int32_t of : worker) ++result.worker_begin[static_cast<std::size_t>(of) + 1];
  std::partial_sum(result.worker_begin.begin(), result.worker_begin.end(), result.worker_begin.begin());
  std::vector<std::int32_t> next(result.worker_begin.begin(), result.worker_begin.end() - 1);
  result.runs.resize(runs.size());
  for (std::size_t run = 0; run < runs.size(); ++run)
    result.runs[static_cast<std::size_t>(next[static_cast<std::size_t>(worker[run])]++)] = runs[run];
  return result;
}

}  // namespace sparsekiln

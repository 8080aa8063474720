#include "compiler/schedule.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

namespace sparsekiln {
namespace {

/// A worker is never given fewer steps than this by cutting rows: below, the combine costs more than it
/// saves.
constexpr std::int64_t kStepsWorthCutting = 4;

/// A range [begin, end) of the steps of one block row.
struct Stretch {
  std::int32_t row;
  std::int32_t begin;
  std::int32_t end;
};
using Shares = std::vector<std::vector<Stretch>>;  // by worker

std::int32_t length(const Layout& layout, std::int32_t row) {
  return static_cast<std::int32_t>(layout.row(row).size());
}
std::int64_t cost_of_row(const Layout& layout, std::int32_t row) { return std::max(length(layout, row), 1); }
std::int64_t cost_of(const Stretch& stretch) { return std::max(stretch.end - stretch.begin, 1); }

std::int64_t largest(const Shares& shares) {
  std::int64_t result = 0;
  for (const auto& share : shares) {
    std::int64_t cost = 0;
    for (const Stretch& stretch : share) cost += cost_of(stretch);
    result = std::max(result, cost);
  }
  return result;
}

/// Whole rows in ascending order: a worker's share ends at the row boundary nearest to its multiple of the
/// mean.
Shares contiguous_rows(const Layout& layout, std::int64_t total, std::int32_t workers) {
  Shares shares(static_cast<std::size_t>(workers));
  std::int64_t done = 0;
  for (std::int32_t row = 0; row < layout.rows(); ++row) {
    const std::int64_t cost = cost_of_row(layout, row);
    const std::int64_t middle = 2 * done + cost;  // of the row, doubled to stay whole
    const std::int64_t worker = std::min<std::int64_t>(middle * workers / (2 * total), workers - 1);
    shares[static_cast<std::size_t>(worker)].push_back({row, 0, length(layout, row)});
    done += cost;
  }
  return shares;
}

/// Longest row first to the least loaded worker (Graham 1969); ties go to the lower row and the lower worker.
Shares longest_first(const Layout& layout, std::int32_t workers) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(layout.rows()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return cost_of_row(layout, a) > cost_of_row(layout, b);
  });
  using Load = std::pair<std::int64_t, std::int32_t>;  // cost so far, worker; the smallest on top
  std::vector<Load> heap;
  for (std::int32_t worker = 0; worker < workers; ++worker) heap.emplace_back(0, worker);
  Shares shares(static_cast<std::size_t>(workers));
  for (const std::int32_t row : order) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>{});
    auto& [load, worker] = heap.back();
    shares[static_cast<std::size_t>(worker)].push_back({row, 0, length(layout, row)});
    load += cost_of_row(layout, row);
    std::push_heap(heap.begin(), heap.end(), std::greater<>{});
  }
  for (auto& share : shares)
    std::sort(share.begin(), share.end(), [](const Stretch& a, const Stretch& b) { return a.row < b.row; });
  return shares;
}

/// Rows laid end to end and cut at the multiples of the mean, rounded to whole steps.
Shares cut_rows(const Layout& layout, std::int64_t total, std::int32_t workers) {
  Shares shares(static_cast<std::size_t>(workers));
  const auto cut_after = [&](std::int64_t worker) { return total * (worker + 1) / workers; };
  std::int64_t done = 0;
  std::int64_t worker = 0;
  for (std::int32_t row = 0; row < layout.rows(); ++row) {
    const std::int64_t end = done + cost_of_row(layout, row);
    const std::int64_t first = done;
    while (done < end) {
      while (cut_after(worker) <= done) ++worker;
      const std::int64_t stop = std::min(end, cut_after(worker));
      const bool empty = length(layout, row) == 0;
      shares[static_cast<std::size_t>(worker)].push_back(
          {row, empty ? 0 : static_cast<std::int32_t>(done - first),
           empty ? 0 : static_cast<std::int32_t>(stop - first)});
      done = stop;
    }
  }
  return shares;
}

Shares share_rows(const Layout& layout, std::int32_t workers) {
  std::int64_t total = 0;
  for (std::int32_t row = 0; row < layout.rows(); ++row) total += cost_of_row(layout, row);
  if (total == 0) return Shares(1);
  const auto balanced = [&](const Shares& shares) {  // at most 5 % above the mean
    return 100 * largest(shares) * static_cast<std::int64_t>(shares.size()) <= 105 * total;
  };
  const std::int64_t useful = std::max<std::int64_t>(layout.rows(), total / kStepsWorthCutting);
  workers = static_cast<std::int32_t>(std::min<std::int64_t>(workers, useful));
  Shares shares = contiguous_rows(layout, total, workers);
  if (!balanced(shares)) shares = longest_first(layout, workers);
  if (!balanced(shares)) shares = cut_rows(layout, total, workers);
  return shares;
}

}  // namespace

std::int64_t Schedule::cost(std::int32_t worker) const {
  std::int64_t sum = 0;
  const auto index = static_cast<std::size_t>(worker);
  for (std::int32_t item = worker_begin[index]; item < worker_begin[index + 1]; ++item)
    sum += std::max(items[static_cast<std::size_t>(item)].steps, 1);
  return sum;
}

Schedule make_schedule(const Problem& problem, const Target& target, const Config& config, std::int64_t n) {
  const Layout& layout = problem.layout;
  const std::int64_t batch_tiles = std::max<std::int64_t>(1, (n + config.tile_n - 1) / config.tile_n);
  const std::int64_t ctas = std::int64_t{target.workers} * config.split;
  const auto workers = static_cast<std::int32_t>(std::clamp<std::int64_t>(ctas / batch_tiles, 1, 1 << 20));
  const Shares shares = share_rows(layout, workers);

  Schedule schedule;
  schedule.steps.reserve(static_cast<std::size_t>(layout.blocks()));
  for (std::int32_t row = 0; row < layout.rows(); ++row)
    for (const std::int32_t col : layout.row(row))
      schedule.steps.push_back({{row, col, 0, 0}, static_cast<std::int32_t>(schedule.steps.size()), 0});

  std::vector<std::int32_t> parts(static_cast<std::size_t>(layout.rows()), 0);
  schedule.worker_begin.push_back(0);
  for (const auto& share : shares) {
    for (const Stretch& stretch : share) {
      const auto row = static_cast<std::size_t>(stretch.row);
      Item item;
      item.output = stretch.row;
      item.first_step = layout.crow()[row] + stretch.begin;
      item.steps = stretch.end - stretch.begin;
      item.part = parts[row]++;
      schedule.items.push_back(item);
    }
    schedule.worker_begin.push_back(static_cast<std::int32_t>(schedule.items.size()));
  }
  // The parts of a row were met in ascending order, since cuts ascend with the worker.
  std::vector<std::pair<std::int32_t, std::int32_t>> slots(parts.size(), {-1, -1});  // first partial, counter
  for (std::size_t row = 0; row < parts.size(); ++row) {
    if (parts[row] < 2) continue;
    slots[row] = {schedule.partials, schedule.counters++};
    schedule.partials += parts[row];
  }
  for (Item& item : schedule.items) {
    const auto row = static_cast<std::size_t>(item.output);
    item.parts = parts[row];
    std::tie(item.partial, item.counter) = slots[row];
  }
  return schedule;
}

std::int64_t counter_bytes(const Plan& plan, const std::vector<Schedule>& schedules) {
  std::int64_t counters = 0;
  for (std::size_t entry = 0; entry < plan.size(); ++entry) {
    const std::int64_t tile_n = plan[entry].config.tile_n;
    counters = std::max(counters, (plan[entry].up_to + tile_n - 1) / tile_n * schedules[entry].counters);
  }
  return (4 * counters + 63) / 64 * 64;
}

std::int64_t scheduled_n(const Problem& problem, const Plan& plan, std::size_t entry) {
  if (!problem.batch.dynamic()) return problem.batch.bound();
  return entry == 0 ? 1 : plan[entry - 1].up_to + 1;
}

}  // namespace sparsekiln

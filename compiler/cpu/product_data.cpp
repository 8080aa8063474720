#include "compiler/cpu/product_data.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln::cpu {
namespace {

/// A weight of so many bytes may still be in the last cache from one launch to the next.
constexpr std::int64_t kCachedBytes = std::int64_t{8} << 20;

/// Whole items, Geometry::group_items at most, whose steps are taken in the order of W; a part of a row is a
/// group by itself.
struct Groups {
  std::vector<std::int32_t> begin;   ///< of each worker, and the end
  std::vector<std::int32_t> fields;  ///< kGroupFields each
  std::vector<std::int32_t> slots;   ///< of each step, or kSpanFields of each span
  std::vector<Step> steps;           ///< those of the schedule, in their new order
  std::vector<Item> items;           ///< in the same order; first_step is right for parts of rows alone
};

using SlotSteps = std::vector<std::pair<std::int32_t, Step>>;  ///< items within the group, and their steps

void order_windows(SlotSteps& steps, std::size_t window) {
  for (std::size_t begin = 0; begin < steps.size(); begin += window) {
    const auto first = steps.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto end = steps.begin() + static_cast<std::ptrdiff_t>(std::min(begin + window, steps.size()));
    std::stable_sort(first, end, [](const auto& a, const auto& b) { return a.first < b.first; });
  }
}

/// The fields of the spans of steps that follow `before` others.
std::vector<std::int32_t> spans_of(const SlotSteps& steps, std::size_t before) {
  std::vector<std::int32_t> spans;
  for (std::size_t begin = 0; begin < steps.size();) {
    std::size_t end = begin;
    while (end < steps.size() && steps[end].first == steps[begin].first) ++end;
    spans.insert(spans.end(), {steps[begin].first, static_cast<std::int32_t>(before + begin),
                               static_cast<std::int32_t>(before + end)});
    begin = end;
  }
  return spans;
}

Groups group(const Schedule& schedule, const Geometry& geometry) {
  Groups groups;
  groups.items = schedule.items;
  const auto whole = [&](std::int32_t item) {
    return groups.items[static_cast<std::size_t>(item)].parts == 1;
  };
  SlotSteps steps;
  for (std::int32_t worker = 0; worker < schedule.workers(); ++worker) {
    groups.begin.push_back(static_cast<std::int32_t>(groups.fields.size()) / kGroupFields);
    const std::int32_t end = schedule.worker_begin[static_cast<std::size_t>(worker) + 1];
    std::int32_t count = 0;
    for (std::int32_t first = schedule.worker_begin[static_cast<std::size_t>(worker)]; first < end;
         first += count) {
      count = 1;
      if (whole(first))
        while (count < geometry.group_items && first + count < end && whole(first + count)) ++count;
      steps.clear();
      for (std::int32_t slot = 0; slot < count; ++slot)
        for (const Step& step : schedule.steps_of(schedule.items[static_cast<std::size_t>(first + slot)]))
          steps.emplace_back(slot, step);
      std::sort(steps.begin(), steps.end(),
                [](const auto& a, const auto& b) { return a.second.block[0] < b.second.block[0]; });
      const std::size_t before = groups.steps.size();
      groups.items[static_cast<std::size_t>(first)].first_step = static_cast<std::int32_t>(before);
      std::vector<std::int32_t> slots;
      std::int32_t unit = 1;  // of slots
      if (geometry.window_steps > 0) {
        order_windows(steps, static_cast<std::size_t>(geometry.window_steps));
        slots = spans_of(steps, before);
        unit = kSpanFields;
      } else {
        for (const auto& [slot, step] : steps) slots.push_back(slot);
      }
      groups.fields.insert(groups.fields.end(),
                           {first, count, static_cast<std::int32_t>(groups.slots.size()) / unit,
                            static_cast<std::int32_t>(slots.size()) / unit});
      groups.slots.insert(groups.slots.end(), slots.begin(), slots.end());
      for (const auto& [slot, step] : steps) groups.steps.push_back(step);
    }
  }
  groups.begin.push_back(static_cast<std::int32_t>(groups.fields.size()) / kGroupFields);
  return groups;
}

/// Where the x of a step of a convolution begins in a panel, in words of one point.
std::int32_t place_in_panel(const Spmm& problem, const Step& step, const Geometry& geometry) {
  const Correlation& correlation = *problem.correlation;
  const Correlation::Tap& tap = tap_of(problem, step.output(), step.input());
  const std::int64_t words = std::int64_t{step.input() / correlation.kernel_taps} * geometry.block_words;
  const std::int64_t place = words * geometry.panel_rows() + tap.phase * geometry.phase_points() +
                             tap.displacement - correlation.least;
  if (place > std::numeric_limits<std::int32_t>::max())
    throw Error(
        ErrorKind::invalid_argument,
        "a convolution that packs more than 2^31 numbers for one tile; fewer input features would work");
  return static_cast<std::int32_t>(place);
}

void put_tables(LayoutData& data, const Spmm& problem, const Schedule& schedule, const Geometry& geometry) {
  std::vector<Step> steps = schedule.steps;
  std::vector<Item> items = schedule.items;
  if (geometry.group_items > 1) {
    Groups groups = group(schedule, geometry);
    data.tables[kGroupBegin] = std::move(groups.begin);
    data.tables[kGroups] = std::move(groups.fields);
    data.tables[kSlots] = std::move(groups.slots);
    steps = std::move(groups.steps);
    items = std::move(groups.items);
  }
  data.tables[kWorkerBegin] = schedule.worker_begin;
  for (const Item& item : items)
    data.tables[kItems].insert(data.tables[kItems].end(), {item.tile, item.first_step, item.steps, item.part,
                                                           item.parts, item.partial, item.counter});
  std::vector<std::int32_t>& columns = data.tables[kColumns];
  std::vector<std::int32_t>& blocks = data.tables[kBlocks];
  for (const Step& step : steps) {
    columns.push_back(geometry.correlation ? place_in_panel(problem, step, geometry) : step.input());
    blocks.push_back(step.block[0]);
  }
  if (problem.block_scale_map.taps() == 0)
    for (const Step& step : steps)
      data.tables[kScaleOfStep].push_back(problem.block_scale_map.of(step.block[0]));
  columns.insert(columns.end(), static_cast<std::size_t>(kColumnsBehind), 0);
  blocks.insert(blocks.end(), static_cast<std::size_t>(kColumnsBehind), 0);
}

/// The stretches of words whose block columns have a block; empty where all have one.
std::vector<std::int32_t> packed_words(const Spmm& problem, const Geometry& geometry,
                                       const Schedule& schedule) {
  const std::int32_t of_column = problem.correlation ? problem.correlation->kernel_taps : 1;
  std::vector<bool> used(static_cast<std::size_t>(problem.in_blocks()));
  for (const Step& step : schedule.steps) used[static_cast<std::size_t>(step.input() / of_column)] = true;
  if (std::find(used.begin(), used.end(), false) == used.end()) return {};
  const auto most = static_cast<std::int32_t>(stretch_words(geometry));
  std::vector<std::int32_t> words;
  for (std::int32_t column = 0; column < problem.in_blocks(); ++column) {
    if (!used[static_cast<std::size_t>(column)]) continue;
    const std::int32_t last = (column + 1) * geometry.block_words;
    for (std::int32_t first = column * geometry.block_words; first < last; first += most) {
      const std::int32_t end = std::min(first + most, last);
      const bool goes_on = !words.empty() && words.back() == first && end - words[words.size() - 2] <= most;
      if (goes_on)
        words.back() = end;
      else
        words.insert(words.end(), {first, end});
    }
  }
  return words;
}

/// Steps and blocks, as where rows follow one another.
bool numbered_alike(const LayoutData& data) {
  const std::vector<std::int32_t>& blocks = data.tables[kBlocks];
  for (std::size_t step = 0; step + kColumnsBehind < blocks.size(); ++step)
    if (blocks[step] != static_cast<std::int32_t>(step)) return false;
  return true;
}

}  // namespace

const Correlation::Tap& tap_of(const Spmm& problem, std::int32_t row, std::int32_t column) {
  const Correlation& correlation = *problem.correlation;
  const std::int32_t of_class = row / problem.out_blocks();
  const std::int32_t number = column % correlation.kernel_taps;
  const auto& taps = correlation.taps[static_cast<std::size_t>(of_class)];
  return *std::find_if(taps.begin(), taps.end(),
                       [&](const Correlation::Tap& one) { return one.number == number; });
}

void set_features(LayoutData& data, const Spmm& problem) {
  data[LayoutNumber::in_features] = problem.in_features();
  data[LayoutNumber::last_column] = problem.in_blocks() - 1;
  data[LayoutNumber::last_inputs] =
      problem.in_features() - data[LayoutNumber::last_column] * problem.block.in;
  data[LayoutNumber::out_features] = problem.out_features();
  data[LayoutNumber::last_row] = problem.out_blocks() - 1;
  data[LayoutNumber::last_outputs] =
      problem.out_features() - data[LayoutNumber::last_row] * problem.block.out;
}

std::int64_t words_of(const Spmm& problem, const Geometry& geometry) {
  return std::int64_t{problem.in_blocks()} * geometry.block_words;
}

LayoutData product_data(const Spmm& problem, const Geometry& geometry, const Schedule& schedule,
                        std::int64_t counters_in_front) {
  LayoutData data;
  put_tables(data, problem, schedule, geometry);
  if (geometry.packs_x) data.tables[kPackedWords] = packed_words(problem, geometry, schedule);
  if (geometry.order != WeightOrder::columns) {
    drop_known_blocks(data);
    if (!data.tables[kBlocks].empty())
      throw Error(ErrorKind::internal, "blocks are looked up by columns only; else they are taken in turn");
  }
  data[LayoutNumber::workers] = schedule.workers();
  data[LayoutNumber::out_blocks] = problem.out_blocks();
  set_features(data, problem);
  data[LayoutNumber::words] = words_of(problem, geometry);
  data[LayoutNumber::streams] =
      problem.weight.blocks() * geometry.block_bytes() * (problem.epilogue.glu ? 2 : 1) > kCachedBytes;
  data[LayoutNumber::counters] = schedule.counters;
  // Without counters of its own, too: x is packed after those of the other entries.
  data[LayoutNumber::counter_bytes] = counters_in_front;
  data[LayoutNumber::tile_bytes] = (data[LayoutNumber::words] * geometry.panel_word_bytes() +
                                    geometry.sums_bytes * schedule.partials + 63) /
                                   64 * 64;
  return data;
}

void drop_known_blocks(LayoutData& data) {
  if (numbered_alike(data)) data.tables[kBlocks].clear();
}

std::vector<std::string> attached_passes(const Geometry& geometry, const std::string& suffix,
                                         std::int64_t workers) {
  if (!geometry.packs_x) return {"product" + suffix};
  if (workers == 1) return {"private_product" + suffix};
  return {"pack" + suffix, "product" + suffix};
}

std::string normalise_pass(const std::string& suffix) { return "normalise" + suffix; }

std::vector<Geometry> attached_forms(const Spmm& problem, const Geometry& geometry, const Target& target,
                                     const Config& config, std::int64_t n) {
  if (!geometry.correlation || most_workers(problem, target, config, n) > 1) return {};
  return geometry.sharing_panels(n, target.workers);
}

std::string form_suffix(const Geometry& form, const std::string& suffix) {
  return fmt::format("{}_strips_of_{}", suffix, form.strip_tiles);
}

void describe_jobs(const Geometry& geometry, Entry& entry) {
  if (!geometry.correlation) return;
  entry.tile_n = geometry.images * std::max(1, geometry.panel_strips / geometry.image_strips);
  entry.rows_of_one = std::max(1, geometry.image_strips / geometry.panel_strips);
}

}  // namespace sparsekiln::cpu

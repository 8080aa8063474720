#include "compiler/cpu/planned_entry.h"

#include "compiler/cpu/plain_spmm.h"
#include "compiler/cpu/product_data.h"
#include "compiler/element.h"
#include "compiler/plan.h"

namespace sparsekiln::cpu {
namespace {

/// Rows that each of a batch is computed in: points of whole tiles, which end with an image.
std::int32_t rows_of_one(const Correlation* lattice, std::int32_t tile_n) {
  return lattice == nullptr ? 1 : static_cast<std::int32_t>(lattice->tiles(tile_n) * tile_n);
}

/// `schedule`: null where the layout is attached, here and below.
void plan_plain(PlannedEntry& planned, const Spmm& problem, const Schedule* schedule) {
  planned.entry.passes = {"product" + planned.suffix};
  planned.entry.rows_of_one = rows_of_one(problem.correlation.get(), planned.entry.tile_n);
  if (schedule != nullptr) planned.data = plain_spmm_data(problem, *schedule);
}

void plan_baked(PlannedEntry& planned, const Spmm& problem, const Schedule& schedule,
                std::int64_t counters_in_front) {
  const Geometry& geometry = *planned.geometry;
  Entry& entry = planned.entry;
  entry.passes = {"product" + planned.suffix};
  // No other worker shares the packed x of a batch tile: its only one packs it, and no pass waits for
  // another.
  const bool private_panel = schedule.workers() == 1;
  if (geometry.packs_x && !private_panel) entry.passes.insert(entry.passes.begin(), "pack" + planned.suffix);
  describe_jobs(geometry, entry);
  planned.data = product_data(problem, geometry, schedule, counters_in_front);
  drop_known_blocks(*planned.data);
}

void plan_attached(PlannedEntry& planned) {
  const std::vector<Geometry>& forms = planned.forms;
  planned.entry.passes = forms.empty() ? attached_passes(*planned.geometry, planned.suffix, 0)
                                       : std::vector{"product" + form_suffix(forms.back(), planned.suffix)};
  describe_jobs(forms.empty() ? *planned.geometry : forms.back(), planned.entry);
}

PlannedEntry planned_entry(const Spmm& problem, const Target& target, const Plan& plan, std::size_t index,
                           const Schedule* schedule, std::int64_t counters_in_front) {
  const Config& config = plan[index].config;
  PlannedEntry planned;
  planned.suffix = entry_suffix(plan, index);
  planned.entry.up_to = plan[index].up_to;
  planned.entry.tile_n = config.tile_n;
  if (element(problem.dtype).cpu == CpuPasses::plain) {
    plan_plain(planned, problem, schedule);
  } else {
    Geometry& geometry = planned.geometry.emplace(problem, level_of(target), config);
    const std::int64_t n = scheduled_n(problem.batch, plan, index);
    if (schedule == nullptr) {
      planned.forms = attached_forms(problem, geometry, target, config, n);
      plan_attached(planned);
    } else {
      if (geometry.correlation && schedule->workers() == 1) geometry.share_panels(problem, n, target.workers);
      plan_baked(planned, problem, *schedule, counters_in_front);
    }
  }
  if (problem.normalisation) planned.entry.passes.push_back(normalise_pass(planned.suffix));
  if (!planned.data) {
    planned.entry.workers = 0;
    planned.entry.arguments = {Argument::tables};
    return planned;
  }
  describe(*planned.data, planned.entry);
  if (planned.geometry) planned.entry.workspace.sums_of_one = problem.bytes_of_sums(problem.groups_of_sums());
  return planned;
}

}  // namespace

std::vector<PlannedEntry> planned_entries(const Spmm& problem, const Target& target, const Plan& plan,
                                          const std::vector<Schedule>& schedules) {
  const bool without_layout = attached(plan);
  const std::int64_t counters_in_front = without_layout ? 0 : counter_bytes(problem, plan, schedules);
  std::vector<PlannedEntry> entries;
  for (std::size_t i = 0; i < plan.size(); ++i)
    entries.push_back(
        planned_entry(problem, target, plan, i, without_layout ? nullptr : &schedules[i], counters_in_front));
  return entries;
}

}  // namespace sparsekiln::cpu

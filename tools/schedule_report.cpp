#include "tools/schedule_report.h"

#include <algorithm>
#include <cstdint>
#include <span>

namespace sparsekiln::tools {
namespace {

Json describe_item(const Schedule& schedule, const Item& item) {
  Json steps = Json::array();
  for (const Step& step : schedule.steps_of(item)) steps.push_back({step.input(), step.output() - item.tile});
  Json outputs = Json::array();
  for (std::int32_t tile = item.tile; tile < item.tile + schedule.rows; ++tile)
    for (const std::int32_t row : schedule.rows_of_tile(tile)) outputs.push_back(row);
  return {{"rows", outputs}, {"part", item.part}, {"parts", item.parts}, {"steps", steps}};
}

}  // namespace

Json describe_figures(const Schedule& schedule) {
  const ScheduleFigures found = figures(schedule);
  return {{"steps", found.steps},
          {"items", schedule.items.size()},
          {"workers", schedule.workers()},
          {"mean_steps", found.mean_cost},
          {"largest_steps", found.largest_cost},
          {"balance", found.balance()},
          {"loads_of_x", found.loads},
          {"one_row_loads_of_x", found.one_row_loads},
          {"loads_saved", found.saved()},
          {"filled_blocks", found.filled},
          {"steps_without_blocks", found.without_blocks},
          {"split_row_groups", schedule.counters},
          {"partials", schedule.partials}};
}

Json describe_schedule(const Schedule& schedule) {
  Json workers = Json::array();
  for (std::int32_t worker = 0; worker < schedule.workers(); ++worker) {
    Json items = Json::array();
    for (const Item& item : schedule.items_of(worker)) items.push_back(describe_item(schedule, item));
    workers.push_back({{"steps", schedule.cost(worker)}, {"items", items}});
  }
  Json result = describe_figures(schedule);
  result["by_worker"] = workers;
  return result;
}

Json describe_schedule(const BlockRuns& schedule) {
  std::int64_t largest = 0;
  std::int64_t all = 0;
  Json workers = Json::array();
  for (std::int32_t worker = 0; worker < schedule.workers(); ++worker) {
    Json runs = Json::array();
    std::int64_t cost = 0;
    for (const BlockRun& run :
         schedule.groups.empty() ? schedule.runs_of(worker) : std::span<const BlockRun>()) {
      runs.push_back({{"row", run.row}, {"first_block", run.first}, {"blocks", run.blocks}});
      cost += cost_of(run);
    }
    if (schedule.groups.empty()) {
      workers.push_back({{"cost", cost}, {"runs", runs}});
    } else {
      Json groups = Json::array();
      for (const BlockGroup& group : schedule.groups_of(worker)) {
        groups.push_back({{"outs", group.outs}, {"ins", group.ins}, {"pieces", group.pieces.size()}});
        cost += cost_of(group);
      }
      workers.push_back({{"cost", cost}, {"groups", groups}});
    }
    largest = std::max(largest, cost);
    all += cost;
  }
  const double mean = static_cast<double>(all) / schedule.workers();
  return {{schedule.groups.empty() ? "runs" : "groups", schedule.items()},
          {"workers", schedule.workers()},
          {"mean_cost", mean},
          {"largest_cost", largest},
          {"balance", all == 0 ? 1 : static_cast<double>(largest) / mean},
          {"by_worker", workers}};
}

}  // namespace sparsekiln::tools

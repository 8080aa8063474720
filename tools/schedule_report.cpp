#include "tools/schedule_report.h"

#include <algorithm>
#include <cstdint>

namespace sparsekiln::tools {
namespace {

Json describe_item(const Schedule& schedule, const Item& item) {
  Json inputs = Json::array();
  for (std::int32_t step = item.first_step; step < item.first_step + item.steps; ++step)
    inputs.push_back(
        schedule.steps[static_cast<std::size_t>(step)].operand[static_cast<std::size_t>(Role::input)]);
  return Json::array({item.output, item.part, item.parts, inputs});
}

}  // namespace

Json describe_schedule(const Schedule& schedule) {
  std::int64_t total = 0;
  std::int64_t largest = 0;
  Json workers = Json::array();
  for (std::int32_t worker = 0; worker < schedule.workers(); ++worker) {
    const std::int64_t cost = schedule.cost(worker);
    total += cost;
    largest = std::max(largest, cost);
    Json items = Json::array();
    const auto at = static_cast<std::size_t>(worker);
    for (std::int32_t item = schedule.worker_begin[at]; item < schedule.worker_begin[at + 1]; ++item)
      items.push_back(describe_item(schedule, schedule.items[static_cast<std::size_t>(item)]));
    workers.push_back({{"steps", cost}, {"items", items}});
  }
  const double mean = schedule.workers() == 0 ? 0 : static_cast<double>(total) / schedule.workers();
  return {{"steps", schedule.steps.size()},
          {"items", schedule.items.size()},
          {"workers", schedule.workers()},
          {"mean_steps", mean},
          {"largest_steps", largest},
          {"balance", mean == 0 ? 1 : static_cast<double>(largest) / mean},  // 1: no worker waits for another
          {"split_rows", schedule.counters},
          {"partials", schedule.partials},
          {"by_worker", workers}};
}

}  // namespace sparsekiln::tools

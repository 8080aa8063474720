#include "compiler/cuda/attach.h"

#include <variant>
#include <vector>

#include "compiler/cuda/emit.h"
#include "compiler/cuda/sddmm.h"
#include "compiler/cuda/tables.h"
#include "compiler/problem_kind.h"
#include "compiler/schedule.h"

namespace sparsekiln::cuda {
namespace {

TableImage image_of(const Tables& tables, std::int32_t counters) {
  return cuda::image_of(
      {bytes_of(tables.worker_begin), bytes_of(tables.steps), bytes_of(tables.more_blocks),
       bytes_of(tables.item_ends), bytes_of(tables.rows), bytes_of(tables.splits), bytes_of(tables.parts)},
      counters);
}

void attach(const Spmm& product, const Plan& plan, Binary& binary) {
  const std::vector<Schedule> schedules = make_schedules(product, binary.target, plan);
  const std::int64_t counters_in_front = counter_bytes(product, plan, schedules);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    Entry& entry = binary.entries[i];
    const Config& config = plan[i].config;
    entry.workers = schedules[i].workers();
    entry.tiles_in_flight = tiles_in_flight(config);
    entry.tensor_maps = tensor_maps_of(product, binary.target, config);
    entry.workspace = workspace_of(product, config, entry.threads, schedules[i], counters_in_front);
    entry.tables = image_of(make_tables(product, schedules[i], chunk_shape(product, binary.target, config)),
                            schedules[i].counters);
  }
}

void attach(const Sddmm& gradient, const Plan& plan, Binary& binary) {
  attach_runs(gradient, plan, make_schedules(gradient, binary.target, plan), binary);
}

}  // namespace

void attach_tables(const Problem& problem, const Plan& plan, Binary& binary) {
  std::visit([&](const auto& computed) { attach(computed, plan, binary); },
             computed_by(problem, binary.target));
}

}  // namespace sparsekiln::cuda

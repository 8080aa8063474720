#include "compiler/cuda/attach.h"

#include <bit>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/emit.h"
#include "compiler/cuda/tables.h"
#include "compiler/schedule.h"

namespace sparsekiln::cuda {
namespace {

/// As much of the problem as decides a schedule and its tables; the rest is in the code.
Problem problem_of(const Layout& layout, const OperandContract& operands) {
  Problem problem;
  static_cast<Computation&>(problem) = operands;
  problem.layout = layout;
  return problem;
}

TableImage image_of(const Tables& tables, std::int32_t counters) {
  static_assert(std::endian::native == std::endian::little);
  TableImage image;
  image.counters = counters;
  std::size_t array = 0;
  const auto add = [&](const auto& elements) {
    image.offsets[array++] = static_cast<std::int64_t>(image.bytes.size());
    const std::size_t begin = image.bytes.size();
    const std::size_t bytes = elements.size() * sizeof(elements[0]);
    constexpr std::size_t kUnit = TableImage::kAlignment;
    image.bytes.resize(begin + (bytes + kUnit - 1) / kUnit * kUnit);
    if (bytes != 0) std::memcpy(image.bytes.data() + begin, elements.data(), bytes);
  };
  image.bytes.reserve(static_cast<std::size_t>(tables.bytes()) +
                      TableImage::kArrays * static_cast<std::size_t>(TableImage::kAlignment));
  add(tables.worker_begin);
  add(tables.steps);
  add(tables.more_blocks);
  add(tables.item_ends);
  add(tables.rows);
  add(tables.splits);
  add(tables.parts);
  return image;
}

}  // namespace

Binary attach(const Layout& layout, const Binary& shared) {
  if (!attached(shared.plan))
    throw Error(ErrorKind::invalid_argument,
                fmt::format("a layout for plan '{}': it is part of the code; table=attached would work",
                            to_string(shared.plan)));
  if (shared.entries.size() != shared.plan.size())
    throw Error(ErrorKind::internal, fmt::format("a plan of {} ranges came with {} entries",
                                                 shared.plan.size(), shared.entries.size()));
  const Problem problem = problem_of(layout, shared.operands);
  validate(problem);
  const Spmm product(problem);
  const Plan& plan = shared.plan;
  std::vector<Schedule> schedules;
  for (std::size_t entry = 0; entry < plan.size(); ++entry)
    schedules.push_back(
        make_schedule(product, shared.target, plan[entry].config, scheduled_n(problem.batch, plan, entry)));

  Binary binary = shared;
  binary.operands.in_features = problem.in_features();
  binary.operands.out_features = problem.out_features();
  binary.operands.blocks = layout.blocks();
  const std::int64_t counters_in_front = counter_bytes(plan, schedules);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    Entry& entry = binary.entries[i];
    const Config& config = plan[i].config;
    entry.workers = schedules[i].workers();
    entry.workspace = workspace_of(product, config, schedules[i], counters_in_front);
    entry.tables = image_of(make_tables(schedules[i], chunk_shape(product, shared.target, config)),
                            schedules[i].counters);
  }
  return binary;
}

}  // namespace sparsekiln::cuda

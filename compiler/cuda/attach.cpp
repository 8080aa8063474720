#include "compiler/cuda/attach.h"

#include <bit>
#include <cstring>
#include <vector>

#include "compiler/cuda/emit.h"
#include "compiler/cuda/tables.h"
#include "compiler/problem_kind.h"
#include "compiler/schedule.h"

namespace sparsekiln::cuda {
namespace {

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

void attach_tables(const Problem& problem, const Plan& plan, Binary& binary) {
  const Spmm product = on_rows(Spmm(problem));
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

}  // namespace sparsekiln::cuda

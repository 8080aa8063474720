#include "compiler/cpu/emit.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/cpu/level.h"
#include "compiler/cpu/module.h"
#include "compiler/cpu/passes.h"
#include "compiler/cpu/vector_ir.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::int32_t kMostTokens = 128;  ///< of a batch tile: its sums live on the stack and in L1

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

/// A launch chooses its entry by n, and all of them read the same weight.
void refuse_two_orders(const Geometry& one, const Geometry& other, const Plan& plan) {
  if (one.order != other.order ||
      (one.order == WeightOrder::packed && one.tile.outputs != other.tile.outputs))
    refuse(
        fmt::format("plan '{}': its configs read the weight in different orders; the same packed and, where "
                    "it is 1, register tiles of the same outputs (tile_out) would work",
                    to_string(plan)));
}

/// Whole items, `most` at most, whose steps are taken in the order of W; a part of a row is a group by
/// itself.
struct Groups {
  std::vector<std::int32_t> begin;   ///< of each worker, and the end
  std::vector<std::int32_t> fields;  ///< kGroupFields each
  std::vector<std::int32_t> slots;   ///< of each step
  std::vector<Step> steps;           ///< those of the schedule, in their new order
  std::vector<Item> items;           ///< likewise; only of a part is first_step right
};

Groups group(const Schedule& schedule, std::int32_t most) {
  Groups groups;
  groups.items = schedule.items;
  const auto whole = [&](std::int32_t item) {
    return groups.items[static_cast<std::size_t>(item)].parts == 1;
  };
  std::vector<std::pair<std::int32_t, Step>> steps;  // slot, step
  for (std::int32_t worker = 0; worker < schedule.workers(); ++worker) {
    groups.begin.push_back(static_cast<std::int32_t>(groups.fields.size()) / kGroupFields);
    const std::int32_t behind = schedule.worker_begin[static_cast<std::size_t>(worker) + 1];
    std::int32_t count = 0;
    for (std::int32_t first = schedule.worker_begin[static_cast<std::size_t>(worker)]; first < behind;
         first += count) {
      count = 1;
      if (whole(first))
        while (count < most && first + count < behind && whole(first + count)) ++count;
      steps.clear();
      for (std::int32_t slot = 0; slot < count; ++slot)
        for (const Step& step : schedule.steps_of(schedule.items[static_cast<std::size_t>(first + slot)]))
          steps.emplace_back(slot, step);
      std::sort(steps.begin(), steps.end(),
                [](const auto& a, const auto& b) { return a.second.block[0] < b.second.block[0]; });
      groups.items[static_cast<std::size_t>(first)].first_step =
          static_cast<std::int32_t>(groups.steps.size());
      groups.fields.insert(groups.fields.end(), {first, count, static_cast<std::int32_t>(groups.steps.size()),
                                                 static_cast<std::int32_t>(steps.size())});
      for (const auto& [slot, step] : steps) {
        groups.slots.push_back(slot);
        groups.steps.push_back(step);
      }
    }
  }
  groups.begin.push_back(static_cast<std::int32_t>(groups.fields.size()) / kGroupFields);
  return groups;
}

Tables make_tables(EmittedModule& module, const std::string& suffix, const Schedule& schedule,
                   const Geometry& geometry) {
  Tables tables{};
  std::vector<Step> steps = schedule.steps;
  std::vector<Item> scheduled = schedule.items;
  if (geometry.group_items > 1) {
    Groups groups = group(schedule, geometry.group_items);
    tables.group_begin = module.table("group_begin" + suffix, groups.begin);
    tables.groups = module.table("groups" + suffix, groups.fields);
    tables.slots = module.table("slots" + suffix, groups.slots);
    steps = std::move(groups.steps);
    scheduled = std::move(groups.items);
  }
  std::vector<std::int32_t> items;
  for (const Item& item : scheduled)
    items.insert(items.end(),
                 {item.tile, item.first_step, item.steps, item.part, item.parts, item.partial, item.counter});
  std::vector<std::int32_t> columns;
  std::vector<std::int32_t> blocks;
  bool numbered_alike = true;  // steps and blocks, as where rows follow one another
  for (const Step& step : steps) {
    numbered_alike = numbered_alike && step.block[0] == static_cast<std::int32_t>(blocks.size());
    columns.push_back(step.input());
    blocks.push_back(step.block[0]);
  }
  if (!numbered_alike && geometry.order != WeightOrder::columns)
    throw Error(ErrorKind::internal, "blocks are looked up by columns only; else they are taken in turn");
  columns.insert(columns.end(), static_cast<std::size_t>(kColumnsBehind), 0);
  blocks.insert(blocks.end(), static_cast<std::size_t>(kColumnsBehind), 0);
  tables.worker_begin = module.table("worker_begin" + suffix, schedule.worker_begin);
  tables.items = module.table("items" + suffix, items);
  tables.columns = module.table("columns" + suffix, columns);
  tables.blocks = numbered_alike ? nullptr : module.table("blocks" + suffix, blocks);
  return tables;
}

std::string heading(const Spmm& problem, const Target& target, const Plan& plan) {
  const Layout& weight = problem.weight;
  return fmt::format(
      "; Sparsekiln: {}, y[n, {}] = x[n, {}] · B^T, W of {} blocks of {} in {} x {} (layout {})\n"
      "; {} -> {}, accumulated in f32; batch {}; target {}\n"
      "; plan {}\n"
      "; call = LaunchOperands (compiler/launch_operands.h); items = {{ output, first_step, steps, part, "
      "parts, partial, counter }}\n",
      name(problem.operation), problem.out_features(), problem.in_features(), weight.blocks(),
      to_string(problem.weight_block()), weight.rows(), weight.cols(), weight.digest().hex(),
      name(problem.dtype), name(problem.out_dtype), to_string(problem.batch), target.to_string(),
      to_string(plan));
}

}  // namespace

void validate(const Spmm& problem, const Target& target, const Config& config) {
  validate_config(problem, target, config);
  const Level& level = level_of(target);
  const std::string given = to_string(config);
  if (problem.by_columns() && config.packed)
    refuse(
        fmt::format("{} on the cpu target reads W as it lies; packed=0 would work", name(problem.operation)));
  const bool thin = config.tile_n == 1 || config.tile_n == 2 || config.tile_n == 4;
  if (!thin &&
      (config.tile_n < level.lanes || config.tile_n > kMostTokens || config.tile_n % level.lanes != 0))
    refuse(fmt::format("config '{}': on {} tile_n is 1, 2, 4 or a multiple of {} up to {}", given, level.name,
                       level.lanes, kMostTokens));
  if (config.tile_out < 0 || config.tile_out > problem.block.out)
    refuse(fmt::format("config '{}': tile_out is 0 (automatic) to the block's {} outputs", given,
                       problem.block.out));
  const RegisterTile tile = register_tile(level, problem.block.out, problem.dtype, config);
  const std::int32_t tokens =
      tile.tokens.empty() ? 1 : *std::max_element(tile.tokens.begin(), tile.tokens.end());
  const std::int32_t sums = (tile.tokens.empty() ? tile.largest() : tokens) * tile.vectors;
  if (!thin && sums > level.most_sums)
    refuse(
        fmt::format("config '{}': its register tile has {} sums, and {} holds {}; a smaller tile_out would "
                    "work",
                    given, sums, level.name, level.most_sums));
  if (config.rows != 1 || config.merge != 1)
    refuse(fmt::format("config '{}': the cpu target computes row by row; rows=1 merge=1 would work", given));
}

Source emit(const Spmm& problem, const Target& target, const Plan& plan,
            const std::vector<Schedule>& schedules) {
  const Level& level = level_of(target);
  EmittedModule module(target);
  VectorIr& ir = module.ir();
  Source source;
  const std::int64_t counters_in_front = counter_bytes(plan, schedules);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const Geometry geometry(problem, level, plan[i].config, schedules[i], counters_in_front);
    refuse_two_orders(Geometry(problem, level, plan[0].config, schedules[0], counters_in_front), geometry,
                      plan);
    const std::string suffix = plan.size() == 1 ? "" : fmt::format("_{}", plan[i].up_to);
    Entry entry;
    entry.up_to = plan[i].up_to;
    const std::string pack = "pack" + suffix;
    const std::string product = "product" + suffix;
    entry.passes = {product};
    if (!geometry.thin && !geometry.private_panel()) entry.passes = {pack, product};
    entry.workers = schedules[i].workers();
    entry.tile_n = geometry.tile_n;
    entry.workspace = geometry.workspace;
    const Tables tables = make_tables(module, suffix, schedules[i], geometry);
    if (geometry.thin) {
      const auto emit_thin = geometry.axis == Axis::k ? emit_thin_row_pass : emit_thin_column_pass;
      emit_thin(ir, product, geometry, tables);
    } else {
      const auto emit_pass = geometry.axis == Axis::output ? emit_output_pass : emit_token_pass;
      emit_pack_pass(ir, pack, geometry);
      emit_pass(ir, product, geometry, tables, geometry.private_panel() ? pack : "");
    }
    source.entries.push_back(std::move(entry));
  }
  source.text = module.text(heading(problem, target, plan));
  return source;
}

}  // namespace sparsekiln::cpu

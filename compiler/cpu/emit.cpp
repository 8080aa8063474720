#include "compiler/cpu/emit.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/cpu/layout_ir.h"
#include "compiler/cpu/level.h"
#include "compiler/cpu/module.h"
#include "compiler/cpu/normalise_pass.h"
#include "compiler/cpu/passes.h"
#include "compiler/cpu/plain_spmm.h"
#include "compiler/cpu/planned_entry.h"
#include "compiler/cpu/product_data.h"
#include "compiler/cpu/vector_ir.h"
#include "compiler/element.h"
#include "compiler/plan.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::int32_t kMostBatchRows = 128;  ///< of a batch tile: its sums are on the stack and in L1

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

/// `pack`: as of emit_batch_row_pass.
void emit_product(VectorIr& ir, std::string_view name, const Geometry& geometry, LayoutIr& layout,
                  std::string_view pack) {
  if (geometry.small_batch)
    return (geometry.axis == Axis::k ? emit_small_batch_row_pass : emit_small_batch_column_pass)(
        ir, name, geometry, layout, pack);
  (geometry.axis == Axis::output ? emit_output_pass : emit_batch_row_pass)(ir, name, geometry, layout, pack);
}

/// Code for each of the forms that layouts choose from, none of which has several workers.
void emit_forms(EmittedModule& module, const std::string& suffix, const std::vector<Geometry>& forms) {
  for (const Geometry& form : forms) {
    LayoutIr layout(module);
    const std::string own = form_suffix(form, suffix);
    emit_pack_pass(module.ir(), "pack" + own, form, layout);
    emit_product(module.ir(), "product" + own, form, layout, "pack" + own);
  }
}

/// Whether the only worker packs x is known when a layout is attached: a separate pass then calls the others.
void emit_private_passes(EmittedModule& module, const PlannedEntry& planned) {
  VectorIr& v = module.ir();
  auto* all = v.begin_pass(attached_passes(*planned.geometry, planned.suffix, 1).front());
  for (const std::string& pass : attached_passes(*planned.geometry, planned.suffix, 0))
    v.ir.CreateCall(v.module.getFunction(pass), {all->getArg(0), all->getArg(1), all->getArg(2)});
  v.end_pass();
}

void emit_passes(EmittedModule& module, const PlannedEntry& planned, LayoutIr& layout) {
  const Geometry& geometry = *planned.geometry;
  const std::string pack = "pack" + planned.suffix;
  const bool private_panel = planned.data && planned.entry.workers == 1;
  if (geometry.packs_x) emit_pack_pass(module.ir(), pack, geometry, layout);
  emit_product(module.ir(), "product" + planned.suffix, geometry, layout,
               geometry.packs_x && private_panel ? pack : "");
}

void emit_entry(EmittedModule& module, const Spmm& problem, const Config& config,
                const PlannedEntry& planned) {
  if (!planned.forms.empty()) return emit_forms(module, planned.suffix, planned.forms);
  LayoutIr layout = planned.data ? LayoutIr(module, planned.geometry ? kProductTableNames : kPlainTableNames,
                                            planned.suffix, *planned.data)
                                 : LayoutIr(module);
  if (planned.geometry)
    emit_passes(module, planned, layout);
  else
    emit_plain_spmm(module.ir(), planned.entry.passes.front(), problem, config, layout);
  if (problem.normalisation)
    emit_normalise_pass(module.ir(), planned.entry.passes.back(), problem, config.tile_n, layout);
  if (!planned.data && planned.geometry && planned.geometry->packs_x) emit_private_passes(module, planned);
}

bool plain(const Spmm& problem) { return element(problem.dtype).cpu == CpuPasses::plain; }

std::string heading(const Spmm& problem, const Target& target, const Plan& plan) {
  const Layout& weight = problem.weight;
  const std::string computed =
      attached(plan) ? fmt::format("y = x · B^T, W of blocks of {}, any layout of them",
                                   to_string(problem.weight_block()))
                     : fmt::format("y[n, {}] = x[n, {}] · B^T, W of {} blocks of {} in {} x {} (layout {})",
                                   problem.out_features(), problem.in_features(), weight.blocks(),
                                   to_string(problem.weight_block()), weight.rows(), weight.cols(),
                                   weight.digest().hex());
  return fmt::format(
      "; Sparsekiln: {}, {}\n"
      "; {} -> {}, accumulated in {}; batch {}; target {}\n"
      "; plan {}\n"
      "; call = LaunchOperands (compiler/launch_operands.h); items = {{ output, first_step, steps, part, "
      "parts, partial, counter }}\n",
      name(problem.operation), computed, name(problem.dtype), name(problem.out_dtype),
      name(problem.sum_type()), to_string(problem.batch), target.to_string(), to_string(plan));
}

}  // namespace

void validate(const Spmm& problem, const Target& target, const Config& config) {
  if (problem.channels_first() && problem.epilogue.edge_bias)
    refuse(
        "a convolution with feature-major activations and an edge bias for a cpu target: batch-major ones, "
        "channels-last, would work");
  validate_config(problem, target, config);
  if (plain(problem)) return validate_plain(problem, config);
  const Level& level = level_of(target);
  const std::string given = to_string(config);
  if (problem.by_columns() && config.packed)
    refuse(fmt::format("{}{} on the cpu target reads W unpacked; packed=0 would work",
                       name(problem.operation),
                       problem.convolution.transposed ? " of a transposed convolution" : ""));
  const bool small_batch = config.tile_n == 1 || config.tile_n == 2 || config.tile_n == 4;
  if (!small_batch &&
      (config.tile_n < level.lanes || config.tile_n > kMostBatchRows || config.tile_n % level.lanes != 0))
    refuse(fmt::format("config '{}': on {} tile_n is 1, 2, 4 or a multiple of {} up to {}", given, level.name,
                       level.lanes, kMostBatchRows));
  if (config.tile_out < 0 || config.tile_out > problem.block.out)
    refuse(fmt::format("config '{}': tile_out is 0 (automatic) to the block's {} outputs", given,
                       problem.block.out));
  const RegisterTile tile = register_tile(level, problem.block.out, problem.dtype, config);
  const std::int32_t batch_rows =
      tile.batch_rows.empty() ? 1 : *std::max_element(tile.batch_rows.begin(), tile.batch_rows.end());
  const std::int32_t sums = (tile.batch_rows.empty() ? tile.largest() : batch_rows) * tile.vectors;
  if (!small_batch && sums > level.most_sums())
    refuse(
        fmt::format("config '{}': its register tile has {} sums, and {} holds {}; a smaller tile_out would "
                    "work",
                    given, sums, level.name, level.most_sums()));
  if (problem.correlation && small_batch)
    refuse(
        fmt::format("config '{}': a convolution is computed in tiles of whole vectors; tile_n={} would work",
                    given, level.lanes));
  if (config.rows != 1 || config.merge != 1)
    refuse(fmt::format("config '{}': the cpu target computes row by row; rows=1 merge=1 would work", given));
}

Tables locate_tables(LayoutIr& layout, const Geometry& geometry) {
  Tables tables;
  tables.worker_begin = layout.table(kWorkerBegin);
  tables.items = layout.table(kItems);
  tables.columns = layout.table(kColumns);
  const bool attached_blocks = layout.attached() && geometry.order == WeightOrder::columns;
  if (attached_blocks || layout.has(kBlocks)) tables.blocks = layout.table(kBlocks);
  if (geometry.group_items == 1) return tables;
  tables.group_begin = layout.table(kGroupBegin);
  tables.groups = layout.table(kGroups);
  tables.slots = layout.table(kSlots);
  return tables;
}

Source emit(const Spmm& problem, const Target& target, const Plan& plan,
            const std::vector<Schedule>& schedules) {
  EmittedModule module(target);
  Source source;
  std::vector<PlannedEntry> entries = planned_entries(problem, target, plan, schedules);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (entries[i].geometry) refuse_two_orders(*entries.front().geometry, *entries[i].geometry, plan);
    emit_entry(module, problem, plan[i].config, entries[i]);
    source.entries.push_back(std::move(entries[i].entry));
  }
  source.text = module.text(heading(problem, target, plan));
  return source;
}

Recipe recipe_of(const Spmm& problem, const Target& target, const Plan& plan,
                 const std::vector<Schedule>& schedules) {
  Recipe recipe;
  for (PlannedEntry& planned : planned_entries(problem, target, plan, schedules))
    recipe.entries.push_back(std::move(planned.entry));
  return recipe;
}

}  // namespace sparsekiln::cpu

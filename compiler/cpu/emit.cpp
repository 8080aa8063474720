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

/// Rows that each of a batch is computed in: points of whole tiles, which end with an image.
std::int32_t rows_of_one(const Correlation* lattice, std::int32_t tile_n) {
  return lattice == nullptr ? 1 : static_cast<std::int32_t>(lattice->tiles(tile_n) * tile_n);
}

/// Adds the pass that follows the product, where there is one.
void emit_normalisation(EmittedModule& module, const std::string& suffix, const Spmm& problem,
                        std::int32_t tile_n, LayoutIr& layout, Entry& entry) {
  if (!problem.normalisation) return;
  entry.passes.push_back(normalise_pass(suffix));
  emit_normalise_pass(module.ir(), entry.passes.back(), problem, tile_n, layout);
}

Entry emit_baked(EmittedModule& module, const std::string& suffix, const Spmm& problem,
                 const Geometry& geometry, LayoutData data) {
  const std::string pack = "pack" + suffix;
  const std::string product = "product" + suffix;
  // No other worker shares the packed x of a batch tile: its only one packs it, and no pass waits for
  // another.
  const bool private_panel = data[LayoutNumber::workers] == 1;
  Entry entry;
  entry.passes = {product};
  if (geometry.packs_x && !private_panel) entry.passes = {pack, product};
  entry.tile_n = geometry.tile_n;
  describe_jobs(geometry, entry);
  describe(data, entry);
  entry.workspace.sums_of_one = problem.bytes_of_sums(problem.groups_of_sums());
  drop_known_blocks(data);
  LayoutIr layout(module, kProductTableNames, suffix, std::move(data));
  if (geometry.packs_x) emit_pack_pass(module.ir(), pack, geometry, layout);
  emit_product(module.ir(), product, geometry, layout, geometry.packs_x && private_panel ? pack : "");
  emit_normalisation(module, suffix, problem, geometry.tile_n, layout, entry);
  return entry;
}

Entry attached_entry(std::vector<std::string> passes, std::int32_t tile_n) {
  Entry entry;
  entry.passes = std::move(passes);
  entry.workers = 0;
  entry.tile_n = tile_n;
  entry.arguments = {Argument::tables};
  return entry;
}

/// Code for each of the forms that layouts choose from, none of which has several workers.
Entry emit_attached(EmittedModule& module, const std::string& suffix, const std::vector<Geometry>& forms) {
  for (const Geometry& form : forms) {
    LayoutIr layout(module);
    const std::string own = form_suffix(form, suffix);
    emit_pack_pass(module.ir(), "pack" + own, form, layout);
    emit_product(module.ir(), "product" + own, form, layout, "pack" + own);
  }
  Entry entry = attached_entry({"product" + form_suffix(forms.back(), suffix)}, 0);
  describe_jobs(forms.back(), entry);
  return entry;
}

/// Whether the only worker packs x is known when a layout is attached: a separate pass then calls the two.
Entry emit_attached(EmittedModule& module, const std::string& suffix, const Spmm& problem,
                    const Geometry& geometry) {
  const std::vector<std::string> passes = attached_passes(geometry, suffix, 0);
  Entry entry = attached_entry(passes, geometry.tile_n);
  describe_jobs(geometry, entry);
  LayoutIr layout(module);
  VectorIr& v = module.ir();
  if (geometry.packs_x) emit_pack_pass(v, passes.front(), geometry, layout);
  emit_product(v, passes.back(), geometry, layout, "");
  emit_normalisation(module, suffix, problem, geometry.tile_n, layout, entry);
  if (!geometry.packs_x) return entry;
  auto* both = v.begin_pass(attached_passes(geometry, suffix, 1).front());
  for (const std::string& pass : passes)
    v.ir.CreateCall(v.module.getFunction(pass), {both->getArg(0), both->getArg(1), both->getArg(2)});
  v.end_pass();
  return entry;
}

bool plain(const Spmm& problem) { return element(problem.dtype).cpu == CpuPasses::plain; }

/// `schedule`: null where the layout is attached.
Entry emit_plain(EmittedModule& module, const std::string& suffix, const Spmm& problem, const Config& config,
                 const Schedule* schedule) {
  Entry entry;
  if (schedule == nullptr) {
    entry = attached_entry({"product" + suffix}, config.tile_n);
    entry.rows_of_one = rows_of_one(problem.correlation.get(), config.tile_n);
    LayoutIr layout(module);
    emit_plain_spmm(module.ir(), entry.passes.front(), problem, config, layout);
    emit_normalisation(module, suffix, problem, config.tile_n, layout, entry);
    return entry;
  }
  entry.passes = {"product" + suffix};
  entry.tile_n = config.tile_n;
  entry.rows_of_one = rows_of_one(problem.correlation.get(), config.tile_n);
  LayoutData data = plain_spmm_data(problem, *schedule);
  describe(data, entry);
  LayoutIr layout(module, kPlainTableNames, suffix, std::move(data));
  emit_plain_spmm(module.ir(), entry.passes.front(), problem, config, layout);
  emit_normalisation(module, suffix, problem, config.tile_n, layout, entry);
  return entry;
}

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
  const Level& level = level_of(target);
  const bool without_layout = attached(plan);
  EmittedModule module(target);
  Source source;
  const std::int64_t counters_in_front = without_layout ? 0 : counter_bytes(problem, plan, schedules);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (plain(problem)) {
      source.entries.push_back(emit_plain(module, entry_suffix(plan, i), problem, plan[i].config,
                                          without_layout ? nullptr : &schedules[i]));
      source.entries.back().up_to = plan[i].up_to;
      continue;
    }
    Geometry geometry(problem, level, plan[i].config);
    const std::int64_t n = scheduled_n(problem.batch, plan, i);
    refuse_two_orders(Geometry(problem, level, plan[0].config), geometry, plan);
    const std::string suffix = entry_suffix(plan, i);
    if (without_layout) {
      const std::vector<Geometry> forms = attached_forms(problem, geometry, target, plan[i].config, n);
      source.entries.push_back(forms.empty() ? emit_attached(module, suffix, problem, geometry)
                                             : emit_attached(module, suffix, forms));
    } else {
      if (geometry.correlation && schedules[i].workers() == 1)
        geometry.share_panels(problem, n, target.workers);
      source.entries.push_back(emit_baked(module, suffix, problem, geometry,
                                          product_data(problem, geometry, schedules[i], counters_in_front)));
    }
    source.entries.back().up_to = plan[i].up_to;
  }
  source.text = module.text(heading(problem, target, plan));
  return source;
}

}  // namespace sparsekiln::cpu

#include "compiler/cpu/weight_gradient.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/cpu/level.h"
#include "compiler/cpu/module.h"
#include "compiler/cpu/weight_gradient_geometry.h"
#include "compiler/cpu/weight_gradient_panels.h"
#include "compiler/cpu/weight_gradient_pass.h"

namespace sparsekiln::cpu {
namespace {

/// Of Config::tile_n: what a worker has of the batch on its stack, and in L1.
constexpr std::int32_t kMostChunk = 256;
/// Of Config::rows: runs of each length have code of their own.
constexpr std::int32_t kMostRunBlocks = 4;

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

/// What a worker computes without regard to the lengths of runs.
struct Stretches {
  std::vector<std::int32_t> fields;  ///< kStretchFields each
  std::vector<std::int32_t> worker_begin;
};

Stretches stretches_of(const BlockRuns& schedule) {
  Stretches result;
  for (std::int32_t worker = 0; worker < schedule.workers(); ++worker) {
    result.worker_begin.push_back(static_cast<std::int32_t>(result.fields.size()) / kStretchFields);
    const BlockRun* before = nullptr;
    for (const BlockRun& run : schedule.runs_of(worker)) {
      const std::int32_t behind = run.first + run.blocks;
      if (before != nullptr && before->row == run.row && before->first + before->blocks == run.first)
        result.fields.back() = behind;
      else
        result.fields.insert(result.fields.end(), {run.row, run.first, behind});
      before = &run;
    }
  }
  result.worker_begin.push_back(static_cast<std::int32_t>(result.fields.size()) / kStretchFields);
  return result;
}

GradientTables make_tables(EmittedModule& module, const std::string& suffix, const Sddmm& gradient,
                           const BlockRuns& schedule) {
  std::vector<std::int32_t> runs;
  for (const BlockRun& run : schedule.runs)
    runs.insert(runs.end(), {run.row, run.first, run.blocks, run.first_of_row ? 1 : 0});
  const auto col = gradient.layout.col();
  std::vector<std::int32_t> columns(col.begin(), col.end());
  // What a worker looks ahead to, behind the last of all.
  runs.insert(runs.end(), kRunFields, 0);
  columns.insert(columns.end(), kMostRunBlocks, 0);
  const Stretches stretches = stretches_of(schedule);
  return {module.table("worker_begin" + suffix, schedule.worker_begin), module.table("runs" + suffix, runs),
          module.table("columns" + suffix, columns), module.table("stretches" + suffix, stretches.fields),
          module.table("stretch_begin" + suffix, stretches.worker_begin)};
}

std::string heading(const Sddmm& gradient, const Target& target, const Plan& plan) {
  const Layout& layout = gradient.layout;
  return fmt::format(
      "; Sparsekiln: {}, dw of {} blocks of {} in {} x {} (layout {}), x[n, {}], dy[n, {}]\n"
      "; {} -> {}, accumulated in f32; batch {}; target {}\n"
      "; plan {}\n"
      "; runs = {{ row, first_block, blocks, first_of_row }}, stretches = {{ row, first_block, behind }}\n",
      name(gradient.operation), layout.blocks(), to_string(gradient.block), layout.rows(), layout.cols(),
      layout.digest().hex(), gradient.in_features(), gradient.out_features(), name(gradient.dtype),
      name(gradient.out_dtype), to_string(gradient.batch), target.to_string(), to_string(plan));
}

}  // namespace

void validate(const Sddmm& gradient, const Target& target, const Config& config) {
  validate_config(gradient, target, config);
  const std::string given = to_string(config);
  if (config.tile_n < 1 || config.tile_n > kMostChunk)
    refuse(fmt::format("config '{}': tile_n is 1 to {} batch entries", given, kMostChunk));
  if (config.stages != 1 && config.stages != 2)
    refuse(fmt::format(
        "config '{}': stages is 2 where x and dy are packed for all workers beforehand, else 1", given));
  if (config.rows < 1 || config.rows > kMostRunBlocks ||
      (config.rows > 1 && config.rows * gradient.block.in > kMostPanelWidth))
    refuse(fmt::format("config '{}': rows is 1, or up to {} blocks of {} features in all", given,
                       kMostRunBlocks, kMostPanelWidth));
  if (config.tile_out != 0 || config.merge != 1 || config.packed)
    refuse(fmt::format("config '{}': {} has no such choice; tile_out=0 merge=1 packed=0 would work", given,
                       name(gradient.operation)));
}

Source emit(const Sddmm& gradient, const Target& target, const Plan& plan,
            const std::vector<BlockRuns>& schedules) {
  const Level& level = level_of(target);
  EmittedModule module(target);
  Source source;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const GradientGeometry geometry(gradient, level, plan[i].config, plan[i].up_to, schedules[i].workers());
    const std::string suffix = plan.size() == 1 ? "" : fmt::format("_{}", plan[i].up_to);
    Entry entry;
    entry.up_to = plan[i].up_to;
    entry.workers = schedules[i].workers();
    entry.tile_n = 0;
    entry.workspace = geometry.workspace;
    if (geometry.packed) {
      entry.passes.push_back("pack" + suffix);
      emit_panel_pass(module.ir(), entry.passes.back(), geometry);
    }
    entry.passes.push_back("weight_gradient" + suffix);
    const GradientTables tables = make_tables(module, suffix, gradient, schedules[i]);
    WeightGradientPass(module.ir(), geometry, tables).emit(entry.passes.back());
    source.entries.push_back(std::move(entry));
  }
  source.text = module.text(heading(gradient, target, plan));
  return source;
}

}  // namespace sparsekiln::cpu

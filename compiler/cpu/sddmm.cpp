#include "compiler/cpu/sddmm.h"

#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/cpu/layout_ir.h"
#include "compiler/cpu/module.h"
#include "compiler/cpu/plain_sddmm.h"
#include "compiler/cpu/sddmm_geometry.h"
#include "compiler/cpu/sddmm_panels.h"
#include "compiler/cpu/sddmm_pass.h"
#include "compiler/element.h"
#include "compiler/plan.h"

namespace sparsekiln::cpu {
namespace {

/// The largest Config::tile_n: the batch rows that a worker has on its stack, and in L1.
constexpr std::int32_t kMostChunk = 256;

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

bool plain(const Sddmm& gradient) { return element(gradient.dtype).cpu == CpuPasses::plain; }

void emit_passes(EmittedModule& module, const Sddmm& gradient, const Config& config,
                 const SddmmGeometry& geometry, LayoutIr& layout, const Entry& entry) {
  if (plain(gradient)) return emit_plain_sddmm(module.ir(), entry.passes.back(), gradient, config, layout);
  std::size_t next = 0;
  if (geometry.packed) emit_panel_pass(module.ir(), entry.passes[next++], geometry, layout);
  SddmmPass(module.ir(), geometry, layout).emit(entry.passes[next++]);
  if (geometry.sums_block_scales_of_taps)
    SddmmPass(module.ir(), geometry, layout).emit_block_scales_of_taps(entry.passes[next]);
}

/// An entry, and the layout's part of its code: null where that is attached.
struct Planned {
  Entry entry;
  std::optional<LayoutData> data;
};

Planned planned_entry(const Sddmm& gradient, const SddmmGeometry& geometry, const Plan& plan,
                      std::size_t index, const std::vector<BlockRuns>& schedules) {
  const std::string suffix = entry_suffix(plan, index);
  Planned planned;
  Entry& entry = planned.entry;
  entry.up_to = plan[index].up_to;
  entry.tile_n = 0;
  if (geometry.packed) entry.passes.push_back("pack" + suffix);
  entry.passes.push_back("weight_gradient" + suffix);
  if (geometry.sums_block_scales_of_taps) entry.passes.push_back("gate_gradient" + suffix);
  if (attached(plan)) {
    entry.workers = 0;
    entry.arguments = {Argument::tables};
  } else {
    planned.data = sddmm_data(gradient, geometry, schedules[index]);
    describe(*planned.data, entry);
  }
  return planned;
}

std::string heading(const Sddmm& gradient, const Target& target, const Plan& plan) {
  const Layout& layout = gradient.layout;
  const std::string computed =
      attached(plan) ? fmt::format("dw of blocks of {}, any layout of them", to_string(gradient.block))
                     : fmt::format("dw of {} blocks of {} in {} x {} (layout {}), x[n, {}], dy[n, {}]",
                                   layout.blocks(), to_string(gradient.block), layout.rows(), layout.cols(),
                                   layout.digest().hex(), gradient.in_features(), gradient.out_features());
  return fmt::format(
      "; Sparsekiln: {}, {}\n"
      "; {} -> {}, accumulated in {}; batch {}; target {}\n"
      "; plan {}\n"
      "; runs = {{ row, first_block, blocks, first_of_row }}, stretches = {{ row, first_block, end }}\n",
      name(gradient.operation), computed, name(gradient.dtype), name(gradient.out_dtype),
      name(gradient.sum_type()), to_string(gradient.batch), target.to_string(), to_string(plan));
}

}  // namespace

void validate(const Sddmm& gradient, const Target& target, const Config& config) {
  validate_config(gradient, target, config);
  const std::string given = to_string(config);
  if (config.tile_n < 1 || config.tile_n > kMostChunk)
    refuse(fmt::format("config '{}': tile_n is 1 to {} batch rows", given, kMostChunk));
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
  if (gradient.correlation && !plain(gradient) && config.stages != 2)
    refuse(fmt::format("config '{}': x of a convolution is packed beforehand; stages=2 would work", given));
  if (plain(gradient)) validate_plain(gradient, config);
}

Source emit(const Sddmm& gradient, const Target& target, const Plan& plan,
            const std::vector<BlockRuns>& schedules) {
  const Level& level = level_of(target);
  EmittedModule module(target);
  Source source;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const SddmmGeometry geometry(gradient, level, plan[i].config);
    Planned planned = planned_entry(gradient, geometry, plan, i, schedules);
    LayoutIr layout = planned.data ? LayoutIr(module, kSddmmTableNames, entry_suffix(plan, i), *planned.data)
                                   : LayoutIr(module);
    emit_passes(module, gradient, plan[i].config, geometry, layout, planned.entry);
    source.entries.push_back(std::move(planned.entry));
  }
  source.text = module.text(heading(gradient, target, plan));
  return source;
}

Recipe recipe_of(const Sddmm& gradient, const Target& target, const Plan& plan,
                 const std::vector<BlockRuns>& schedules) {
  Recipe recipe;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const SddmmGeometry geometry(gradient, level_of(target), plan[i].config);
    recipe.entries.push_back(planned_entry(gradient, geometry, plan, i, schedules).entry);
  }
  return recipe;
}

}  // namespace sparsekiln::cpu

#include "compiler/cuda/sddmm.h"

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/batch_slices.h"
#include "compiler/cuda/families.h"
#include "compiler/cuda/images.h"
#include "compiler/cuda/lattice.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/sddmm_tables.h"
#include "compiler/cuda/table_text.h"
#include "compiler/cuda/tables.h"
#include "compiler/cuda/template_text.h"
#include "compiler/cuda/tensor_map_text.h"
#include "compiler/cuda/types.h"
#include "compiler/operand_table.h"
#include "compiler/plan.h"

namespace sparsekiln::cuda {
namespace {

void write_header(std::string& text, const Sddmm& gradient, const Target& target, const Plan& plan) {
  const Layout& layout = gradient.layout;
  const std::string shape =
      attached(plan) ? fmt::format("any, W of blocks of {} (out x in)", to_string(gradient.block))
                     : fmt::format(
                           "W[{}, {}] features, {} x {} blocks of {} (out x in), {} present, density {:.4f}\n"
                           "//   digest  {}",
                           gradient.row_features(), gradient.col_features(), layout.rows(), layout.cols(),
                           to_string(gradient.block), layout.blocks(), layout.statistics().density,
                           layout.digest().hex());
  text += fmt::format(
      "// Sparsekiln: {} of a block-sparse {}, dw[out, in] = dy[n, out]^T * x[n, in] on its "
      "blocks\n"
      "//   layout  {}\n"
      "//   batch   {}\n"
      "//   types   {} to {}, math {}, {}\n"
      "//   target  {}\n",
      name(gradient.operation), gradient.correlation ? "convolution" : "linear layer", shape,
      to_string(gradient.batch), name(gradient.dtype), name(gradient.out_dtype), name(gradient.math),
      name(gradient.order), target.to_string());
  if (gradient.correlation)
    text += fmt::format("//   geometry {}; columns are features and taps\n", to_string(gradient.convolution));
  for (std::size_t i = 0; i < plan.size(); ++i)
    text += fmt::format("//   entry {} n <= {}: {}\n", i, plan[i].up_to, to_string(plan[i].config));
}

/// A parameter after those that all kernels have.
struct Parameter {
  Argument argument;
  std::string_view type;  ///< Element: x's
  std::string_view name;
  bool of_ends = true;  ///< a member of SddmmEpilogue
};

std::vector<Parameter> parameters_of(const Sddmm& gradient, std::int32_t slices) {
  std::vector<Parameter> parameters;
  if (slices > 1 || gradient.sums_block_scales_of_taps() || gradient.image_alignment != 0)
    parameters.push_back({Argument::workspace, "void*", "workspace"});
  if (gradient.derivative != Activation::none)
    parameters.push_back({Argument::z_stride, "long long", "z_stride", false});
  if (gradient.epilogue.scale)
    parameters.insert(parameters.end(),
                      {{Argument::alpha, "float", "alpha"}, {Argument::beta, "float", "beta"}});
  for (const OperandRow& row : operand_rows()) {
    if (row.form != OperandForm::dense || !row.taken(gradient)) continue;
    if (!row.argument || row.type != OperandType::sums)
      throw Error(ErrorKind::internal, fmt::format("operand {} of a gradient of the weight", row.name));
    parameters.push_back({*row.argument, row.computed(gradient) ? "float*" : "const float*", row.name});
  }
  if (gradient.block_scale_gradient) parameters.push_back({Argument::w, "const Element*", "w"});
  if (gradient.convolution.dynamic)
    parameters.push_back({Argument::images, "const sparsekiln::ImageExtents", "images"});
  return parameters;
}

/// The members of Config in templates/sddmm.cuh, besides those of its family.
Declarations declarations_of(const Sddmm& gradient, const Target& target, const Config& config,
                             const Instance& instance, std::int32_t slices) {
  Declarations members;
  members.type("Operand", fmt::format("sparsekiln::{}", operand_of(gradient.dtype)));
  members.type("Element", "Operand::Element");
  members.type("Output", fmt::format("sparsekiln::{}", output_of(gradient.out_dtype)));
  members.type("Derivative", fmt::format("sparsekiln::{}", activation_of(gradient.derivative)));
  members.number("block_out", gradient.block.out);
  members.number("block_in", gradient.block.in);
  members.number("width", config.rows, "blocks of a run, or pieces of a group");
  members.number("chunk", config.tile_n, "batch rows of a stage");
  members.number("stages", config.stages);
  members.number("threads", instance.threads);
  members.number("slices", slices, "CTAs that share a run, at most");
  members.number("chunks_of_slice", kChunksOfSlice);
  members.number("alignment", gradient.alignment,
                 "bytes that addresses and strides of activations are multiples of");
  members.number("in_features", gradient.cut_cols(), "where the last block column is cut; 0: it is whole");
  members.number("out_features", gradient.cut_rows(), "where the last block row is cut; 0: it is whole");
  members.flag("async_copy", target.compute_capability() >= 80);
  members.flag("feature_major", gradient.feature_major());
  members.flag("scales", gradient.epilogue.scale);
  members.flag("has_block_scales", gradient.block_scales);
  members.flag("has_derivative", gradient.derivative != Activation::none);
  members.flag("overlaps", instance.attributes.overlaps_previous, "the launch may begin early");
  members.flag("has_bias_gradient", gradient.bias_gradient);
  members.flag("has_block_scale_gradient", gradient.block_scale_gradient);
  members.flag("sums_block_scales_of_taps", gradient.sums_block_scales_of_taps());
  members.flag("exchanged", gradient.exchanged(), "what taps displace is dy");
  members.append(
      image_declarations(gradient.convolution, gradient.correlation.get(), gradient.gathers(), false));
  members.append(instance.declarations);
  return members;
}

/// A kernel after that of a gradient, which adds what several CTAs have summed.
struct SumsAfter {
  std::string_view function;  ///< its template; empty: there is none
  std::string_view symbol;    ///< what entries call it: names in Binaries stay what they were
};
SumsAfter sums_after_of(const Sddmm& gradient, const Config& config, std::int32_t slices) {
  if (gradient.sums_block_scales_of_taps()) return {"sum_block_scales_of_taps", "sum_gates_of_taps"};
  if (slices > 1 && adds_slices_after(config)) return {"sum_slices", "sum_slices"};
  return {};
}

/// One kernel: the struct Config<index> and the functions that are launched.
struct KernelText {
  std::size_t index;
  std::span<const std::string> symbols;  ///< where images are transposed, that first
  std::string_view function;             ///< the template
  std::int32_t threads;
  std::size_t tensor_maps;
  bool overlaps;  ///< it begins before the launch before it has ended
  std::int32_t slices;
  bool takes_tables;            ///< from the launch
  std::string_view sums_after;  ///< the template of the kernel after it; empty: there is none
  std::string members;          ///< of Config
};

void write_kernel(std::string& text, const Sddmm& gradient, const KernelText& kernel) {
  std::string declared;
  std::string ends;
  for (const Parameter& parameter : parameters_of(gradient, kernel.slices)) {
    const bool element = parameter.type == "const Element*";
    declared += fmt::format(",\n    {} {}",
                            element ? fmt::format("const Config{}::Element*", kernel.index) : parameter.type,
                            parameter.name);
    if (parameter.of_ends) ends += fmt::format("  ends.{0} = {0};\n", parameter.name);
  }
  declared += declared_tensor_maps(kernel.tensor_maps);
  if (kernel.takes_tables) declared += fmt::format(", const Table{} table", kernel.index);
  const std::string table = kernel.takes_tables ? "table" : fmt::format("Table{}{{}}", kernel.index);
  text += fmt::format(
      "\nstruct Config{index} {{\n"
      "  using Table = Table{index};\n"
      "{members}"
      "}};\n",
      fmt::arg("index", kernel.index), fmt::arg("members", kernel.members));
  const auto write_function = [&](std::string_view symbol, const std::string& call) {
    text += fmt::format(
        "extern \"C\" __global__ void __launch_bounds__({threads}, 1) {symbol}(\n"
        "    const sparsekiln::ActivationPairs pairs, Config{index}::Output::Element* {alone}dw, int n,\n"
        "    long long x_stride, long long dy_stride{declared}) {{\n"
        "  sparsekiln::SddmmEpilogue<Config{index}> ends;\n"
        "{ends}"
        "  {call};\n"
        "}}\n",
        fmt::arg("index", kernel.index), fmt::arg("threads", kernel.threads), fmt::arg("symbol", symbol),
        fmt::arg("declared", declared),
        // as in emit.cpp: what is there may change until the kernel has waited
        fmt::arg("alone", kernel.overlaps ? "" : "__restrict__ "), fmt::arg("ends", ends),
        fmt::arg("call", call));
  };
  const bool transposes = gradient.image_alignment != 0;
  std::string_view x_stride = "x_stride";
  std::string_view dy_stride = "dy_stride";
  std::string_view z_stride = gradient.derivative == Activation::none ? "0" : "z_stride";
  std::string rows;
  if (transposes) {
    write_function(kernel.symbols.front(),
                   fmt::format("sparsekiln::transpose_pair<Config{}>(pairs, workspace, n, x_stride, "
                               "dy_stride, {}, ends.images)",
                               kernel.index, z_stride));
    rows = fmt::format("const sparsekiln::GradientRows<Config{}> rows(workspace, n, ends.images);\n  ",
                       kernel.index);
    x_stride = "rows.kXStride";
    dy_stride = z_stride = "rows.kDyStride";
  }
  write_function(
      kernel.symbols[transposes ? 1 : 0],
      fmt::format("{rows}sparsekiln::{function}<Config{index}>({pairs}, dw, n, {strides}, {z_stride}, ends,\n"
                  "      {table}{maps})",
                  fmt::arg("rows", rows), fmt::arg("function", kernel.function),
                  fmt::arg("index", kernel.index), fmt::arg("table", table),
                  fmt::arg("pairs", transposes ? "rows.pairs(pairs)" : "pairs"),
                  // the operand that taps displace first
                  fmt::arg("strides", gradient.exchanged() ? fmt::format("{}, {}", dy_stride, x_stride)
                                                           : fmt::format("{}, {}", x_stride, dy_stride)),
                  fmt::arg("z_stride", z_stride), fmt::arg("maps", passed_tensor_maps(kernel.tensor_maps))));
  if (!kernel.sums_after.empty())
    write_function(kernel.symbols.back(), fmt::format("sparsekiln::{}<Config{}>(dw, n, ends, {})",
                                                      kernel.sums_after, kernel.index, table));
}

const SddmmFamily& family_of(const Sddmm& gradient, const Config& config) {
  const SddmmFamily* const family = find_family(gradient, config.variant);
  if (family == nullptr)
    refuse(fmt::format("variant {} computes no {}; {} do", name(config.variant), name(gradient.operation),
                       variants_for(gradient)));
  return *family;
}

/// What an entry has of a layout.
struct LayoutFigures {
  std::int32_t slices = 1;  ///< CTAs that share a run
  std::int32_t workers = 0;
  Workspace workspace = {};
  std::int64_t bytes_before_block_scales = 0;
};
LayoutFigures figures_of(const Sddmm& gradient, const Target& target, const Config& config,
                         const BlockRuns& schedule, std::int64_t counter_bytes) {
  const std::int64_t runs = schedule.items();
  const std::int32_t slices = batch_slices(gradient, target, config, runs);
  const std::int64_t sums = sums_bytes(gradient, config, runs, slices);
  const std::int64_t block_scales =
      gradient.sums_block_scales_of_taps() ? std::int64_t{4} * gradient.layout.blocks() : 0;
  const bool transposes = gradient.image_alignment != 0;
  return {slices, schedule.workers() * slices,
          transposes ? Workspace{counter_bytes, (sums + block_scales + 15) / 16 * 16,
                                 TransposedImages(gradient).row_bytes()}
                     : Workspace{counter_bytes, sums + block_scales},
          counter_bytes + sums};
}

Instance instance_of(const Sddmm& gradient, const Target& target, const Config& config) {
  Instance instance = family_of(gradient, config).instantiate(gradient, target, config);
  instance.attributes.overlaps_previous = overlaps_launches(gradient, target);
  return instance;
}

/// The part of an entry that is known without its layout. `slices` as in the Config of its kernel.
Entry entry_of(const Sddmm& gradient, const RangedConfig& range, const Instance& instance, std::size_t index,
               std::int32_t slices) {
  Entry entry;
  entry.up_to = range.up_to;
  entry.passes = {fmt::format("sparsekiln_{}_{}", name(gradient.operation), index)};
  const bool transposes = gradient.image_alignment != 0;
  if (transposes)
    entry.passes.insert(entry.passes.begin(), fmt::format("sparsekiln_images_to_rows_{}", index));
  const SumsAfter sums_after = sums_after_of(gradient, range.config, slices);
  if (!sums_after.function.empty())
    entry.passes.push_back(fmt::format("sparsekiln_{}_{}", sums_after.symbol, index));
  entry.workers = 0;
  entry.tile_n = 0;
  entry.threads = instance.threads;
  entry.dynamic_shared_bytes =
      transposes ? shared_bytes_with_images(instance) : instance.dynamic_shared_bytes;
  entry.attributes = instance.attributes;
  entry.arguments = {Argument::pairs, Argument::y, Argument::n, Argument::x_stride, Argument::y_stride};
  for (const Parameter& parameter : parameters_of(gradient, slices))
    entry.arguments.push_back(parameter.argument);
  add_tensor_maps(entry, instance.tensor_maps);
  return entry;
}

/// Writes the kernels of a plan, one after the other.
class KernelWriter {
 public:
  KernelWriter(const Sddmm& gradient, const Target& target, Source& source)
      : gradient_(gradient), target_(target), source_(source) {}

  void write_baked(const RangedConfig& range, const BlockRuns& schedule, std::int64_t counter_bytes) {
    const Config& config = range.config;
    const Instance instance = instance_of(gradient_, target_, config);
    const LayoutFigures figures = figures_of(gradient_, target_, config, schedule, counter_bytes);
    Entry entry = entry_of(gradient_, range, instance, index(), figures.slices);
    entry.workers = figures.workers;
    entry.workspace = figures.workspace;
    write_tables(source_, places_, gradient_, schedule, config, block_scales());
    write(config, instance, std::move(entry), figures);
  }

  /// What the entry lacks is filled in when a layout is attached.
  /// As in emit.cpp, the kernel of entry `kernel` serves this one.
  void write_attached(const RangedConfig& range, std::size_t kernel) {
    const Instance instance = instance_of(gradient_, target_, range.config);
    const LayoutFigures figures{.slices = most_slices(gradient_, range.config)};
    Entry entry = entry_of(gradient_, range, instance, kernel, figures.slices);
    for (TensorMap& map : entry.tensor_maps) map.row_length = 0;  // features
    entry.arguments.push_back(Argument::tables);
    if (kernel != index()) {
      source_.entries.push_back(std::move(entry));
      return;
    }
    write_attached_table(source_, range.config, block_scales());
    write(range.config, instance, std::move(entry), figures);
  }

  [[nodiscard]] std::int64_t constant_bytes() const { return places_.constant_bytes(); }

 private:
  [[nodiscard]] std::size_t index() const { return source_.entries.size(); }
  /// The members of a table that say which scale a block has, the same for all entries.
  std::string_view block_scales() {
    if (gradient_.block_scales && block_scales_.empty())
      block_scales_ = write_block_scales(source_, places_, index(), gradient_.block_scale_map);
    return block_scales_;
  }

  void write(const Config& config, const Instance& instance, Entry entry, const LayoutFigures& figures) {
    const bool takes_tables = config.table == TableForm::attached;
    Declarations members = declarations_of(gradient_, target_, config, instance, figures.slices);
    members.flag("attached", takes_tables, "what follows from a layout is in the tables");
    if (!takes_tables) {
      members.number("counter_bytes", figures.workspace.counter_bytes, "in front of the workspace");
      if (gradient_.sums_block_scales_of_taps()) {
        members.number("block_scales", gradient_.block_scale_map.count());
        members.number("bytes_before_block_scales", figures.bytes_before_block_scales, "in the workspace");
      }
    }
    if (gradient_.image_alignment != 0)
      members.append(
          transposition_declarations(TransposedImages(gradient_), gradient_.image_alignment, instance,
                                     entry.workspace.counter_bytes + entry.workspace.bytes_per_tile, 0));
    write_kernel(source_.text, gradient_,
                 {.index = index(),
                  .symbols = entry.passes,
                  .function = family_of(gradient_, config).function,
                  .threads = instance.threads,
                  .tensor_maps = instance.tensor_maps.size(),
                  .overlaps = instance.attributes.overlaps_previous,
                  .slices = figures.slices,
                  .takes_tables = takes_tables,
                  .sums_after = sums_after_of(gradient_, config, figures.slices).function,
                  .members = members.text()});
    source_.entries.push_back(std::move(entry));
  }

  const Sddmm& gradient_;
  const Target& target_;
  Source& source_;
  TablePlaces places_;
  std::string block_scales_;
};

/// Writes everything that depends on the problem: what follows the templates.
void write_kernels(const Sddmm& gradient, const Target& target, const Plan& plan,
                   const std::vector<BlockRuns>& schedules, Source& source) {
  const bool without_layout = attached(plan);
  const std::int64_t counter_bytes = without_layout ? 0 : counter_bytes_of(gradient, target, plan, schedules);
  KernelWriter writer(gradient, target, source);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (without_layout)
      writer.write_attached(plan[i], first_with_config(plan, i));
    else
      writer.write_baked(plan[i], schedules[i], counter_bytes);
  }
  if (writer.constant_bytes() > kConstantTableLimit)
    refuse(
        fmt::format("the tables of {} entries take {} bytes, more than the {} of constant memory; "
                    "table=global would work",
                    plan.size(), writer.constant_bytes(), kConstantTableLimit));
}

}  // namespace

void validate(const Sddmm& gradient, const Target& target) {
  require_types(gradient, target);
  if (target.compute_capability() < 75)
    refuse(fmt::format("target '{}': CUDA code is made for sm_75 and later", target.arch));
  if (gradient.correlation) validate_lattice(gradient);
  if (gradient.exchanged() && gradient.bias_gradient)
    refuse(
        "bias_gradient of a transposed convolution for CUDA targets; the sum of dy over its rows, computed "
        "by the caller, would work");
  find_family(gradient, fallback_variant(gradient, target))->validate(gradient, target);
}

void validate(const Sddmm& gradient, const Target& target, const Config& config) {
  validate(gradient, target);
  const SddmmFamily& family = family_of(gradient, config);
  family.validate(gradient, target);
  if (gradient.channels_first())
    throw Error(ErrorKind::internal, "channels-first activations that nothing transposes");
  check_knobs(config);
  if (config.packed || config.merge != 1 || config.in_flight > 0 || config.split_saves != 0 ||
      config.cluster != 1 || config.cluster_rows != 1 || config.operand_a != Config().operand_a)
    refuse(fmt::format(
        "config '{}' of {}: packed=0 merge=1 split_saves=0 in_flight=all cluster=1 cluster_rows=1 "
        "operand_a=x would work",
        to_string(config), name(gradient.operation)));
  if (config.table == TableForm::unrolled)
    refuse(fmt::format("table=unrolled of {}: table=constant, global or attached would work",
                       name(gradient.operation)));
  if (config.table == TableForm::attached && gradient.image_alignment != 0)
    throw Error(ErrorKind::internal, "channels-first activations whose rows begin after unknown counters");
  if (config.split < 1) refuse("a config's split is 1 or more");
  static_cast<void>(family.instantiate(gradient, target, config));
  if (config.table == TableForm::constant && table_bound(gradient, config) > kConstantTableLimit)
    refuse(
        fmt::format("a table of up to {} bytes does not fit the {} bytes of constant memory; table=global "
                    "would work",
                    table_bound(gradient, config), kConstantTableLimit));
}

void attach_runs(const Sddmm& gradient, const Plan& plan, const std::vector<BlockRuns>& schedules,
                 Binary& binary) {
  const std::int64_t counter_bytes = counter_bytes_of(gradient, binary.target, plan, schedules);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const Config& config = plan[i].config;
    const LayoutFigures figures = figures_of(gradient, binary.target, config, schedules[i], counter_bytes);
    Entry& entry = binary.entries[i];
    entry.workers = figures.workers;
    entry.workspace = figures.workspace;
    entry.tensor_maps = instance_of(gradient, binary.target, config).tensor_maps;
    entry.tables = image_of(gradient, schedules[i], config, figures.slices);
  }
}

Source emit(const Sddmm& gradient, const Target& target, const Plan& plan,
            const std::vector<BlockRuns>& schedules) {
  Source source;
  write_header(source.text, gradient, target, plan);
  std::set<std::string> written;
  for (const RangedConfig& range : plan)
    write_template(source.text, fmt::format("{}.cuh", family_of(gradient, range.config).function), written);
  if (gradient.image_alignment != 0) write_template(source.text, "images.cuh", written);
  write_kernels(gradient, target, plan, schedules, source);
  return source;
}

Recipe recipe_of(const Sddmm& gradient, const Target& target, const Plan& plan,
                 const std::vector<BlockRuns>& schedules) {
  Source source;
  write_kernels(gradient, target, plan, schedules, source);
  return source;
}

}  // namespace sparsekiln::cuda

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
#include "compiler/cuda/table_text.h"
#include "compiler/cuda/tables.h"
#include "compiler/cuda/template_text.h"
#include "compiler/cuda/tensor_map_text.h"
#include "compiler/cuda/types.h"
#include "compiler/operand_table.h"

namespace sparsekiln::cuda {
namespace {

void write_header(std::string& text, const Sddmm& gradient, const Target& target, const Plan& plan) {
  const Layout& layout = gradient.layout;
  text += fmt::format(
      "// Sparsekiln: {} of a block-sparse {}, dw[out, in] = dy[n, out]^T * x[n, in] on its "
      "blocks\n"
      "//   layout  W[{}, {}] features, {} x {} blocks of {} (out x in), {} present, density {:.4f}\n"
      "//   digest  {}\n"
      "//   batch   {}\n"
      "//   types   {} to {}, math {}, {}\n"
      "//   target  {}\n",
      name(gradient.operation), gradient.correlation ? "convolution" : "linear layer",
      gradient.row_features(), gradient.col_features(), layout.rows(), layout.cols(),
      to_string(gradient.block), layout.blocks(), layout.statistics().density, layout.digest().hex(),
      to_string(gradient.batch), name(gradient.dtype), name(gradient.out_dtype), name(gradient.math),
      name(gradient.order), target.to_string());
  if (gradient.correlation)
    text += fmt::format("//   geometry {}; columns are features and taps\n", to_string(gradient.convolution));
  for (std::size_t i = 0; i < plan.size(); ++i)
    text += fmt::format("//   entry {} n <= {}: {}\n", i, plan[i].up_to, to_string(plan[i].config));
}

/// Numbers of a group, as PieceGroup of templates/piece_groups.cuh has them.
constexpr std::int64_t kGroupNumbers = 4;
/// Numbers of a pair, as PiecePair there, without its taps, which only variant halo has.
constexpr std::int64_t kPairNumbers = 3;

bool has_taps(const Config& config) { return config.variant == Variant::halo; }

/// A pair as PiecePair has it.
std::array<std::int32_t, kPairNumbers> numbers_of(const BlockGroup& group, const BlockGroup::Pair& pair) {
  const auto of_dy = static_cast<std::int32_t>(group.outs.size());
  const BlockGroup::Piece& first = group.pieces[static_cast<std::size_t>(pair[0])];
  if (pair[1] == BlockGroup::kNone)
    return {first.out | (of_dy + first.in) << 8 | (of_dy + first.in) << 16, first.dw, BlockGroup::kNone};
  const BlockGroup::Piece& second = group.pieces[static_cast<std::size_t>(pair[1])];
  if (first.out == second.out)
    return {first.out | (of_dy + first.in) << 8 | (of_dy + second.in) << 16, first.dw, second.dw};
  return {(of_dy + first.in) | first.out << 8 | second.out << 16 | 1 << 24, first.dw, second.dw};
}

std::int32_t taps_of(const BlockGroup& group, const BlockGroup::Pair& pair) {
  const auto tap = [&](std::int32_t piece) { return group.pieces[static_cast<std::size_t>(piece)].tap; };
  return tap(pair[0]) | tap(pair[1] == BlockGroup::kNone ? pair[0] : pair[1]) << 16;
}

/// The same as write_tables of groups, each with so many pairs: those that it lacks read what there is.
void write_group_tables(Source& source, TablePlaces& places, const BlockRuns& schedule,
                        const Config& config) {
  const auto pairs_of_group = static_cast<std::size_t>(config.rows / 2);
  const std::size_t index = source.entries.size();
  std::vector<std::int32_t> groups;
  std::vector<std::int32_t> tiles;
  std::vector<std::int32_t> pairs;
  std::vector<std::int32_t> taps;
  for (const BlockGroup& group : schedule.groups) {
    groups.insert(groups.end(), {static_cast<std::int32_t>(tiles.size()), group.tiles(),
                                 static_cast<std::int32_t>(group.outs.size()), group.summed});
    tiles.insert(tiles.end(), group.outs.begin(), group.outs.end());
    tiles.insert(tiles.end(), group.ins.begin(), group.ins.end());
    for (const BlockGroup::Pair& pair : group.pairs) {
      const auto numbers = numbers_of(group, pair);
      pairs.insert(pairs.end(), numbers.begin(), numbers.end());
      if (has_taps(config)) taps.push_back(taps_of(group, pair));
    }
    for (std::size_t pair = group.pairs.size(); pair < pairs_of_group; ++pair) {
      pairs.insert(pairs.end(), {0, BlockGroup::kNone, BlockGroup::kNone});
      if (has_taps(config)) taps.push_back(0);
    }
  }
  const std::size_t numbers =
      schedule.worker_begin.size() + groups.size() + tiles.size() + pairs.size() + taps.size();
  const TablePlace place = places.next(config.table, static_cast<std::int64_t>(4 * numbers));
  source.text += fmt::format(
      "\n// Each worker's first group; four numbers a group: first tile, tiles, of these of dy, of these\n"
      "// summed; the tiles; {} pairs of pieces a group: tiles, where they are in dw, and taps.\n",
      pairs_of_group);
  ArrayWriter arrays(source, index, place);
  arrays.write("worker_begin", schedule.worker_begin);
  arrays.write("groups", groups);
  arrays.write("tiles", tiles);
  arrays.write("pairs", pairs);
  if (has_taps(config)) arrays.write("taps", taps);
  const auto element = [&](std::string_view array, std::string_view at) {
    return element_text(array, index, place, at);
  };
  source.text += fmt::format(
      "struct Table{} {{\n"
      "  __device__ static int worker(int index) {{ return {}; }}\n"
      "  __device__ static sparsekiln::PieceGroup group(int index) {{\n"
      "    return {{{}, {}, {}, {}}};\n"
      "  }}\n"
      "  __device__ static int tile(int index) {{ return {}; }}\n"
      "  __device__ static sparsekiln::PiecePair pair(int index) {{\n"
      "    return {{{}, {}, {}, {}}};\n"
      "  }}\n"
      "}};\n",
      index, element("worker_begin", "index"), element("groups", "4 * index"),
      element("groups", "4 * index + 1"), element("groups", "4 * index + 2"),
      element("groups", "4 * index + 3"), element("tiles", "index"), element("pairs", "3 * index"),
      element("pairs", "3 * index + 1"), element("pairs", "3 * index + 2"),
      has_taps(config) ? element("taps", "index") : "0");
}

/// The arrays of one entry, and `struct Table<index>` which reads them. `gates`: its members that write_gates
/// returned.
void write_tables(Source& source, TablePlaces& places, const Sddmm& gradient, const BlockRuns& schedule,
                  TableForm form, std::string_view gates) {
  const std::size_t index = source.entries.size();
  std::vector<std::int32_t> runs;
  for (const BlockRun& run : schedule.runs)
    runs.insert(runs.end(), {run.row, run.first, run.blocks, run.first_of_row ? 1 : 0});
  const auto col = gradient.layout.col();
  const std::vector<std::int32_t> columns(col.begin(), col.end());
  const auto bytes =
      static_cast<std::int64_t>(4 * (schedule.worker_begin.size() + runs.size() + columns.size()));
  const TablePlace place = places.next(form, bytes);
  source.text +=
      "\n// Each worker's first run; four numbers a run: block row, first block, blocks, whether first of "
      "its row;\n"
      "// the column of each block.\n";
  ArrayWriter arrays(source, index, place);
  arrays.write("worker_begin", schedule.worker_begin);
  arrays.write("runs", runs);
  arrays.write("columns", columns);
  const auto element = [&](std::string_view array, std::string_view at) {
    return element_text(array, index, place, at);
  };
  source.text += fmt::format(
      "struct Table{} {{\n"
      "  __device__ static int worker(int index) {{ return {}; }}\n"
      "  __device__ static sparsekiln::BlockRun run(int index) {{\n"
      "    return {{{}, {}, {}, {}}};\n"
      "  }}\n"
      "  __device__ static int column(int block) {{ return {}; }}\n"
      "{}"
      "}};\n",
      index, element("worker_begin", "index"), element("runs", "4 * index"), element("runs", "4 * index + 1"),
      element("runs", "4 * index + 2"), element("runs", "4 * index + 3"), element("columns", "block"), gates);
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
  if (slices > 1 || gradient.sums_gates_of_taps() || gradient.image_alignment != 0)
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
  if (gradient.gate_gradient) parameters.push_back({Argument::w, "const Element*", "w"});
  if (gradient.convolution.dynamic)
    parameters.push_back({Argument::images, "const sparsekiln::ImageExtents", "images"});
  return parameters;
}

/// The members of Config in templates/sddmm.cuh, besides those of its family.
Declarations declarations_of(const Sddmm& gradient, const Target& target, const Config& config,
                             const Instance& instance, std::int32_t slices, std::int64_t counter_bytes,
                             std::int64_t bytes_before_gates) {
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
  members.number("counter_bytes", counter_bytes, "in front of the workspace");
  members.number("alignment", gradient.alignment,
                 "bytes that addresses and strides of activations are multiples of");
  members.number("in_features", gradient.cut_cols(), "where the last block column is cut; 0: it is whole");
  members.number("out_features", gradient.cut_rows(), "where the last block row is cut; 0: it is whole");
  members.flag("async_copy", target.compute_capability() >= 80);
  members.flag("feature_major", gradient.feature_major());
  members.flag("scales", gradient.epilogue.scale);
  members.flag("has_gates", gradient.gates);
  members.flag("has_derivative", gradient.derivative != Activation::none);
  members.flag("overlaps", instance.attributes.overlaps_previous, "the launch may begin early");
  members.flag("has_bias_gradient", gradient.bias_gradient);
  members.flag("has_gate_gradient", gradient.gate_gradient);
  members.flag("sums_gates_of_taps", gradient.sums_gates_of_taps());
  if (gradient.sums_gates_of_taps()) {
    members.number("gates", gradient.block_gates.count());
    members.number("bytes_before_gates", bytes_before_gates, "in the workspace");
  }
  members.flag("exchanged", gradient.exchanged(), "what taps displace is dy");
  members.append(
      image_declarations(gradient.convolution, gradient.correlation.get(), gradient.gathers(), false));
  members.append(instance.declarations);
  return members;
}

/// The template of a kernel after that of a gradient, which adds what several CTAs have summed; empty: there
/// is none.
std::string_view sums_after_of(const Sddmm& gradient, const Config& config, std::int32_t slices) {
  if (gradient.sums_gates_of_taps()) return "sum_gates_of_taps";
  return slices > 1 && adds_slices_after(config) ? "sum_slices" : "";
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
                  "      Table{index}{{}}{maps})",
                  fmt::arg("rows", rows), fmt::arg("function", kernel.function),
                  fmt::arg("index", kernel.index),
                  fmt::arg("pairs", transposes ? "rows.pairs(pairs)" : "pairs"),
                  // the operand that taps displace first
                  fmt::arg("strides", gradient.exchanged() ? fmt::format("{}, {}", dy_stride, x_stride)
                                                           : fmt::format("{}, {}", x_stride, dy_stride)),
                  fmt::arg("z_stride", z_stride), fmt::arg("maps", passed_tensor_maps(kernel.tensor_maps))));
  if (!kernel.sums_after.empty())
    write_function(kernel.symbols.back(), fmt::format("sparsekiln::{0}<Config{1}>(dw, n, ends, Table{1}{{}})",
                                                      kernel.sums_after, kernel.index));
}

const SddmmFamily& family_of(const Sddmm& gradient, const Config& config) {
  const SddmmFamily* const family = find_family(gradient, config.variant);
  if (family == nullptr)
    refuse(fmt::format("variant {} computes no {}; {} do", name(config.variant), name(gradient.operation),
                       variants_for(gradient)));
  return *family;
}

/// Writes everything that depends on the problem: what follows the templates.
void write_kernels(const Sddmm& gradient, const Target& target, const Plan& plan,
                   const std::vector<BlockRuns>& schedules, Source& source) {
  TablePlaces places;
  std::string gates_text;
  const std::int64_t counter_bytes = counter_bytes_of(gradient, target, plan, schedules);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const Config& config = plan[i].config;
    const SddmmFamily& family = family_of(gradient, config);
    Instance instance = family.instantiate(gradient, target, config);
    instance.attributes.overlaps_previous = overlaps_launches(gradient, target);
    Entry entry;
    entry.up_to = plan[i].up_to;
    entry.passes = {fmt::format("sparsekiln_{}_{}", name(gradient.operation), i)};
    const bool transposes = gradient.image_alignment != 0;
    if (transposes) entry.passes.insert(entry.passes.begin(), fmt::format("sparsekiln_images_to_rows_{}", i));
    entry.tile_n = 0;
    const std::int64_t runs = schedules[i].items();
    const std::int32_t slices = batch_slices(gradient, target, config, runs);
    const std::string_view sums_after = sums_after_of(gradient, config, slices);
    if (!sums_after.empty()) entry.passes.push_back(fmt::format("sparsekiln_{}_{}", sums_after, i));
    entry.workers = schedules[i].workers() * slices;
    const std::int64_t sums = sums_bytes(gradient, config, runs, slices);
    const std::int64_t gates = gradient.sums_gates_of_taps() ? std::int64_t{4} * gradient.layout.blocks() : 0;
    entry.workspace = transposes ? Workspace{counter_bytes, (sums + gates + 15) / 16 * 16,
                                             TransposedImages(gradient).row_bytes()}
                                 : Workspace{counter_bytes, sums + gates};
    entry.threads = instance.threads;
    entry.dynamic_shared_bytes =
        transposes ? shared_bytes_with_images(instance) : instance.dynamic_shared_bytes;
    entry.attributes = instance.attributes;
    entry.arguments = {Argument::pairs, Argument::y, Argument::n, Argument::x_stride, Argument::y_stride};
    for (const Parameter& parameter : parameters_of(gradient, slices))
      entry.arguments.push_back(parameter.argument);
    add_tensor_maps(entry, instance.tensor_maps);
    if (i == 0 && gradient.gates) gates_text = write_gates(source, places, i, gradient.block_gates);
    if (groups_blocks(config))
      write_group_tables(source, places, schedules[i], config);
    else
      write_tables(source, places, gradient, schedules[i], config.table, gates_text);
    Declarations members =
        declarations_of(gradient, target, config, instance, slices, counter_bytes, counter_bytes + sums);
    if (transposes)
      members.append(
          transposition_declarations(TransposedImages(gradient), gradient.image_alignment, instance,
                                     entry.workspace.counter_bytes + entry.workspace.bytes_per_tile, 0));
    write_kernel(source.text, gradient,
                 {.index = i,
                  .symbols = entry.passes,
                  .function = family.function,
                  .threads = instance.threads,
                  .tensor_maps = instance.tensor_maps.size(),
                  .overlaps = instance.attributes.overlaps_previous,
                  .slices = slices,
                  .sums_after = sums_after,
                  .members = members.text()});
    source.entries.push_back(std::move(entry));
  }
  if (places.constant_bytes() > kConstantTableLimit)
    refuse(
        fmt::format("the tables of {} entries take {} bytes, more than the {} of constant memory; "
                    "table=global would work",
                    plan.size(), places.constant_bytes(), kConstantTableLimit));
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
  if (config.table != TableForm::constant && config.table != TableForm::global)
    refuse(fmt::format("table={} of {}: its layout is baked; table=constant or table=global would work",
                       name(config.table), name(gradient.operation)));
  if (config.split < 1) refuse("a config's split is 1 or more");
  static_cast<void>(family.instantiate(gradient, target, config));
  if (config.table == TableForm::constant && table_bound(gradient, config) > kConstantTableLimit)
    refuse(
        fmt::format("a table of up to {} bytes does not fit the {} bytes of constant memory; table=global "
                    "would work",
                    table_bound(gradient, config), kConstantTableLimit));
}

std::int64_t table_bound(const Sddmm& gradient, const Config& config) {
  if (groups_blocks(config)) {
    const GroupShape shape = group_shape(gradient, config);
    const std::int64_t tiles = shape.place_bytes / std::min(shape.out_bytes, shape.in_bytes);
    const std::int64_t pair_numbers = kPairNumbers + (has_taps(config) ? 1 : 0);
    return 4 * (group_bound(gradient, config) * (kGroupNumbers + pair_numbers * config.rows / 2 + tiles + 1) +
                2 + 4 * 4);
  }
  const std::int64_t runs = run_bound(gradient, config.rows);
  // A run has four numbers and at most a worker of its own, a block has its column.
  return 4 * (5 * runs + 2 + gradient.layout.blocks() + 3);
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

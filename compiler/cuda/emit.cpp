#include "compiler/cuda/emit.h"

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/config.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/direct_shape.h"
#include "compiler/cuda/families.h"
#include "compiler/cuda/images.h"
#include "compiler/cuda/lattice.h"
#include "compiler/cuda/normalise.h"
#include "compiler/cuda/parameters.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/table_text.h"
#include "compiler/cuda/tables.h"
#include "compiler/cuda/template_text.h"
#include "compiler/cuda/tensor_map_text.h"
#include "compiler/cuda/types.h"
#include "compiler/named.h"
#include "compiler/plan.h"

namespace sparsekiln::cuda {
namespace {

/// Throws `invalid_argument` where there is none.
const SpmmFamily& family_of(const Spmm& problem, const Target& target, const Config& config) {
  const SpmmFamily* const family = find_family(problem, config.variant);
  if (family == nullptr)
    refuse(fmt::format("variant {} for {}: CUDA targets have {}", name(config.variant), target.arch,
                       variants_for(problem)));
  return *family;
}

Instance instance_of(const Spmm& problem, const Target& target, const Config& config) {
  Instance instance = family_of(problem, target, config).instantiate(problem, target, config);
  // The kernels of a launch that normalises follow one another.
  instance.attributes.overlaps_previous = overlaps_launches(problem, target) && !problem.normalisation;
  // The product fetches its first blocks while x is copied.
  instance.attributes.passes_overlap =
      has_panels(config) && !problem.normalisation && target.compute_capability() >= 90;
  return instance;
}

/// Whether a kernel of it waits for the one before.
bool begins_early(const Instance& instance) {
  return instance.attributes.overlaps_previous || instance.attributes.passes_overlap;
}

void write_header(std::string& text, const Spmm& problem, const Target& target, const Plan& plan) {
  const Layout& weight = problem.weight;
  const BlockShape block = problem.weight_block();
  const char* const formula =
      problem.by_columns() ? "dx[n, in] = dy[n, out] * W[out, in]" : "y[n, out] = x[n, in] * W[out, in]^T";
  text += fmt::format("// Sparsekiln: {} of a block-sparse {}, {}\n", name(problem.operation),
                      problem.correlation ? "convolution" : "linear layer", formula);
  if (problem.correlation)
    text += fmt::format("//   geometry {}; in is features and taps\n", to_string(problem.convolution));
  if (attached(plan))
    text += fmt::format("//   layout  attached: any, of blocks of {} (out x in)\n", to_string(block));
  else
    text += fmt::format(
        "//   layout  W[{}, {}], {} x {} blocks of {} (out x in), {} present, density {:.4f}\n"
        "//   digest  {}\n",
        std::int64_t{weight.rows()} * block.out, std::int64_t{weight.cols()} * block.in, weight.rows(),
        weight.cols(), to_string(block), weight.blocks(), weight.statistics().density, weight.digest().hex());
  text += fmt::format(
      "//   batch   {}\n"
      "//   types   {} to {}, math {}, {}\n"
      "//   target  {}\n",
      to_string(problem.batch), name(problem.dtype), name(problem.result_dtype), name(problem.math),
      name(problem.order), target.to_string());
  for (std::size_t i = 0; i < plan.size(); ++i)
    text += fmt::format("//   entry {} n <= {}: {}\n", i, plan[i].up_to, to_string(plan[i].config));
}

std::string replaced(std::string text, std::string_view what, const std::string& with) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
  return text;
}

/// Whether L2 would not keep all of y for the next kernel, while batch tiles are bounded so that x stays
/// there.
bool writes_past_l2(const Spmm& problem, const Config& config) {
  constexpr std::int64_t kLarge = std::int64_t{32} << 20;  // bytes
  if (config.in_flight <= 0 || config.table == TableForm::attached) return false;
  if (problem.image_alignment != 0 || problem.normalisation) return false;  // it is read at once
  return problem.y_rows(problem.batch.bound()) * problem.y_features() *
             static_cast<std::int64_t>(size_of(problem.out_dtype)) >=
         kLarge;
}

/// The members of Config in templates/spmm.cuh, besides those of its family.
Declarations declarations_of(const Spmm& problem, const Config& config, const Instance& instance) {
  Declarations members;
  members.append(instance.declarations);
  members.number("block_out", problem.block.out);
  members.number("block_in", problem.block.in);
  members.number("tile_n", config.tile_n, "batch rows of a tile");
  members.number("rows", config.rows * problem.weights(), "output tiles of an item");
  members.number("weights", problem.weights(),
                 "output tiles that are of the same outputs, one of each weight");
  members.number("merge", config.merge, "block rows of an output tile");
  members.number("cluster_rows", config.cluster_rows, "CTAs that share x");
  members.flag("has_rounds", config.in_flight != kAllInFlight, "of batch tiles, for a CTA");
  members.flag("pads_tiles", config.rows * config.cluster_rows > 1, "the last tiles may have no block row");
  members.number("threads", instance.threads);
  members.number("alignment", problem.alignment,
                 "bytes that addresses and strides of activations are multiples of");
  members.number("in_features", problem.cut_in, "where the last block column is cut; 0: it is whole");
  members.number("out_features", problem.cut_out, "where the last block row is cut; 0: it is whole");
  members.flag("full_tiles", problem.has_whole_tiles(config.tile_n), "no batch tile lacks entries");
  members.append(image_declarations(problem.convolution, problem.correlation.get(), problem.gathers(),
                                    problem.by_columns()));
  members.flag("panels", has_panels(config), "x is read from the workspace, by blocks");
  members.flag("by_columns", problem.by_columns(), "blocks of W are read as if they were transposed");
  members.flag("feature_major", problem.feature_major(), "x[in, n] and y[out, n]");
  members.flag("past_l2", writes_past_l2(problem, config), "y is written past L2, which has x and W");
  members.flag("scales", problem.epilogue.scale);
  members.append(operand_declarations(problem));
  members.type("Residual", fmt::format("sparsekiln::{}", output_of(problem.result_dtype)));
  if (problem.epilogue.edge_bias) members.type("Edges", "EdgeRuns");
  for (const EpiloguePart& part : kEpilogueParts)
    if (part.part != &Epilogue::scale) members.flag(part.name, problem.epilogue.*part.part);
  members.flag("overlaps", begins_early(instance), "this kernel may begin early: it waits");
  members.flag("first_overlaps", instance.attributes.overlaps_previous, "the first kernel of the launch may");
  members.type("Activation", fmt::format("sparsekiln::{}", activation_of(problem.epilogue.activation)));
  members.type("Derivative", fmt::format("sparsekiln::{}", activation_of(problem.derivative)),
               "whose derivative at z x is multiplied by");
  return members;
}

/// One kernel: the struct Config<index> and the function that is launched.
struct KernelText {
  std::size_t index;
  /// Where images are transposed, one before and one after; where sums are normalised, one after.
  std::span<const std::string> symbols;
  std::string_view function;  ///< the template
  std::int32_t threads;
  std::int32_t ctas;  ///< of a multiprocessor at least, of the product
  std::size_t tensor_maps;
  bool panels;          ///< one before copies x
  bool takes_tables;    ///< from the launch
  bool overlaps;        ///< it begins before the launch before it has ended
  std::string members;  ///< of Config
};

void write_kernel(std::string& text, const Spmm& problem, const KernelText& kernel) {
  std::string declared;
  std::string ends;
  for (const Parameter& parameter : parameters_of(problem)) {
    declared += fmt::format(",\n    {} {}", parameter.declaration, parameter.member);
    if (parameter.of_product) ends += fmt::format("  ends.{0} = {0};\n", parameter.member);
  }
  declared = replaced(declared, "Element", fmt::format("Config{}::Output::Element", kernel.index));
  declared = replaced(declared, "Residual", fmt::format("Config{}::Residual::Element", kernel.index));
  declared = replaced(declared, "Operand", fmt::format("Config{}::Element", kernel.index));
  declared += declared_tensor_maps(kernel.tensor_maps);
  if (kernel.takes_tables) declared += fmt::format(", const Table{} table", kernel.index);
  // Where launches overlap, x and y may change until the kernel has waited. Without this word the compiler
  // may load neither of them earlier, or as read-only data.
  const char* const alone = kernel.overlaps ? "" : "__restrict__ ";
  text += fmt::format(
      "\nstruct Config{index} {{\n"
      "  using Table = Table{index};\n"
      "{members}"
      "}};\n",
      fmt::arg("index", kernel.index), fmt::arg("members", kernel.members));
  const auto write_function = [&](std::string_view symbol, std::string_view statements,
                                  std::int32_t ctas = 1) {
    text += fmt::format(
        "extern \"C\" __global__ void __launch_bounds__({threads}, {ctas}) {symbol}(\n"
        "    const Config{index}::Element* {alone}x, const Config{index}::Element* __restrict__ w,\n"
        "    Config{index}::Output::Element* {alone}y, void* workspace, int n, long long x_stride,\n"
        "    long long y_stride{declared}) {{\n"
        "{statements}"
        "}}\n",
        fmt::arg("index", kernel.index), fmt::arg("threads", kernel.threads), fmt::arg("ctas", ctas),
        fmt::arg("symbol", symbol), fmt::arg("declared", declared), fmt::arg("alone", alone),
        fmt::arg("statements", statements));
  };
  const auto call = [&](std::string_view function, std::string_view given) {
    return fmt::format("  sparsekiln::{}<Config{}>({});\n", function, kernel.index, given);
  };
  ends = fmt::format("  sparsekiln::EpilogueArguments<Config{}> ends;\n", kernel.index) + ends;
  const std::string table = kernel.takes_tables ? ", table" : fmt::format(", Table{}{{}}", kernel.index);
  const std::string more = table + passed_tensor_maps(kernel.tensor_maps);
  if (problem.image_alignment == 0) {
    const std::size_t product = kernel.panels ? 1 : 0;
    if (kernel.panels)
      write_function(kernel.symbols[0], call("copy_to_panels", "x, workspace, n, x_stride" + table));
    write_function(kernel.symbols[product],
                   ends + call(kernel.function, "x, w, y, workspace, n, x_stride, y_stride, ends" + more),
                   kernel.ctas);
    if (problem.normalisation)
      write_function(kernel.symbols[product + 1],
                     call(normalisation_function(problem),
                          fmt::format("normalisation, {}, n",
                                      problem.normalisation->lstm ? "cell" : "sparsekiln::CellMatrices{}")));
    return;
  }
  write_function(kernel.symbols[0],
                 ends + call("transpose_operands", "x, y, workspace, n, x_stride, y_stride, ends"));
  write_function(
      kernel.symbols[1],
      ends +
          fmt::format("  const sparsekiln::ProductRows<Config{}> rows(workspace, n, ends.images);\n",
                      kernel.index) +
          call(kernel.function,
               "rows.x(), w, rows.y(), workspace, n, rows.kXStride, rows.kYStride, rows.arguments(ends)" +
                   more),
      kernel.ctas);
  write_function(kernel.symbols[2],
                 ends + call("transpose_result", "y, workspace, n, y_stride, ends.images"));
}

void validate_table(const Spmm& problem, const Target& target, const Config& config, ChunkShape chunk) {
  if (config.table == TableForm::attached) return;
  const std::int64_t workers = std::int64_t{target.workers} * config.split;
  if (config.table == TableForm::unrolled) {
    const std::int64_t chunks = chunk_bound(problem, config, chunk, workers);
    if (chunks > kUnrolledChunks)
      refuse(fmt::format("table=unrolled takes up to {} chunks, not {}; table=constant would work",
                         kUnrolledChunks, chunks));
  }
  const std::int64_t bound = table_bound(problem, config, chunk, workers);
  if (config.table == TableForm::constant && bound > kConstantTableLimit)
    refuse(
        fmt::format("a table of up to {} bytes does not fit the {} bytes of constant memory; table=global "
                    "would work",
                    bound, kConstantTableLimit));
}

}  // namespace

void validate(const Spmm& problem, const Target& target) {
  require_types(problem, target);
  if (target.compute_capability() < 75)
    refuse(fmt::format("target '{}': CUDA code is made for sm_75 and later", target.arch));
  if (problem.correlation) validate_lattice(problem);
  find_family(problem, fallback_variant(problem, target))->validate(problem, target);
}

void validate(const Spmm& problem, const Target& target, const Config& config) {
  validate(problem, target);
  const SpmmFamily& family = family_of(problem, target, config);
  if (problem.channels_first())
    throw Error(ErrorKind::internal, "channels-first activations that nothing transposes");
  if (problem.image_alignment != 0 && config.table == TableForm::attached)
    throw Error(ErrorKind::internal, "channels-first activations whose rows begin after unknown counters");
  family.validate(problem, target);
  if (config.packed)
    refuse(fmt::format("variant {} reads the weight unpacked; packed=0 would work", name(config.variant)));
  if (family.arithmetic == Arithmetic::cuda_cores && config.operand_a != Config().operand_a)
    refuse(fmt::format("variant {} has no tensor core to choose an operand of; leave operand_a out",
                       name(config.variant)));
  if (config.cluster * config.cluster_rows != 1 && family.specific_arch.empty())
    refuse(
        fmt::format("variant {} has no clusters; cluster=1 cluster_rows=1 would work", name(config.variant)));
  if (config.split < 1 && !(config.split == kDerivedSplit && config.table == TableForm::attached))
    refuse("a config's split is 1 or more, or derived where tables are attached");
  if (config.in_flight < kDerivedInFlight || config.in_flight > kMostGridRows)
    refuse(fmt::format("in_flight, the batch tiles at once, is 1 to {}, or all", kMostGridRows));
  check_knobs(config);
  if (config.merge != 1 && config.merge != 2 && config.merge != kMostMerged)
    refuse(fmt::format("merge is 1, 2 or {}", kMostMerged));
  const std::int32_t most_rows = kMostTiles / problem.weights();
  if (config.rows < 1 || config.rows > most_rows)
    refuse(fmt::format("rows is 1 to {} on CUDA targets{}", most_rows,
                       problem.epilogue.glu    ? " for a glu pair"
                       : problem.weights() > 1 ? " for the gates of an LSTM"
                                               : ""));
  if (config.merge > 1 && problem.strict_absent)
    refuse("merge fills absent blocks with zeros, which strict_absent excludes; merge=1 would work");
  if (config.merge > 1 && problem.block_scales)
    refuse("merge multiplies block rows together, which have block scales of their own; merge=1 would work");
  const Instance instance = instance_of(problem, target, config);
  validate_table(problem, target, config, instance.chunk);
}

namespace {

/// Panels begin at whole lines of memory.
constexpr std::int64_t kPanelAlignment = 128;

/// What a batch tile takes, as templates/panels.cuh has them.
std::int64_t panel_bytes(const Spmm& problem, const Config& config) {
  return problem.in_blocks() * std::int64_t{problem.block.in} * config.tile_n *
         static_cast<std::int64_t>(size_of(problem.dtype));
}

}  // namespace

Workspace workspace_of(const Spmm& problem, const Config& config, std::int32_t threads,
                       const Schedule& schedule, std::int64_t counters_in_front) {
  Workspace workspace;
  if (schedule.counters != 0)
    workspace.bytes_per_tile = std::int64_t{4} * config.rows * problem.weights() * config.merge *
                               problem.block.out * config.tile_n * schedule.partials;
  if (has_panels(config)) {
    const std::int64_t panels = panel_bytes(problem, config);
    workspace.bytes_per_tile =
        (workspace.bytes_per_tile + kPanelAlignment - 1) / kPanelAlignment * kPanelAlignment + panels;
  }
  if (problem.image_alignment != 0) workspace.bytes_of_one = TransposedImages(problem).row_bytes();
  workspace.sums_of_one = bytes_of_sums(problem, threads);
  // Without counters of its own, too: what it writes must not be where another entry has them.
  if (workspace != Workspace{}) workspace.counter_bytes = counters_in_front;
  return workspace;
}

ChunkShape chunk_shape(const Spmm& problem, const Target& target, const Config& config) {
  return instance_of(problem, target, config).chunk;
}

std::vector<TensorMap> tensor_maps_of(const Spmm& problem, const Target& target, const Config& config) {
  return instance_of(problem, target, config).tensor_maps;
}

std::int32_t tiles_in_flight(const Config& config) {
  return config.in_flight > 0 ? config.in_flight : kMostGridRows;
}

namespace {

/// The part of an entry that is known without its layout.
Entry entry_of(const Spmm& problem, const RangedConfig& range, const Instance& instance, std::size_t index) {
  Entry entry;
  entry.up_to = range.up_to;
  entry.passes = {fmt::format("sparsekiln_{}_{}", name(problem.operation), index)};
  if (problem.image_alignment != 0) {
    entry.passes.insert(entry.passes.begin(), fmt::format("sparsekiln_images_to_rows_{}", index));
    entry.passes.push_back(fmt::format("sparsekiln_rows_to_images_{}", index));
  }
  if (has_panels(range.config))
    entry.passes.insert(entry.passes.begin(), fmt::format("sparsekiln_panels_{}", index));
  if (problem.normalisation) entry.passes.push_back(fmt::format("sparsekiln_normalise_{}", index));
  entry.workers = 0;
  entry.tile_n = range.config.tile_n;
  entry.rows_of_one = static_cast<std::int32_t>(problem.tiled_rows_of_one(range.config));
  entry.tiles_in_flight = tiles_in_flight(range.config);
  entry.threads = instance.threads;
  entry.dynamic_shared_bytes = problem.image_alignment != 0 ? shared_bytes_with_images(instance)
                               : problem.normalisation      ? shared_bytes_with_normalisation(instance)
                                                            : instance.dynamic_shared_bytes;
  entry.attributes = instance.attributes;
  entry.arguments = {Argument::x, Argument::w,        Argument::y,       Argument::workspace,
                     Argument::n, Argument::x_stride, Argument::y_stride};
  for (const Parameter& parameter : parameters_of(problem)) entry.arguments.push_back(parameter.argument);
  add_tensor_maps(entry, instance.tensor_maps);
  return entry;
}

/// The maps without the extents that follow from a layout: features of x, and blocks of the weight.
std::vector<TensorMap> of_no_layout(std::vector<TensorMap> maps) {
  for (TensorMap& map : maps) (map.operand == Argument::x ? map.row_length : map.rows) = 0;
  return maps;
}

/// Writes the kernels of a plan, one after the other.
class KernelWriter {
 public:
  KernelWriter(const Spmm& problem, const Target& target, Source& source)
      : problem_(problem), target_(target), source_(source), tables_(source) {}

  void write_baked(const RangedConfig& range, const Schedule& schedule, std::int64_t counters_in_front) {
    const Instance instance = instance_of(problem_, target_, range.config);
    Entry entry = entry_of(problem_, range, instance, index());
    entry.workers = schedule.workers();
    entry.workspace = workspace_of(problem_, range.config, instance.threads, schedule, counters_in_front);
    TableFigures figures{schedule.counters, entry.workspace.counter_bytes, entry.workspace.bytes_per_tile};
    if (problem_.epilogue.edge_bias) figures.features = problem_.out_features();
    if (has_panels(range.config)) figures.columns = problem_.in_blocks();
    tables_.write(index(), make_tables(problem_, schedule, instance.chunk), range.config.table, figures,
                  block_scales());
    write(range.config, instance, std::move(entry), schedule.counters > 0);
  }

  /// What the entry lacks is filled in when a layout is attached. A kernel without a layout depends on its
  /// config alone, so that the kernel of entry `kernel`, which has the same one, serves this entry.
  void write_attached(const RangedConfig& range, std::size_t kernel) {
    const Instance instance = instance_of(problem_, target_, range.config);
    Entry entry = entry_of(problem_, range, instance, kernel);
    entry.tensor_maps = of_no_layout(std::move(entry.tensor_maps));
    entry.arguments.push_back(Argument::tables);
    if (kernel != index()) {
      source_.entries.push_back(std::move(entry));
      return;
    }
    tables_.write(index(), {}, range.config.table, {}, block_scales());
    write(range.config, instance, std::move(entry), steps_worth_a_cut(range.config) != kNeverCut);
  }

  [[nodiscard]] std::int64_t constant_bytes() const { return tables_.constant_bytes(); }

 private:
  [[nodiscard]] std::size_t index() const { return source_.entries.size(); }
  /// Null: there are none.
  [[nodiscard]] const BlockScales* block_scales() const {
    return problem_.block_scales ? &problem_.block_scale_map : nullptr;
  }

  /// `splits`: some items are shared.
  void write(const Config& config, const Instance& instance, Entry entry, bool splits) {
    Declarations members = declarations_of(problem_, config, instance);
    members.number("unrolled_workers", config.table == TableForm::unrolled ? entry.workers : 0);
    members.flag("splits", splits, "some items are shared");
    if (problem_.image_alignment != 0)
      members.append(transposition_declarations(TransposedImages(problem_), problem_.image_alignment,
                                                instance, entry.workspace.counter_bytes,
                                                entry.workspace.bytes_per_tile));
    if (problem_.normalisation)
      members.append(normalisation_declarations(problem_, instance, config.table == TableForm::attached));
    write_kernel(source_.text, problem_,
                 {.index = index(),
                  .symbols = entry.passes,
                  .function = family_of(problem_, target_, config).function,
                  .threads = instance.threads,
                  .ctas = instance.ctas,
                  .tensor_maps = instance.tensor_maps.size(),
                  .panels = has_panels(config),
                  .takes_tables = config.table == TableForm::attached,
                  .overlaps = begins_early(instance),
                  .members = members.text()});
    source_.entries.push_back(std::move(entry));
  }

  const Spmm& problem_;
  const Target& target_;
  Source& source_;
  TableWriter tables_;
};

/// Writes everything that depends on the problem: what follows the templates.
void write_kernels(const Spmm& problem, const Target& target, const Plan& plan,
                   const std::vector<Schedule>& schedules, Source& source) {
  const bool without_layout = attached(plan);
  if (schedules.size() != (without_layout ? 0 : plan.size()))
    throw Error(ErrorKind::internal,
                fmt::format("a plan of {} entries came with {} schedules", plan.size(), schedules.size()));
  if (problem.epilogue.edge_bias) write_edge_runs(source, problem.convolution);
  KernelWriter writer(problem, target, source);
  const std::int64_t counters_in_front = without_layout ? 0 : counter_bytes(problem, plan, schedules);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (without_layout)
      writer.write_attached(plan[i], first_with_config(plan, i));
    else
      writer.write_baked(plan[i], schedules[i], counters_in_front);
  }
  if (writer.constant_bytes() > kConstantTableLimit)
    refuse(fmt::format(
        "the tables of {} entries take {} bytes, more than the {} of constant memory; table=global "
        "would work",
        plan.size(), writer.constant_bytes(), kConstantTableLimit));
}

}  // namespace

Source emit(const Spmm& problem, const Target& target, const Plan& plan,
            const std::vector<Schedule>& schedules) {
  for (const RangedConfig& range : plan) validate(problem, target, range.config);
  Source source;
  write_header(source.text, problem, target, plan);
  std::set<std::string> written;
  for (const RangedConfig& range : plan)
    write_template(source.text, fmt::format("{}.cuh", family_of(problem, target, range.config).function),
                   written);
  if (problem.image_alignment != 0) write_template(source.text, "images.cuh", written);
  if (problem.normalisation) write_template(source.text, "normalise.cuh", written);
  write_kernels(problem, target, plan, schedules, source);
  return source;
}

Recipe recipe_of(const Spmm& problem, const Target& target, const Plan& plan,
                 const std::vector<Schedule>& schedules) {
  Source source;
  write_kernels(problem, target, plan, schedules, source);
  return source;
}

}  // namespace sparsekiln::cuda

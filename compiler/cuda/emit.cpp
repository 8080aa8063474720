#include "compiler/cuda/emit.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <sparsekiln/config.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/table_text.h"
#include "compiler/cuda/tables.h"
#include "compiler/cuda/template_text.h"
#include "compiler/cuda/types.h"
#include "compiler/named.h"
#include "compiler/plan.h"

namespace sparsekiln::cuda {
namespace {

/// Every family of kernels.
const std::array kFamilies{&kSimt, &kMma, &kStream};

const Family* family_of(Variant variant) {
  const auto* const found = std::find_if(kFamilies.begin(), kFamilies.end(),
                                         [&](const Family* family) { return family->variant == variant; });
  return found == kFamilies.end() ? nullptr : *found;
}

Instance instance_of(const Spmm& problem, const Target& target, const Config& config) {
  Instance instance = family_of(config.variant)->instantiate(problem, target, config);
  instance.chunk.weights = problem.weights();
  return instance;
}

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::invalid_argument, why); }

void write_header(std::string& text, const Spmm& problem, const Target& target, const Plan& plan) {
  const Layout& weight = problem.weight;
  const BlockShape block = problem.weight_block();
  const char* const formula =
      problem.by_columns() ? "dx[n, in] = dy[n, out] * W[out, in]" : "y[n, out] = x[n, in] * W[out, in]^T";
  text +=
      fmt::format("// Sparsekiln: {} of a block-sparse linear layer, {}\n", name(problem.operation), formula);
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
      to_string(problem.batch), name(problem.dtype), name(problem.out_dtype), name(problem.math),
      name(problem.order), target.to_string());
  for (std::size_t i = 0; i < plan.size(); ++i)
    text += fmt::format("//   entry {} n <= {}: {}\n", i, plan[i].up_to, to_string(plan[i].config));
}

/// One parameter of a kernel, behind those that all kernels have.
struct Parameter {
  Argument argument;
  std::string_view declaration;  ///< Element: y's; Operand: W's
  std::string_view member;       ///< of EpilogueArguments in templates/epilogue.cuh
};

/// What a kernel reads besides x and W.
std::vector<Parameter> parameters_of(const Spmm& problem) {
  const Epilogue& epilogue = problem.epilogue;
  std::vector<Parameter> parameters;
  if (epilogue.scale)
    parameters.insert(parameters.end(),
                      {{Argument::alpha, "float", "alpha"}, {Argument::beta, "float", "beta"}});
  if (epilogue.bias) parameters.push_back({Argument::bias, "const Element*", "bias"});
  if (epilogue.glu) parameters.push_back({Argument::v, "const Operand*", "v"});
  if (epilogue.glu && epilogue.bias) parameters.push_back({Argument::v_bias, "const Element*", "v_bias"});
  if (epilogue.residual)
    parameters.insert(parameters.end(), {{Argument::residual, "const Element*", "residual"},
                                         {Argument::residual_stride, "long long", "residual_stride"}});
  if (problem.gates) parameters.push_back({Argument::gates, "const float*", "gates"});
  if (problem.derivative != Activation::none)
    parameters.insert(parameters.end(),
                      {{Argument::z, "const Operand*", "z"}, {Argument::z_stride, "long long", "z_stride"}});
  return parameters;
}

std::string replaced(std::string text, std::string_view what, const std::string& with) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
  return text;
}

void write_instantiation(std::string& text, const Spmm& problem, const Config& config, const Family& family,
                         const Instance& instance, bool splits, std::int32_t workers, std::size_t index,
                         const std::string& symbol) {
  text += fmt::format(
      "\nstruct Config{0} {{\n"
      "  using Table = Table{0};\n"
      "{1}"
      "  enum : int {{\n"
      "    block_out = {2},\n"
      "    block_in = {3},\n"
      "    tile_n = {4},  // batch entries of a tile\n"
      "    rows = {5},  // output tiles of an item\n"
      "    weights = {17},  // 2: every other one is of V, and glu by the one before\n"
      "    merge = {6},  // block rows of an output tile\n"
      "    threads = {7},\n"
      "    unrolled_workers = {8},\n"
      "    alignment = {18},  // bytes that addresses and strides of activations are multiples of\n"
      "    in_features = {19},  // where the last block column is cut; 0: it is whole\n"
      "    out_features = {20},  // likewise of the last block row\n"
      "  }};\n"
      "  // splits: some items are shared; full_tiles: no batch tile lacks entries; by_columns: blocks of W "
      "are\n"
      "  // read as if they were transposed; feature_major: x[in, n] and y[out, n].\n"
      "  enum : bool {{ splits = {9}, full_tiles = {10}, by_columns = {11}, feature_major = {12} }};\n"
      "  using Activation = sparsekiln::{13};\n"
      "  using Derivative = sparsekiln::{22};  // whose derivative at z x is multiplied by\n"
      "  enum : bool {{ scales = {14}, has_bias = {15}, has_residual = {16}, has_gates = {21}, has_z = {23} "
      "}};\n"
      "}};\n",
      index, instance.declarations, problem.block.out, problem.block.in, config.tile_n,
      config.rows * problem.weights(), config.merge, instance.threads,
      config.table == TableForm::unrolled ? workers : 0, splits,
      !problem.batch.dynamic() && problem.batch.bound() % config.tile_n == 0, problem.by_columns(),
      problem.feature_major(), activation_of(problem.epilogue.activation), problem.epilogue.scale,
      problem.epilogue.bias, problem.epilogue.residual, problem.weights(), problem.alignment, problem.cut_in,
      problem.cut_out, problem.gates, activation_of(problem.derivative),
      problem.derivative != Activation::none);
  std::string declared;
  std::string ends;
  for (const Parameter& parameter : parameters_of(problem)) {
    declared += fmt::format(",\n    {} {}", parameter.declaration, parameter.member);
    ends += fmt::format("  ends.{0} = {0};\n", parameter.member);
  }
  const bool from_launch = config.table == TableForm::attached;
  text += fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({2}, 1) {0}(\n"
      "    const Config{1}::Element* __restrict__ x, const Config{1}::Element* __restrict__ w,\n"
      "    Config{1}::Output::Element* __restrict__ y, void* workspace, int n, long long x_stride,\n"
      "    long long y_stride{6}{4}) {{\n"
      "  sparsekiln::EpilogueArguments<Config{1}> ends;\n"
      "{7}"
      "  sparsekiln::{3}<Config{1}>(x, w, y, workspace, n, x_stride, y_stride, ends, {5});\n"
      "}}\n",
      symbol, index, instance.threads, family.function,
      from_launch ? fmt::format(", const Table{} table", index) : "",
      from_launch ? "table" : fmt::format("Table{}{{}}", index),
      replaced(replaced(declared, "Element", fmt::format("Config{}::Output::Element", index)), "Operand",
               fmt::format("Config{}::Element", index)),
      ends);
}

void validate_table(const Spmm& problem, const Target& target, const Config& config, ChunkShape chunk) {
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

void validate(const Spmm& problem, const Target& target, const Config& config) {
  require_types(problem, target);
  if (target.compute_capability() < 75)
    refuse(fmt::format("target '{}': CUDA code is made for sm_75 and later", target.arch));
  const Family* const family = family_of(config.variant);
  if (family == nullptr)
    refuse(fmt::format("variant {} for {}: CUDA targets have simt, mma and stream", name(config.variant),
                       target.arch));
  family->validate(problem, target);
  if (config.packed)
    refuse(fmt::format("variant {} reads the weight as it lies; packed=0 would work", name(config.variant)));
  if (config.variant == Variant::simt && config.operand_a != Config().operand_a)
    refuse(fmt::format("variant {} has no tensor core to choose an operand of; leave operand_a out",
                       name(config.variant)));
  if (config.split < 1) refuse("a config's split is 1 or more");
  if (config.merge != 1 && config.merge != 2 && config.merge != kMostMerged)
    refuse(fmt::format("merge is 1, 2 or {}", kMostMerged));
  const std::int32_t most_rows = kMostTiles / problem.weights();
  if (config.rows < 1 || config.rows > most_rows)
    refuse(fmt::format("rows is 1 to {} on CUDA targets{}", most_rows,
                       problem.epilogue.glu ? " for a glu pair" : ""));
  if (config.merge > 1 && problem.strict_absent)
    refuse("merge fills absent blocks with zeros, which strict_absent excludes; merge=1 would work");
  if (config.merge > 1 && problem.gates)
    refuse("merge multiplies block rows together, which have gates of their own; merge=1 would work");
  const Instance instance = instance_of(problem, target, config);
  validate_table(problem, target, config, instance.chunk);
}

Workspace workspace_of(const Spmm& problem, const Config& config, const Schedule& schedule,
                       std::int64_t counters_in_front) {
  if (schedule.counters == 0) return {};
  return {counters_in_front, std::int64_t{4} * config.rows * problem.weights() * config.merge *
                                 problem.block.out * config.tile_n * schedule.partials};
}

ChunkShape chunk_shape(const Spmm& problem, const Target& target, const Config& config) {
  return instance_of(problem, target, config).chunk;
}

Source emit(const Spmm& problem, const Target& target, const Plan& plan,
            const std::vector<Schedule>& schedules) {
  const bool without_layout = attached(plan);
  if (schedules.size() != (without_layout ? 0 : plan.size()))
    throw Error(ErrorKind::internal,
                fmt::format("a plan of {} entries came with {} schedules", plan.size(), schedules.size()));
  for (const RangedConfig& range : plan) validate(problem, target, range.config);

  Source source;
  write_header(source.text, problem, target, plan);
  std::set<std::string> written;
  for (const RangedConfig& range : plan)
    write_template(source.text, fmt::format("{}.cuh", family_of(range.config.variant)->function), written);

  const std::int64_t counters_in_front = without_layout ? 0 : counter_bytes(plan, schedules);
  TableWriter writer(source.text);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const Config& config = plan[i].config;
    const Family& family = *family_of(config.variant);
    const Instance instance = instance_of(problem, target, config);
    Entry entry;
    entry.up_to = plan[i].up_to;
    entry.passes = {fmt::format("sparsekiln_{}_{}", name(problem.operation), i)};
    entry.tile_n = config.tile_n;
    entry.threads = instance.threads;
    entry.dynamic_shared_bytes = instance.dynamic_shared_bytes;
    entry.arguments = {Argument::x, Argument::w,        Argument::y,       Argument::workspace,
                       Argument::n, Argument::x_stride, Argument::y_stride};
    for (const Parameter& parameter : parameters_of(problem)) entry.arguments.push_back(parameter.argument);
    Tables tables;
    TableFigures figures;
    if (without_layout) {
      entry.arguments.push_back(Argument::tables);
      entry.workers = 0;  // whoever attaches a layout fills in the rest
    } else {
      entry.workers = schedules[i].workers();
      entry.workspace = workspace_of(problem, config, schedules[i], counters_in_front);
      tables = make_tables(schedules[i], instance.chunk);
      figures = {schedules[i].counters, entry.workspace.counter_bytes, entry.workspace.bytes_per_tile};
    }
    writer.write(i, tables, config.table, figures);
    write_instantiation(source.text, problem, config, family, instance,
                        without_layout || schedules[i].counters > 0, entry.workers, i, entry.passes.front());
    source.entries.push_back(std::move(entry));
  }
  if (writer.constant_bytes() > kConstantTableLimit)
    refuse(fmt::format(
        "the tables of {} entries take {} bytes, more than the {} of constant memory; table=global "
        "would work",
        plan.size(), writer.constant_bytes(), kConstantTableLimit));
  return source;
}

}  // namespace sparsekiln::cuda

#include "compiler/cuda/emit.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <sparsekiln/config.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/simt_shape.h"
#include "compiler/cuda/tables.h"
#include "templates/templates.h"

namespace sparsekiln::cuda {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::invalid_argument, why); }

/// The workspace of one entry; nothing where no row is split.
Workspace workspace_of(const Problem& problem, const Config& config, const Schedule& schedule,
                       std::int64_t counters_in_front) {
  if (schedule.counters == 0) return {};
  return {counters_in_front, std::int64_t{4} * problem.block.out * config.tile_n * schedule.partials};
}

void write_header(std::string& text, const Problem& problem, const Target& target, const Plan& plan) {
  const Layout& layout = problem.layout;
  text += fmt::format(
      "// Sparsekiln: {} of a block-sparse linear layer, y[n, {}] = x[n, {}] * W[{}, {}]^T\n"
      "//   layout  {} x {} blocks of {} (out x in), {} present, density {:.4f}\n"
      "//   digest  {}\n"
      "//   batch   {}\n"
      "//   types   {} to {}, math {}, {}\n"
      "//   target  {}\n",
      name(problem.operation), problem.out_features(), problem.in_features(), problem.out_features(),
      problem.in_features(), layout.rows(), layout.cols(), to_string(problem.block), layout.blocks(),
      layout.statistics().density, layout.digest().hex(), to_string(problem.batch), name(problem.dtype),
      name(problem.out_dtype), name(problem.math), name(problem.order), target.to_string());
  for (std::size_t i = 0; i < plan.size(); ++i)
    text += fmt::format("//   entry {} n <= {}: {}\n", i, plan[i].up_to, to_string(plan[i].config));
}

/// A template with the templates it includes in front of it, each once: NVRTC is given one string.
void write_template(std::string& text, std::string_view file, std::set<std::string_view>& written) {
  if (!written.insert(file).second) return;
  std::string_view rest = templates::text(file);
  std::string own;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    constexpr std::string_view kInclude = "#include \"";
    if (line.starts_with(kInclude)) {
      const std::string_view name = line.substr(kInclude.size());
      write_template(text, name.substr(0, name.find('"')), written);
    } else if (line != "#pragma once") {
      own += line;
      own += '\n';
    }
  }
  text += fmt::format("\n// ---- {}\n", file);
  text += own.substr(own.find_first_not_of('\n'));
}

void write_instantiation(std::string& text, const Problem& problem, const Config& config,
                         const SimtShape& shape, const Workspace& workspace, std::int32_t counters,
                         std::size_t index, const std::string& symbol) {
  text += fmt::format(
      "\nstruct Forward{0} {{\n"
      "  using Table = Table{0};\n"
      "  enum : int {{\n"
      "    block_out = {1},\n"
      "    block_in = {2},\n"
      "    tile_n = {3},    // batch entries of a tile\n"
      "    tile_out = {4},  // outputs a thread\n"
      "    threads = {5},\n"
      "    stages = {6},\n"
      "    chunk = {7},  // k of one stage\n"
      "  }};\n"
      "  enum : bool {{ async_copy = {8}, splits = {9} }};\n"
      "  // The workspace: `counters` for each batch tile, in counter_bytes, then the sums of each tile's "
      "parts.\n"
      "  enum : long long {{ counters = {10}, counter_bytes = {11}, tile_bytes = {12} }};\n"
      "}};\n",
      index, problem.block.out, problem.block.in, config.tile_n, config.tile_out, shape.threads,
      config.stages, shape.chunk, shape.async_copy, counters > 0, counters, workspace.counter_bytes,
      workspace.bytes_per_tile);
  text += fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({2}, 1) {0}(\n"
      "    const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, void* "
      "workspace,\n"
      "    int n, long long x_stride, long long y_stride) {{\n"
      "  sparsekiln::linear_simt<Forward{1}>(x, w, y, workspace, n, x_stride, y_stride);\n"
      "}}\n",
      symbol, index, shape.threads);
}

}  // namespace

void validate(const Problem& problem, const Target& target, const Config& config) {
  if (target.compute_capability() < 75)
    refuse(fmt::format("target '{}': CUDA code is made for sm_75 and later", target.arch));
  if (config.variant != Variant::simt)
    refuse(fmt::format("variant {} for {}: CUDA targets have simt", name(config.variant), target.arch));
  if (problem.operation != Operation::forward)
    refuse(fmt::format("variant simt computes forward, not {}", name(problem.operation)));
  if (problem.dtype != DType::f32 || problem.out_dtype != DType::f32)
    refuse(fmt::format("variant simt computes f32 to f32, not {} to {}; the cpu target has bf16",
                       name(problem.dtype), name(problem.out_dtype)));
  if (problem.math != Math::ieee)
    refuse(fmt::format("variant simt computes with math ieee, not {}", name(problem.math)));
  if (problem.order != ActivationOrder::batch_major)
    refuse(fmt::format("variant simt reads batch-major activations, not {}", name(problem.order)));
  if (config.packed) refuse("variant simt reads the weight as it lies; packed=0 would work");
  if (config.split < 1) refuse("a config's split is 1 or more");
  (void)simt_shape(problem.block, target, config);
  const std::int64_t bound = constant_table_bound(problem, std::int64_t{target.workers} * config.split);
  if (config.table == TableForm::constant && bound > kConstantTableLimit)
    refuse(
        fmt::format("a table of up to {} bytes does not fit the {} bytes of constant memory; table=global "
                    "would work",
                    bound, kConstantTableLimit));
}

Source emit(const Problem& problem, const Target& target, const Plan& plan,
            const std::vector<Schedule>& schedules) {
  if (plan.size() != schedules.size())
    throw Error(ErrorKind::internal,
                fmt::format("a plan of {} entries came with {} schedules", plan.size(), schedules.size()));
  for (const RangedConfig& range : plan) validate(problem, target, range.config);

  Source source;
  write_header(source.text, problem, target, plan);
  std::set<std::string_view> written;
  write_template(source.text, "linear_simt.cuh", written);

  const std::int64_t counters_in_front = counter_bytes(plan, schedules);
  TableWriter tables(problem, source.text);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const Config& config = plan[i].config;
    const SimtShape shape = simt_shape(problem.block, target, config);
    Entry entry;
    entry.up_to = plan[i].up_to;
    entry.passes = {fmt::format("sparsekiln_forward_{}", i)};
    entry.workers = schedules[i].workers();
    entry.tile_n = config.tile_n;
    entry.threads = shape.threads;
    entry.arguments = {Argument::x, Argument::w,        Argument::y,       Argument::workspace,
                       Argument::n, Argument::x_stride, Argument::y_stride};
    entry.workspace = workspace_of(problem, config, schedules[i], counters_in_front);
    tables.write(i, schedules[i], config.table);
    write_instantiation(source.text, problem, config, shape, entry.workspace, schedules[i].counters, i,
                        entry.passes.front());
    source.entries.push_back(std::move(entry));
  }
  if (tables.constant_bytes() > kConstantTableLimit)
    refuse(fmt::format(
        "the tables of {} entries take {} bytes, more than the {} of constant memory; table=global "
        "would work",
        plan.size(), tables.constant_bytes(), kConstantTableLimit));
  return source;
}

}  // namespace sparsekiln::cuda

#include "compiler/cpu/emit.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>

#include <sparsekiln/error.h>

#include "compiler/cpu/level.h"
#include "compiler/cpu/passes.h"
#include "compiler/cpu/vector_ir.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::int32_t kMostTokens = 128;  ///< of a batch tile: its sums live on the stack and in L1

/// Of x in one chunk of blocks. Two chunks, the one in use and the one being fetched, share L1 (32 KiB on
/// most processors) with the weight and the sums.
constexpr std::int32_t kChunkBytes = 8192;

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

llvm::GlobalVariable* table(llvm::Module& module, const std::string& name,
                            const std::vector<std::int32_t>& values) {
  const std::vector<std::uint32_t> bits(values.begin(), values.end());
  auto* data = llvm::ConstantDataArray::get(module.getContext(), llvm::ArrayRef(bits));
  auto* global =
      new llvm::GlobalVariable(module, data->getType(), true, llvm::GlobalValue::InternalLinkage, data, name);
  global->setAlignment(llvm::Align(64));
  return global;
}

/// A launch chooses its entry by n, and all of them read the same weight.
void refuse_two_orders(const Geometry& one, const Geometry& other, const Plan& plan) {
  if (one.order != other.order ||
      (one.order == WeightOrder::packed && one.tile.outputs != other.tile.outputs))
    refuse(
        fmt::format("plan '{}': its configs read the weight in different orders; the same packed and, where "
                    "it is 1, register tiles of the same outputs (tile_out) would work",
                    to_string(plan)));
}

Tables make_tables(llvm::Module& module, const std::string& suffix, const Schedule& schedule, Axis axis) {
  std::vector<std::int32_t> items;
  for (const Item& item : schedule.items)
    items.insert(items.end(),
                 {item.tile, item.first_step, item.steps, item.part, item.parts, item.partial, item.counter});
  std::vector<std::int32_t> columns;
  std::vector<std::int32_t> blocks;
  bool numbered_alike = true;  // steps and blocks, as where rows follow one another
  for (const Step& step : schedule.steps) {
    numbered_alike = numbered_alike && step.block[0] == static_cast<std::int32_t>(blocks.size());
    columns.push_back(step.input());
    blocks.push_back(step.block[0]);
  }
  if (!numbered_alike && axis != Axis::token)
    throw Error(ErrorKind::internal,
                "only the pass along tokens looks blocks up; the others take them in turn");
  columns.insert(columns.end(), static_cast<std::size_t>(kColumnsBehind), 0);
  blocks.insert(blocks.end(), static_cast<std::size_t>(kColumnsBehind), 0);
  return {table(module, "worker_begin" + suffix, schedule.worker_begin),
          table(module, "items" + suffix, items), table(module, "columns" + suffix, columns),
          numbered_alike ? nullptr : table(module, "blocks" + suffix, blocks)};
}

std::string heading(const Spmm& problem, const Target& target, const Plan& plan) {
  const Layout& weight = problem.weight;
  return fmt::format(
      "; Sparsekiln: {}, y[n, {}] = x[n, {}] · B^T, W of {} blocks of {} in {} x {} (layout {})\n"
      "; {} -> {}, accumulated in f32; batch {}; target {}\n"
      "; plan {}\n"
      "; call = {{ x, w, y, workspace, n, x_stride, y_stride }}; items = {{ output, first_step, steps, part, "
      "parts, "
      "partial, counter }}\n",
      name(problem.operation), problem.out_features(), problem.in_features(), weight.blocks(),
      to_string(problem.weight_block()), weight.rows(), weight.cols(), weight.digest().hex(),
      name(problem.dtype), name(problem.out_dtype), to_string(problem.batch), target.to_string(),
      to_string(plan));
}

}  // namespace

Geometry::Geometry(const Spmm& problem, const Level& level, const Config& config, const Schedule& schedule,
                   std::int64_t counters_in_front)
    : dtype(problem.dtype),
      out_dtype(problem.out_dtype),
      block_out(problem.block.out),
      tile_n(config.tile_n),
      workers(schedule.workers()),
      axis(axis_of(level, block_out, dtype, config)),
      order(config.packed          ? WeightOrder::packed
            : problem.by_columns() ? WeightOrder::columns
                                   : WeightOrder::rows) {
  const auto per_word = static_cast<std::int32_t>(4 / size_of(dtype));
  words = problem.in_features() / per_word;
  block_words = problem.block.in / per_word;
  tile = register_tile(level, block_out, dtype, config);
  panel_bytes = axis == Axis::k ? 0 : 4 * words * tile_n;
  const std::int32_t shared = axis == Axis::output ? block_out : tile_n;
  chunk = std::clamp(kChunkBytes / (4 * block_words * shared), 1, kColumnsBehind);
  sums_bytes = std::int64_t{4} * block_out * tile_n;
  counters = schedule.counters;
  workspace.counter_bytes = counters > 0 ? counters_in_front : 0;
  workspace.bytes_per_tile = (panel_bytes + sums_bytes * schedule.partials + 63) / 64 * 64;
}

void validate(const Spmm& problem, const Target& target, const Config& config) {
  const Level& level = level_of(target);
  const std::string given = to_string(config);
  if (config.variant != Variant::vector)
    refuse(
        fmt::format("config '{}' on {}: the cpu target has the variant 'vector'", given, target.to_string()));
  require_built(problem, target.to_string());
  if (problem.epilogue != Epilogue{})
    refuse(fmt::format("epilogue {} on the cpu target: none, or a CUDA target, would work",
                       to_string(problem.epilogue)));
  if (problem.order != ActivationOrder::batch_major)
    refuse("the cpu target computes on batch-major activations");
  if (problem.by_columns() && (problem.dtype != DType::f32 || config.packed))
    refuse(fmt::format("{} on the cpu target reads W as it lies, in f32; dtype f32 and packed=0 would work",
                       name(problem.operation)));
  if (problem.math != Math::ieee)
    refuse(fmt::format("math {} on the cpu target: ieee, or a CUDA target of sm_80 or later, would work",
                       name(problem.math)));
  if (problem.dtype == DType::f16 || problem.out_dtype == DType::f16)
    refuse("data type f16 on the cpu target: f32 and bf16 are built; for f16, a CUDA target would work");
  const bool thin = !problem.by_columns() && (config.tile_n == 1 || config.tile_n == 2 || config.tile_n == 4);
  if (!thin &&
      (config.tile_n < level.lanes || config.tile_n > kMostTokens || config.tile_n % level.lanes != 0))
    refuse(fmt::format("config '{}': on {} tile_n is {}a multiple of {} up to {}", given, level.name,
                       problem.by_columns() ? "" : "1, 2, 4 or ", level.lanes, kMostTokens));
  if (config.tile_out < 0 || config.tile_out > problem.block.out)
    refuse(fmt::format("config '{}': tile_out is 0 (automatic) to the block's {} outputs", given,
                       problem.block.out));
  if (config.split < 1 || config.split > 64) refuse(fmt::format("config '{}': split is 1 to 64", given));
  if (config.rows != 1 || config.merge != 1)
    refuse(fmt::format("config '{}': the cpu target computes row by row; rows=1 merge=1 would work", given));
  if (config.table == TableForm::unrolled || config.table == TableForm::attached)
    refuse(fmt::format(
        "config '{}': the cpu target bakes its layout as data of the object; table=global would work",
        given));
  if (config.operand_a != Config().operand_a)
    refuse(fmt::format("config '{}': the cpu has no tensor core to choose an operand of", given));
}

Source emit(const Spmm& problem, const Target& target, const Plan& plan,
            const std::vector<Schedule>& schedules) {
  const Level& level = level_of(target);
  llvm::LLVMContext context;
  llvm::Module module("sparsekiln", context);
  if (!level.triple.empty()) module.setTargetTriple(level.triple);
  VectorIr ir(module, level);
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
    const std::string forward = "forward" + suffix;
    entry.passes = {forward};
    if (geometry.axis != Axis::k && !geometry.private_panel()) entry.passes = {pack, forward};
    entry.workers = schedules[i].workers();
    entry.tile_n = geometry.tile_n;
    entry.workspace = geometry.workspace;
    const Tables tables = make_tables(module, suffix, schedules[i], geometry.axis);
    if (geometry.axis == Axis::k) {
      emit_thin_pass(ir, forward, geometry, tables);
    } else {
      const auto emit_pass = geometry.axis == Axis::output ? emit_output_pass : emit_forward_pass;
      emit_pack_pass(ir, pack, geometry);
      emit_pass(ir, forward, geometry, tables, geometry.private_panel() ? pack : "");
    }
    source.entries.push_back(std::move(entry));
  }
  llvm::raw_string_ostream text(source.text);
  if (llvm::verifyModule(module, &text))
    throw Error(ErrorKind::internal, "emitted a malformed module: " + source.text);
  text << heading(problem, target, plan);
  module.print(text, nullptr);
  text.flush();
  return source;
}

}  // namespace sparsekiln::cpu

#include "autotune/space.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "autotune/cpu_prediction.h"
#include "compiler/build.h"

namespace sparsekiln {
namespace {

// The axes. A family's space is their product, less what its constraints and the compiler refuse.

struct Tiles {
  std::int32_t rows;
  std::int32_t merge;
};

struct Axes {
  Variant variant;
  std::initializer_list<std::int32_t> tile_n;
  std::initializer_list<std::int32_t> tile_out;
  std::initializer_list<std::int32_t> stages;
  std::initializer_list<std::int32_t> warps;
  std::initializer_list<std::int32_t> split;
  std::initializer_list<Tiles> tiles;  ///< an item's output tiles, and the block rows of each
  std::initializer_list<TableForm> table;
  std::initializer_list<OperandA> operand_a;
};

constexpr TableForm kConstant = TableForm::constant;
constexpr TableForm kGlobal = TableForm::global;
constexpr TableForm kUnrolled = TableForm::unrolled;

const std::array kCudaProduct = {
    Axes{Variant::simt,
         {8, 16, 32, 64, 128},
         {1, 2, 4, 8},
         {1, 2, 3},
         {2, 4, 8},
         {1, 2, 4},
         {{1, 1}},
         {kConstant, kGlobal, kUnrolled},
         {OperandA::x}},
    Axes{Variant::mma,
         {8, 16, 24, 32, 48, 64, 128, 256},
         {0},
         {2, 4, 6},
         {2, 4, 8},
         {1, 2, 4},
         {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {1, 4}},
         {kConstant, kGlobal, kUnrolled},
         {OperandA::x, OperandA::w}},
    Axes{Variant::stream,
         {8, 16},
         {0},
         {2, 3, 4, 6, 8},
         {2, 4, 8, 16},
         {1, 2},
         {{1, 1}},
         {kConstant, kGlobal},
         {OperandA::x, OperandA::w}},
};
const std::array kCudaSddmm = {
    Axes{Variant::simt,
         {8, 16, 32, 64},
         {4, 8},
         {2, 3, 4},
         {2, 4, 8},
         {1, 2, 4},
         {{1, 1}, {2, 1}, {4, 1}, {8, 1}},
         {kConstant, kGlobal},
         {OperandA::x}},
    Axes{Variant::mma,
         {16, 32, 64, 128},
         {0},
         {2, 3, 4},
         {1, 2, 4, 8},
         {1, 2, 4},
         {{1, 1}, {2, 1}, {4, 1}, {8, 1}},
         {kConstant, kGlobal},
         {OperandA::x}},
};
const std::array kCpuProduct = {
    Axes{Variant::vector,
         {1, 2, 4, 8, 16, 24, 32, 48, 64},
         {0, 2, 3, 4, 6, 8},
         {1},
         {1},
         {1, 2, 4, 8},
         {{1, 1}},
         {kGlobal},
         {OperandA::x}},
};
const std::array kCpuSddmm = {
    Axes{Variant::vector,
         {16, 32, 64, 128},
         {0},
         {1, 2},
         {1},
         {1, 2, 4, 8},
         {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {8, 1}},
         {kGlobal},
         {OperandA::x}},
};

std::span<const Axes> axes_of(const Problem& problem, const Target& target) {
  const bool gradient = problem.operation == Operation::grad_weight;
  if (target.kind == Target::Kind::cpu)
    return gradient ? std::span<const Axes>(kCpuSddmm) : std::span<const Axes>(kCpuProduct);
  return gradient ? std::span<const Axes>(kCudaSddmm) : std::span<const Axes>(kCudaProduct);
}

// The constraints: what works and is never worth a try.

struct Case {
  const Problem& problem;
  const Target& target;
  std::int64_t n;
  const Config& config;
};

/// Each chunk of at most four blocks has its own code, of which the compiler takes eight.
constexpr std::int64_t kUnrolledBlocks = 32;

struct Constraint {
  bool (*holds)(const Case&);
  const char* reason;
};

bool is_product(const Case& one) { return one.problem.operation != Operation::grad_weight; }

bool on_tensor_cores(const Case& one) { return is_product(one) && one.config.variant == Variant::mma; }

bool same_tiles_as_less(const Case& one) {
  if (one.target.kind != Target::Kind::cpu || !is_product(one)) return false;
  const auto tile = cpu::expected_tile(one.problem, one.target, one.config);
  Config less = one.config;
  const auto same = [&](std::int32_t tile_out) {
    less.tile_out = tile_out;
    return tile_out < one.config.tile_out && cpu::expected_tile(one.problem, one.target, less) == tile;
  };
  const auto& values = kCpuProduct.front().tile_out;
  return std::any_of(values.begin(), values.end(), same);
}

constexpr std::array kConstraints = {
    Constraint{[](const Case& one) {
                 return !is_product(one) || one.config.tile_n < std::max<std::int64_t>(2 * one.n, 16);
               },
               "the tile has at least twice as many batch entries as the batch"},
    Constraint{[](const Case& one) {
                 return !is_product(one) || one.target.kind == Target::Kind::cpu || one.config.tile_n >= 64 ||
                        8 * std::int64_t{one.config.tile_n} >= one.n;
               },
               "the batch has so many of such small tiles that the weight is read again and again"},
    Constraint{[](const Case& one) { return one.config.rows <= std::max(one.problem.layout.rows(), 1); },
               "there are fewer block rows than output tiles of an item"},
    Constraint{[](const Case& one) {
                 if (one.target.kind == Target::Kind::cpu) return true;
                 return (one.config.variant == Variant::simt) == one.problem.ieee() ||
                        one.config.variant == Variant::stream;
               },
               "tensor cores multiply types that CUDA cores do not, and the other way round"},
    Constraint{[](const Case& one) {
                 return !on_tensor_cores(one) || one.config.operand_a == OperandA::w ||
                        one.config.tile_n % 16 == 0;
               },
               "the rows of a tensor core's A are 16 batch entries"},
    Constraint{[](const Case& one) {
                 if (!on_tensor_cores(one)) return true;
                 const BlockShape block = one.problem.block;
                 const bool turned = one.problem.operation == Operation::grad_input;
                 const std::int32_t outputs = (turned ? block.in : block.out) * one.config.merge;
                 return outputs * one.config.tile_n >= 128 * one.config.warps;
               },
               "there are fewer tensor-core tiles than warps"},
    Constraint{
        [](const Case& one) {
          return one.config.merge == 1 || (one.problem.operation == Operation::forward &&
                                           !one.problem.strict_absent && !one.problem.gates);
        },
        "block rows are merged in forward products alone, without gates, where zeros may fill them up"},
    Constraint{[](const Case& one) {
                 return one.config.table != TableForm::unrolled ||
                        one.problem.layout.blocks() <= kUnrolledBlocks;
               },
               "there are too many blocks for each to have code of its own"},
    Constraint{[](const Case& one) { return !same_tiles_as_less(one); },
               "a smaller tile_out gives the same register tiles"},
    // The tables of all ranges of a dynamic batch share the constant memory: the plan's maker chooses.
    Constraint{[](const Case& one) {
                 return !one.problem.batch.dynamic() || one.target.kind == Target::Kind::cpu ||
                        one.config.table == TableForm::global;
               },
               "the form of a dynamic batch's tables is chosen for all of its ranges together"},
};

const char* broken_constraint(const Case& one) {
  for (const Constraint& constraint : kConstraints)
    if (!constraint.holds(one)) return constraint.reason;
  return nullptr;
}

void each(const Axes& axes, const auto& use) {
  Config config;
  config.variant = axes.variant;
  for (const OperandA operand_a : axes.operand_a)
    for (const TableForm table : axes.table)
      for (const std::int32_t tile_n : axes.tile_n)
        for (const std::int32_t tile_out : axes.tile_out)
          for (const std::int32_t warps : axes.warps)
            for (const std::int32_t split : axes.split)
              for (const Tiles& tiles : axes.tiles)
                for (const std::int32_t stages : axes.stages) {
                  config.operand_a = operand_a;
                  config.table = table;
                  config.tile_n = tile_n;
                  config.tile_out = tile_out;
                  config.warps = warps;
                  config.split = split;
                  config.rows = tiles.rows;
                  config.merge = tiles.merge;
                  config.stages = stages;
                  use(config);
                }
}

}  // namespace

Space space_of(const Problem& problem, const Target& target, std::int64_t n) {
  Space space;
  const ConfigCheck check(problem, target);
  for (const Axes& axes : axes_of(problem, target))
    each(axes, [&](const Config& config) {
      std::string reason;
      if (const char* const broken = broken_constraint({problem, target, n, config}))
        reason = broken;
      else
        reason = check.refusal(config);
      if (reason.empty())
        space.configs.push_back(config);
      else
        space.rejected.push_back({config, std::move(reason)});
    });
  return space;
}

}  // namespace sparsekiln

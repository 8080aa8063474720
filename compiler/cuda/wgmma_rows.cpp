#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/types.h"
#include "compiler/cuda/wgmma_problem.h"
#include "compiler/cuda/wgmma_rows_shape.h"
#include "compiler/cuda/wgmma_rows_tuning.h"

namespace sparsekiln::cuda {
namespace {

bool is_side(std::int32_t side) { return side == 16 || side == 32 || side == 64; }

void validate(const Spmm& problem, const Target& target) {
  require_wgmma_operands(problem, target);
  const BlockShape block = problem.weight_block();
  require_wgmma(
      is_side(block.out) && is_side(block.in),
      fmt::format("variant wgmma_rows takes blocks whose sides are 16, 32 or 64, not {}", to_string(block)));
  require_wgmma(size_of(problem.dtype) == 2,
                fmt::format("variant wgmma_rows multiplies types of 16 bits, not {}", name(problem.dtype)));
  require_wgmma(problem.cut_in == 0,
                fmt::format("variant wgmma_rows reads whole blocks of features, not {} of them",
                            problem.in_features()));
  require_wgmma(problem.weights() == 1,
                fmt::format("variant wgmma_rows multiplies with one weight, not {}", problem.weights()));
}

/// x in boxes of a line of a batch tile's rows; W in boxes of a block in place, of which each CTA
/// of a cluster brings its share.
std::vector<TensorMap> tensor_maps(const Spmm& problem, const Config& config, const WgmmaRowsShape& shape) {
  const BlockShape block = problem.weight_block();
  return {{.operand = Argument::x,
           .type = problem.dtype,
           .row_length = problem.in_features(),
           .box_length = shape.line_bytes / static_cast<std::int32_t>(size_of(problem.dtype)),
           .box_rows = config.tile_n,
           .swizzle_bytes = shape.line_bytes},
          {.operand = Argument::w,
           .type = problem.dtype,
           .row_length = block.in,
           .rows = std::max<std::int64_t>(problem.layout.blocks(), 1) * block.out,
           .stride = block.in,
           .box_length = block.in,
           .box_rows = block.out / config.cluster,
           .swizzle_bytes = shape.piece_bytes}};
}

Instance instantiate(const Spmm& problem, const Target& target, const Config& config) {
  const WgmmaRowsShape shape = wgmma_rows_shape(problem, target, config);
  Instance instance;
  instance.threads = shape.threads;
  instance.chunk = shape.chunk;
  instance.dynamic_shared_bytes = static_cast<std::int32_t>(shape.shared_bytes);
  instance.attributes.cluster = {config.cluster_rows, config.cluster};
  instance.tensor_maps = tensor_maps(problem, config, shape);
  Declarations& members = instance.declarations;
  members.type("Product", fmt::format("sparsekiln::{}", product_of(problem.dtype)));
  members.type("Element", "Product::Element");
  members.type("Output", fmt::format("sparsekiln::{}", output_of(problem.out_dtype)));
  members.number("stages", shape.stages_x, "lines of x");
  members.number("stages_w", shape.stages_w, "blocks of W, or merged ones, of a warpgroup");
  members.number("cluster", config.cluster, "batch tiles that share W");
  members.number("line_bytes", shape.line_bytes, "of a line of x along k");
  members.number("columns", shape.columns, "batch rows of an instruction");
  members.number("operands", wgmma_operands_of(problem.dtype), "ptx::WgmmaOperands");
  return instance;
}

}  // namespace

extern const SpmmFamily kSpmmWgmmaRows;
const SpmmFamily kSpmmWgmmaRows{
    Variant::wgmma_rows,   "spmm_wgmma_rows", Arithmetic::tensor_cores, validate, instantiate,
    &kSpmmWgmmaRowsTuning, "sm_90a"};

}  // namespace sparsekiln::cuda

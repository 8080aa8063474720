#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/types.h"
#include "compiler/cuda/wgmma_problem.h"
#include "compiler/cuda/wgmma_shape.h"
#include "compiler/cuda/wgmma_tuning.h"

namespace sparsekiln::cuda {
namespace {

void validate(const Spmm& problem, const Target& target) {
  require_wgmma(problem, problem.weight_block(), target);
  require_wgmma(size_of(problem.dtype) == 2 || !problem.by_columns(),
                "wgmma reads blocks by columns only where their elements have 16 bits");
  require_wgmma(
      problem.cut_in == 0,
      fmt::format("variant wgmma reads whole blocks of features, not {} of them", problem.in_features()));
  require_wgmma(problem.weights() <= 2,
                fmt::format("variant wgmma multiplies with one or two weights, not {}", problem.weights()));
}

/// The map of blocks that follow one another in memory, in boxes of a block's rows and a line's bytes of its
/// columns; where blocks are read by columns, of as many rows. Each CTA of a cluster brings its share of a
/// box.
TensorMap map_of_weight(const Spmm& problem, const Config& config, Argument weight, const WgmmaShape& shape) {
  const BlockShape block = problem.weight_block();
  const auto length = shape.line_bytes / static_cast<std::int32_t>(size_of(problem.dtype));
  return {.operand = weight,
          .type = problem.dtype,
          .row_length = block.in,
          .rows = std::max<std::int64_t>(problem.layout.blocks(), 1) * block.out,
          .stride = block.in,
          .box_length = length,
          .box_rows = (problem.by_columns() ? length : block.out) / config.cluster,
          .swizzle_bytes = shape.line_bytes,
          .interleave = problem.by_columns() ? 0 : shape.interleave,
          .to_tf32 = problem.dtype == DType::f32};
}

std::vector<TensorMap> tensor_maps(const Spmm& problem, const Config& config, const WgmmaShape& shape) {
  const auto length = shape.line_bytes / static_cast<std::int32_t>(size_of(problem.dtype));
  std::vector<TensorMap> maps{{.operand = Argument::x,
                               .type = problem.dtype,
                               .row_length = problem.in_features(),
                               .box_length = length,
                               .box_rows = config.tile_n / config.cluster_rows,
                               .swizzle_bytes = shape.line_bytes,
                               .to_tf32 = problem.dtype == DType::f32},
                              map_of_weight(problem, config, Argument::w, shape)};
  if (problem.weights() > 1) maps.push_back(map_of_weight(problem, config, Argument::v, shape));
  return maps;
}

Instance instantiate(const Spmm& problem, const Target& target, const Config& config) {
  const WgmmaShape shape = wgmma_shape(problem, target, config);
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
  members.number("stages", shape.stages_x, "tiles of x");
  members.number("stages_w", shape.stages_w, "blocks of W, or merged ones");
  members.number("cluster", config.cluster, "batch tiles that share W");
  members.number("interleave", shape.interleave, "neighboring outputs of a thread");
  members.number("line_bytes", shape.line_bytes, "of a chunk along k");
  members.number("operands", wgmma_operands_of(problem.dtype), "ptx::WgmmaOperands");
  return instance;
}

}  // namespace

extern const SpmmFamily kSpmmWgmma;
const SpmmFamily kSpmmWgmma{Variant::wgmma,    "spmm_wgmma", Arithmetic::tensor_cores, validate, instantiate,
                            &kSpmmWgmmaTuning, "sm_90a"};

}  // namespace sparsekiln::cuda

#include "compiler/cpu/weight_order.h"

namespace sparsekiln::cpu {

std::int32_t word_elements(DType dtype, bool by_columns) {
  return dtype == DType::bf16 && !by_columns ? 2 : 1;
}

WeightStrides weight_strides(WeightOrder order, std::int32_t tile_outputs, std::int32_t block_out,
                             std::int32_t block_words) {
  switch (order) {
    case WeightOrder::rows:
      return {block_words, 1};
    case WeightOrder::columns:
      return {1, block_out};
    case WeightOrder::packed:
      return {1, tile_outputs};
  }
  return {};
}

}  // namespace sparsekiln::cpu

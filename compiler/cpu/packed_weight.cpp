#include "compiler/cpu/packed_weight.h"

#include <cstddef>
#include <cstring>

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

void pack_weight(std::int64_t blocks, BlockShape block, DType dtype, const RegisterTile& tile, const void* w,
                 void* packed) {
  const std::int32_t elements = word_elements(dtype, false);
  const std::int32_t words = block.in / elements;
  const std::size_t word = size_of(dtype) * static_cast<std::size_t>(elements);
  const auto bytes = [&](std::int64_t count) { return count * static_cast<std::int64_t>(word); };
  const auto* from = static_cast<const std::byte*>(w);
  auto* to = static_cast<std::byte*>(packed);
  for (std::int64_t b = 0; b < blocks; ++b)
    for (const std::int32_t outputs : tile.outputs) {
      const WeightStrides source = weight_strides(WeightOrder::rows, outputs, block.out, words);
      const WeightStrides target = weight_strides(WeightOrder::packed, outputs, block.out, words);
      for (std::int32_t k = 0; k < words; ++k)
        for (std::int32_t output = 0; output < outputs; ++output)
          std::memcpy(to + bytes(output * target.output + k * target.k),
                      from + bytes(output * source.output + k * source.k), word);
      from += bytes(std::int64_t{outputs} * words);
      to += bytes(std::int64_t{outputs} * words);
    }
}

}  // namespace sparsekiln::cpu

#include "compiler/cpu/packed_weight.h"

#include <cstddef>
#include <cstring>

namespace sparsekiln::cpu {

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

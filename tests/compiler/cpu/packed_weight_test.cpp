#include "compiler/cpu/packed_weight.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

namespace sparsekiln::cpu {
namespace {

constexpr const char* kLevels[] = {"x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "generic"};

template <class Element>
std::vector<Element> numbered(std::size_t size) {
  std::vector<Element> values(size);
  std::iota(values.begin(), values.end(), Element{0});
  return values;
}

TEST_CASE("a block is packed tile by tile, and within a tile word by word over its outputs") {
  // Four outputs of two words, in tiles of one and three outputs: 2·output + word.
  const RegisterTile tile{{1, 3}, 1};
  const auto w = numbered<std::uint32_t>(16);
  std::vector<std::uint32_t> packed(16, 99);
  pack_weight(2, {4, 2}, DType::f32, tile, w.data(), packed.data());
  CHECK(packed == std::vector<std::uint32_t>{0, 1, 2, 4, 6, 3, 5, 7, 8, 9, 10, 12, 14, 11, 13, 15});
}

TEST_CASE("bf16 is packed in pairs along k") {
  const RegisterTile tile{{2}, 1};
  const auto w = numbered<std::uint16_t>(8);  // two outputs of two pairs
  std::vector<std::uint16_t> packed(8, 99);
  pack_weight(1, {2, 4}, DType::bf16, tile, w.data(), packed.data());
  CHECK(packed == std::vector<std::uint16_t>{0, 1, 4, 5, 2, 3, 6, 7});
}

TEST_CASE("f16 is packed element by element: it is widened before it is multiplied") {
  const RegisterTile tile{{2}, 1};
  const auto w = numbered<std::uint16_t>(8);
  std::vector<std::uint16_t> packed(8, 99);
  pack_weight(1, {2, 4}, DType::f16, tile, w.data(), packed.data());
  CHECK(packed == std::vector<std::uint16_t>{0, 4, 1, 5, 2, 6, 3, 7});
}

TEST_CASE("only bf16 by rows lies in pairs along k") {
  CHECK(word_elements(DType::bf16, false) == 2);
  CHECK(word_elements(DType::bf16, true) == 1);
  for (const bool by_columns : {false, true})
    for (const DType dtype : {DType::f32, DType::f16}) CHECK(word_elements(dtype, by_columns) == 1);
}

TEST_CASE("by columns the outputs of a word are neighbours, whatever the register tile") {
  // A block of four outputs by two words as W's transpose has it: word 0 of all outputs, then word 1.
  const std::vector<int> block = {0, 10, 20, 30, 1, 11, 21, 31};  // 10·output + word
  for (const std::int32_t tile_outputs : {1, 2, 4}) {
    const WeightStrides strides = weight_strides(WeightOrder::columns, tile_outputs, 4, 2);
    for (std::int32_t first = 0; first < 4; first += tile_outputs)
      for (std::int32_t output = 0; output < tile_outputs; ++output)
        for (std::int32_t k = 0; k < 2; ++k)
          CHECK(block[static_cast<std::size_t>(first + output * strides.output + k * strides.k)] ==
                10 * (first + output) + k);
  }
}

TEST_CASE("for tiles of few batch rows the packed weight is the unpacked one") {
  const Level& level = level_of({Target::Kind::cpu, "x86-64-v3", 1});
  const auto w = numbered<std::uint32_t>(3 * 64);
  std::vector<std::uint32_t> packed(w.size(), ~0U);
  Config thin;
  thin.tile_n = 1;
  thin.packed = true;
  pack_weight(3, {8, 8}, DType::f32, register_tile(level, 8, DType::f32, thin), w.data(), packed.data());
  CHECK(packed == w);
}

TEST_CASE("every word is packed exactly once, to where the strides of its tile say") {
  constexpr std::int64_t kBlocks = 3;
  for (const char* name : kLevels)
    for (const std::int32_t out : {8, 16, 32, 128})
      for (const std::int32_t in : {8, 64})
        for (const std::int32_t tile_out : {0, 1, 3, 8}) {
          const Level& level = level_of({Target::Kind::cpu, name, 1});
          Config config;
          config.tile_n = 3 * level.lanes;
          config.tile_out = tile_out;
          config.packed = true;
          const RegisterTile tile = register_tile(level, out, DType::f32, config);
          const auto block = static_cast<std::size_t>(out * in);
          const auto w = numbered<std::uint32_t>(kBlocks * block);
          std::vector<std::uint32_t> packed(w.size(), ~0U);
          pack_weight(kBlocks, {out, in}, DType::f32, tile, w.data(), packed.data());
          std::vector<int> seen(w.size());
          for (const std::uint32_t word : packed)
            if (word < seen.size()) ++seen[word];
          CHECK(seen == std::vector<int>(w.size(), 1));
          std::size_t base = block;  // of the tile, in the second block
          std::int64_t misplaced = 0;
          for (const std::int32_t outputs : tile.outputs) {
            const WeightStrides from = weight_strides(WeightOrder::rows, outputs, out, in);
            const WeightStrides to = weight_strides(WeightOrder::packed, outputs, out, in);
            for (std::int32_t output = 0; output < outputs; ++output)
              for (std::int32_t k = 0; k < in; ++k)
                misplaced += packed[base + static_cast<std::size_t>(output * to.output + k * to.k)] !=
                             w[base + static_cast<std::size_t>(output * from.output + k * from.k)];
            base += static_cast<std::size_t>(outputs * in);
          }
          CHECK(misplaced == 0);
          CHECK(base == 2 * block);
        }
}

}  // namespace
}  // namespace sparsekiln::cpu

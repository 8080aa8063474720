#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/isa/lanes.h"
#include "emulator/isa/number_rows.h"
#include "emulator/isa/row8.h"
#include "emulator/program/decoder.h"

/// What mma and wgmma share: sums of 16 × 8 elements, how the registers of a warp hold them, and their
/// products with A and B.
namespace sparsekiln::emulator {

inline constexpr int kSumRows = 16;
inline constexpr int kSumColumns = 8;

// Lane 4·quad + place: quads are rows of A, C and D, and columns of B.
inline constexpr int kQuads = 8;

/// Row by row.
template <class Number>
struct Sums {
  alignas(64) Number at[kSumRows][kSumColumns];
};

/// f32 or s32 sums: registers 0 and 1 are columns 2·place and 2·place + 1 of row quad, 2 and 3 of row quad
/// + 8.
template <class Number>
struct WideSums {
  using Value = Number;
  static constexpr std::size_t kRegisters = 4;
  static void load(const Warp& warp, const Instruction& instruction, std::size_t first, Sums<Number>& sums) {
    for (std::size_t half = 0; half < 2; ++half) {
      const auto* const even = lanes::operand<const Number>(warp, instruction, first + 2 * half);
      const auto* const odd = lanes::operand<const Number>(warp, instruction, first + 2 * half + 1);
      Number* const to = sums.at[kQuads * half];
      lanes::each_lane([=](int lane) {
        to[2 * lane] = even[lane];
        to[2 * lane + 1] = odd[lane];
      });
    }
  }
  static void store(const Warp& warp, const Instruction& instruction, std::size_t first,
                    const Sums<Number>& sums) {
    for (std::size_t half = 0; half < 2; ++half) {
      auto* const even = lanes::operand<Number>(warp, instruction, first + 2 * half);
      auto* const odd = lanes::operand<Number>(warp, instruction, first + 2 * half + 1);
      const Number* const from = sums.at[kQuads * half];
      lanes::each_lane([=](int lane) {
        even[lane] = result(from[2 * lane]);
        odd[lane] = result(from[2 * lane + 1]);
      });
    }
  }

 private:
  static float result(float value) { return number::canonical(value); }
  static std::int32_t result(std::int32_t value) { return value; }
};

/// f16 sums, in pairs: register 0 is row quad, 1 is row quad + 8. Rounded once, at the end.
struct HalfSums {
  using Value = float;
  static constexpr std::size_t kRegisters = 2;
  static constexpr int kElements = kQuads * kSumColumns;  ///< of a register, in all lanes
  static void load(const Warp& warp, const Instruction& instruction, std::size_t first, Sums<float>& sums) {
    for (std::size_t half = 0; half < 2; ++half)
      number::widen_row(number::F16{}, lanes::operand<const std::uint16_t>(warp, instruction, first + half),
                        sums.at[kQuads * half], kElements);
  }
  static void store(const Warp& warp, const Instruction& instruction, std::size_t first,
                    const Sums<float>& sums) {
    for (std::size_t half = 0; half < 2; ++half)
      number::narrow_row<number::Rounding::nearest_even>(
          number::F16{}, sums.at[kQuads * half],
          lanes::operand<std::uint16_t>(warp, instruction, first + half), kElements);
  }
};

/// sums += a · b, k by k in ascending order, each with one fused multiply-add.
template <int K>
inline void multiply(const float (&a)[kSumRows][K], const float (&b)[K][kSumColumns], Sums<float>& sums) {
  constexpr int kRows = 8;  // whose sums the host keeps in registers
  for (int first = 0; first < kSumRows; first += kRows) {
    Row8 row[kRows];
    for (int m = 0; m < kRows; ++m) row[m] = load_row(sums.at[first + m]);
    for (int k = 0; k < K; ++k) {
      const Row8 right = load_row(b[k]);
      for (int m = 0; m < kRows; ++m) row[m] = fused_multiply_add(&a[first + m][k], right, row[m]);
    }
    for (int m = 0; m < kRows; ++m) store_row(sums.at[first + m], row[m]);
  }
}

/// B by columns becomes B by rows.
template <int K>
inline void transpose_columns(const float (&columns)[kSumColumns][K], float (&rows)[K][kSumColumns]) {
  for (int k = 0; k < K; k += kSumColumns) {
    Row8 block[kSumColumns];
    for (int n = 0; n < kSumColumns; ++n) block[n] = load_row(&columns[n][k]);
    transpose(block);
    for (int i = 0; i < kSumColumns; ++i) store_row(rows[k + i], block[i]);
  }
}

/// The registers of one matrix; refuses another number than `count`.
[[nodiscard]] inline const std::vector<ptx::Operand>& fragment(const Decoder& decoder, std::size_t index,
                                                               std::size_t count) {
  const ptx::Operand& operand = decoder.operand(index);
  if (operand.kind != ptx::Operand::Kind::vector || operand.elements.size() != count)
    decoder.refuse("operand " + std::to_string(index + 1) + " is not a vector of " + std::to_string(count));
  return operand.elements;
}

inline void need_all_lanes(const Warp& warp, const Instruction& instruction, Mask mask) {
  if (mask != kAllLanes)
    fault(FaultKind::invalid_operation, warp, instruction, std::countr_zero(mask),
          "all 32 lanes of a warp must execute it together");
}

}  // namespace sparsekiln::emulator

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "emulator/isa/lanes.h"
#include "emulator/isa/narrow_elements.h"
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
inline void multiply(const float (&a)[kSumRows][K], const float (&b)[K][kSumColumns], Sums<float>& sums,
                     [[maybe_unused]] bool saturates = false) {
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

/// Products of 8-bit integers, then the sum, which saturates where it is said to, else wraps around.
template <int K>
inline void multiply(const std::int32_t (&a)[kSumRows][K], const std::int32_t (&b)[K][kSumColumns],
                     Sums<std::int32_t>& sums, bool saturates) {
  for (int m = 0; m < kSumRows; ++m) {
    alignas(64) std::int32_t products[kSumColumns] = {};  // at most 32 · 255 · 255
    for (int k = 0; k < K; ++k)
      for (int n = 0; n < kSumColumns; ++n) products[n] += a[m][k] * b[k][n];
    for (int n = 0; n < kSumColumns; ++n) {
      std::int64_t exact = std::int64_t{sums.at[m][n]} + products[n];
      if (saturates)
        exact = std::clamp<std::int64_t>(exact, std::numeric_limits<std::int32_t>::min(),
                                         std::numeric_limits<std::int32_t>::max());
      sums.at[m][n] = static_cast<std::int32_t>(exact);
    }
  }
}
template <int K>
inline void transpose_columns(const std::int32_t (&columns)[kSumColumns][K],
                              std::int32_t (&rows)[K][kSumColumns]) {
  for (int k = 0; k < K; ++k)
    for (int n = 0; n < kSumColumns; ++n) rows[k][n] = columns[n][k];
}

/// Elements of 8 bits.
template <class Format>
struct NarrowElement {
  static constexpr int kBytes = 1;
  static void widen(const std::byte* from, float* to, int count) {
    number::widen_row(Format{}, reinterpret_cast<const std::uint8_t*>(from), to, count);
  }
};
template <class Byte>
struct IntegerElement {
  static constexpr int kBytes = 1;
  static void widen(const std::byte* from, std::int32_t* to, int count) {
    const auto* const bytes = reinterpret_cast<const Byte*>(from);
    for (int i = 0; i < count; ++i) to[i] = bytes[i];
  }
};
[[nodiscard]] inline bool is_narrow(ptx::Type type) {
  return type == ptx::Type::e4m3 || type == ptx::Type::e5m2;
}
[[nodiscard]] inline bool is_byte(ptx::Type type) { return type == ptx::Type::s8 || type == ptx::Type::u8; }
/// pick(A, B) for the elements of two types; `First` is that of `first`, `Second` that of any other.
template <class First, class Second, class Pick>
[[nodiscard]] auto for_elements(ptx::Type first, ptx::Type a, ptx::Type b, Pick pick) {
  if (a == first) return b == first ? pick(First{}, First{}) : pick(First{}, Second{});
  return b == first ? pick(Second{}, First{}) : pick(Second{}, Second{});
}
template <class Pick>
[[nodiscard]] auto for_narrow(ptx::Type a, ptx::Type b, Pick pick) {
  using number::E4m3;
  using number::E5m2;
  return for_elements<NarrowElement<E4m3>, NarrowElement<E5m2>>(ptx::Type::e4m3, a, b, pick);
}
template <class Pick>
[[nodiscard]] auto for_integers(ptx::Type a, ptx::Type b, Pick pick) {
  return for_elements<IntegerElement<std::int8_t>, IntegerElement<std::uint8_t>>(ptx::Type::s8, a, b, pick);
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

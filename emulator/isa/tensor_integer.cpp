#include "emulator/isa/tensor_integer.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "emulator/isa/fragment.h"

namespace sparsekiln::emulator {
namespace {

constexpr int kM = 16;
constexpr int kN = 8;
constexpr int kSumRegisters = 4;
constexpr int kBytesOfQuad = 16;  ///< of a register: k = 4·place to 4·place + 3

/// A row by row, or B column by column.
template <int Rows, int K>
using Dense = std::int16_t[Rows][K];

/// The bytes of one register to rows `first` and on, and columns `column` and on.
template <class Byte, int Rows, int K>
void unpack(const Warp& warp, const Instruction& instruction, int operand, Dense<Rows, K>& to, int first,
            int column) {
  const auto* const from = lanes::operand<const Byte>(warp, instruction, static_cast<std::size_t>(operand));
  for (int quad = 0; quad < kQuads; ++quad)
    for (int i = 0; i < kBytesOfQuad; ++i) to[first + quad][column + i] = from[kBytesOfQuad * quad + i];
}

std::int32_t added(std::int32_t sum, std::int32_t products, bool saturate) {
  const std::int64_t exact = std::int64_t{sum} + products;
  if (!saturate) return static_cast<std::int32_t>(exact);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(exact, std::numeric_limits<std::int32_t>::min(),
                                                            std::numeric_limits<std::int32_t>::max()));
}

template <int K, class A, class B>
void mma(Warp& warp, const Instruction& instruction, Mask mask) {
  need_all_lanes(warp, instruction, mask);
  constexpr int kFirstA = kSumRegisters;
  constexpr int kFirstB = kFirstA + K / 8;
  constexpr int kFirstC = kFirstB + K / 16;
  alignas(64) Dense<kM, K> a;
  alignas(64) Dense<kN, K> b;
  for (int i = 0; i < K / 8; ++i)
    unpack<A, kM, K>(warp, instruction, kFirstA + i, a, i % 2 * kQuads, i / 2 * kBytesOfQuad);
  for (int i = 0; i < K / 16; ++i) unpack<B, kN, K>(warp, instruction, kFirstB + i, b, 0, i * kBytesOfQuad);
  std::int32_t result[kSumRegisters][kLanes];
  for (int i = 0; i < kSumRegisters; ++i) {
    const auto* const c =
        lanes::operand<const std::int32_t>(warp, instruction, static_cast<std::size_t>(kFirstC + i));
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto& row = a[lane / 4 + (i < 2 ? 0 : kQuads)];
      const auto& column = b[lane % 4 * 2 + i % 2];
      std::int32_t products = 0;  // at most 32 · 255 · 255
      for (int k = 0; k < K; ++k) products += std::int32_t{row[k]} * column[k];
      result[i][lane] = added(c[lane], products, instruction.detail != 0);
    }
  }
  for (int i = 0; i < kSumRegisters; ++i)
    std::copy_n(result[i], kLanes,
                lanes::operand<std::int32_t>(warp, instruction, static_cast<std::size_t>(i)));
  count_tensor(warp, instruction, std::uint64_t{2} * kM * kN * K);
}

template <int K>
Handler of_signs(bool a_signed, bool b_signed) {
  if (a_signed) return b_signed ? mma<K, std::int8_t, std::int8_t> : mma<K, std::int8_t, std::uint8_t>;
  return b_signed ? mma<K, std::uint8_t, std::int8_t> : mma<K, std::uint8_t, std::uint8_t>;
}

}  // namespace

Handler integer_mma(int k, bool a_signed, bool b_signed) {
  return k == 16 ? of_signs<16>(a_signed, b_signed) : of_signs<32>(a_signed, b_signed);
}

}  // namespace sparsekiln::emulator

#include "emulator/isa/tensor_narrow.h"

#include <cstring>

#include "emulator/isa/fragment.h"
#include "emulator/isa/narrow_elements.h"

namespace sparsekiln::emulator {
namespace {

constexpr std::size_t kBytesOfQuad = 16;  ///< of a register: k = 4·place to 4·place + 3

/// One register to a row of each quad, of `Row` bytes.
template <std::size_t Row>
void unpack(const Warp& warp, const Instruction& instruction, std::size_t operand, std::uint8_t* to) {
  const auto* const from = lanes::operand<const std::uint8_t>(warp, instruction, operand);
  for (std::size_t quad = 0; quad < kQuads; ++quad)
    std::memcpy(to + quad * Row, from + quad * kBytesOfQuad, kBytesOfQuad);
}

template <int K, class Accumulator, class A, class B>
void mma(Warp& warp, const Instruction& instruction, Mask mask) {
  need_all_lanes(warp, instruction, mask);
  constexpr std::size_t kFirstA = Accumulator::kRegisters;
  constexpr std::size_t kFirstB = kFirstA + K / 8;
  constexpr std::size_t kFirstC = kFirstB + K / 16;
  alignas(64) std::uint8_t bytes[kSumRows][K];
  alignas(64) float a[kSumRows][K];
  for (std::size_t i = 0; i < K / 8; ++i)
    unpack<K>(warp, instruction, kFirstA + i, bytes[i % 2 * kQuads] + i / 2 * kBytesOfQuad);
  number::widen_row(A{}, bytes[0], a[0], kSumRows * K);
  alignas(64) float columns[kSumColumns][K];
  for (std::size_t i = 0; i < K / 16; ++i)
    unpack<K>(warp, instruction, kFirstB + i, bytes[0] + i * kBytesOfQuad);
  number::widen_row(B{}, bytes[0], columns[0], kSumColumns * K);
  alignas(64) float b[K][kSumColumns];
  transpose_columns(columns, b);
  Sums<float> sums;
  Accumulator::load(warp, instruction, kFirstC, sums);
  multiply(a, b, sums);
  Accumulator::store(warp, instruction, 0, sums);
  count_tensor(warp, instruction, std::uint64_t{2} * kSumRows * kSumColumns * K);
}

template <int K, class Accumulator>
Handler of_types(ptx::Type a, ptx::Type b) {
  using number::E4m3;
  using number::E5m2;
  if (a == ptx::Type::e4m3)
    return b == ptx::Type::e4m3 ? mma<K, Accumulator, E4m3, E4m3> : mma<K, Accumulator, E4m3, E5m2>;
  return b == ptx::Type::e4m3 ? mma<K, Accumulator, E5m2, E4m3> : mma<K, Accumulator, E5m2, E5m2>;
}

}  // namespace

Handler narrow_mma(int k, bool half_sums, ptx::Type a, ptx::Type b) {
  if (k == 16) return half_sums ? of_types<16, HalfSums>(a, b) : of_types<16, WideSums<float>>(a, b);
  return half_sums ? of_types<32, HalfSums>(a, b) : of_types<32, WideSums<float>>(a, b);
}

}  // namespace sparsekiln::emulator

#include <cstdint>
#include <cstring>

#include "emulator/isa/fragment.h"
#include "emulator/isa/tensor_integer.h"
#include "emulator/isa/tensor_narrow.h"
#include "emulator/program/decoder.h"

/// mma.sync (PTX ISA 9.7.14.5), D[16][8] = A[16][K] · B[K][8] + C, with fragments as in its tables "Matrix
/// Fragments for mma.m16n8k…". The ISA does not specify the order and rounding of the sums; here an element
/// is C, to which one fused multiply-add in f32 is applied for each k in ascending order. Products of f16,
/// bf16 and tf32 are exact in it.
namespace sparsekiln::emulator {
namespace {

constexpr int kM = kSumRows;
constexpr int kN = kSumColumns;

constexpr int kSide = 8;
constexpr int kBlockElements = kSide * kSide;

/// 8 × 8 elements, row by row.
using Block = float[kSide][kSide];

/// A by blocks of 8 columns, their upper and their lower 8 rows; B, column by column, by blocks of 8 rows.
template <int K>
struct Operands {
  static constexpr int kBlocks = (K + kSide - 1) / kSide;
  alignas(64) Block a[kBlocks][2];
  alignas(64) Block b[kBlocks];
};

/// 16 bits: a register holds, quad by quad, eight elements that lie side by side, k = 2·place and the next: a
/// block.
template <class Format>
struct Half {
  static constexpr int kElementsOfLane = 2;
  template <int K>
  static void unpack(const Warp& warp, const Instruction& instruction, std::size_t a, std::size_t b,
                     Operands<K>& to) {
    const auto widen = [&](std::size_t operand, Block& block) {
      number::widen_row(Format{}, lanes::operand<const std::uint16_t>(warp, instruction, operand), block[0],
                        kBlockElements);
    };
    for (std::size_t i = 0; i < K / 4; ++i) widen(a + i, to.a[i / 2][i % 2]);
    for (std::size_t i = 0; i < K / 8; ++i) widen(b + i, to.b[i]);
  }
};

/// One element a register, k = place: half a block. The low 13 bits take no part.
struct Tf32 {
  static constexpr int kElementsOfLane = 1;
  static constexpr int kColumns = 4;
  static void unpack(const Warp& warp, const Instruction& instruction, std::size_t operand, Block& block,
                     std::size_t column) {
    const auto* const from = lanes::operand<const std::uint32_t>(warp, instruction, operand);
    alignas(64) std::uint32_t cut[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) cut[lane] = from[lane] & 0xffffe000u;
    for (int row = 0; row < kSide; ++row)
      std::memcpy(&block[row][column], cut + kColumns * row, kColumns * sizeof(float));
  }
  template <int K>
  static void unpack(const Warp& warp, const Instruction& instruction, std::size_t a, std::size_t b,
                     Operands<K>& to) {
    if constexpr (K < kSide) to = {};  // the other half of the blocks
    for (std::size_t i = 0; i < K / 2; ++i)
      unpack(warp, instruction, a + i, to.a[i / 4][i % 2], i / 2 % 2 * kColumns);
    for (std::size_t i = 0; i < K / 4; ++i) unpack(warp, instruction, b + i, to.b[i / 2], i % 2 * kColumns);
  }
};

/// Adds the products of one block of k to 8 rows of sums.
template <int K>
void multiply_block(const Block& a, const Row8 (&b)[kSide], float (*sums)[kN]) {
  Row8 row[kSide];
  for (int m = 0; m < kSide; ++m) row[m] = load_row(sums[m]);
  for (int k = 0; k < (K < kSide ? K : kSide); ++k)
    for (int m = 0; m < kSide; ++m) row[m] = fused_multiply_add(&a[m][k], b[k], row[m]);
  for (int m = 0; m < kSide; ++m) store_row(sums[m], row[m]);
}

template <int K>
void multiply(const Operands<K>& from, Sums<float>& sums) {
  for (int block = 0; block < Operands<K>::kBlocks; ++block) {
    Row8 b[kSide];
    for (int n = 0; n < kSide; ++n) b[n] = load_row(from.b[block][n]);
    transpose(b);
    for (int half = 0; half < 2; ++half) multiply_block<K>(from.a[block][half], b, sums.at + half * kSide);
  }
}

template <int K, class Element>
constexpr std::size_t kRegistersOfA = K / (2 * Element::kElementsOfLane);

/// Operands: D, A, B, C.
template <class Accumulator, class Element, int K>
void mma(Warp& warp, const Instruction& instruction, Mask mask) {
  need_all_lanes(warp, instruction, mask);
  constexpr std::size_t a = Accumulator::kRegisters;
  constexpr std::size_t b = a + kRegistersOfA<K, Element>;
  constexpr std::size_t c = b + kRegistersOfA<K, Element> / 2;
  Operands<K> operands;
  Element::unpack(warp, instruction, a, b, operands);
  Sums<float> sums;
  Accumulator::load(warp, instruction, c, sums);
  multiply(operands, sums);
  Accumulator::store(warp, instruction, 0, sums);
  count_tensor(warp, instruction, std::uint64_t{2} * kM * kN * K);
}

struct Shape {
  std::string_view name;
  ptx::Type sums;
  ptx::Type elements;
  int compute_capability;  ///< from which it is there
  std::size_t d, a, b;     ///< registers; C has as many as D
  Handler run;
};

template <class Accumulator, class Element, int K>
constexpr Shape shape(std::string_view name, ptx::Type sums, ptx::Type elements, int compute_capability) {
  return {name,
          sums,
          elements,
          compute_capability,
          Accumulator::kRegisters,
          kRegistersOfA<K, Element>,
          kRegistersOfA<K, Element> / 2,
          mma<Accumulator, Element, K>};
}

constexpr Shape kShapes[] = {
    shape<WideSums<float>, Half<number::F16>, 8>("m16n8k8", ptx::Type::f32, ptx::Type::f16, 75),
    shape<HalfSums, Half<number::F16>, 8>("m16n8k8", ptx::Type::f16, ptx::Type::f16, 75),
    shape<WideSums<float>, Half<number::F16>, 16>("m16n8k16", ptx::Type::f32, ptx::Type::f16, 80),
    shape<HalfSums, Half<number::F16>, 16>("m16n8k16", ptx::Type::f16, ptx::Type::f16, 80),
    shape<WideSums<float>, Half<number::Bf16>, 8>("m16n8k8", ptx::Type::f32, ptx::Type::bf16, 80),
    shape<WideSums<float>, Half<number::Bf16>, 16>("m16n8k16", ptx::Type::f32, ptx::Type::bf16, 80),
    shape<WideSums<float>, Tf32, 4>("m16n8k4", ptx::Type::f32, ptx::Type::tf32, 80),
    shape<WideSums<float>, Tf32, 8>("m16n8k8", ptx::Type::f32, ptx::Type::tf32, 80),
};

/// D, A, B and C, of as many registers.
void add_operands(Decoder& decoder, std::size_t sums, std::size_t a, std::size_t b) {
  decoder.expect_operands(4, 4);
  for (const ptx::Operand& one : fragment(decoder, 0, sums)) decoder.write(one, 32);
  for (const ptx::Operand& one : fragment(decoder, 1, a)) decoder.read(one, ptx::Type::b32);
  for (const ptx::Operand& one : fragment(decoder, 2, b)) decoder.read(one, ptx::Type::b32);
  for (const ptx::Operand& one : fragment(decoder, 3, sums)) decoder.read(one, ptx::Type::b32);
}

void need(Decoder& decoder, int compute_capability) {
  if (decoder.compute_capability() < compute_capability)
    decoder.refuse("needs sm_" + std::to_string(compute_capability));
}

bool is_byte(ptx::Type type) { return type == ptx::Type::s8 || type == ptx::Type::u8; }

struct Types {
  ptx::Type d, a, b, c;
};

Handler integer_handler(Decoder& decoder, std::string_view name, const Types& types) {
  const bool sums_match = types.d == ptx::Type::s32 && types.c == ptx::Type::s32;
  if (!sums_match || !is_byte(types.a) || !is_byte(types.b) || (name != "m16n8k16" && name != "m16n8k32"))
    return nullptr;
  need(decoder, 80);
  const int k = name == "m16n8k16" ? 16 : 32;
  add_operands(decoder, 4, static_cast<std::size_t>(k / 8), static_cast<std::size_t>(k / 16));
  return integer_mma(k, types.a == ptx::Type::s8, types.b == ptx::Type::s8);
}

bool is_narrow(ptx::Type type) { return type == ptx::Type::e4m3 || type == ptx::Type::e5m2; }

Handler narrow_handler(Decoder& decoder, std::string_view name, const Types& types) {
  const bool half = types.d == ptx::Type::f16;
  if (types.d != types.c || (!half && types.d != ptx::Type::f32) || !is_narrow(types.a) ||
      !is_narrow(types.b) || (name != "m16n8k16" && name != "m16n8k32"))
    return nullptr;
  need(decoder, 89);
  const std::size_t k = name == "m16n8k16" ? 16 : 32;
  add_operands(decoder, half ? HalfSums::kRegisters : WideSums<float>::kRegisters, k / 8, k / 16);
  return narrow_mma(static_cast<int>(k), half, types.a, types.b);
}

Handler float_handler(Decoder& decoder, std::string_view name, const Types& types) {
  for (const Shape& shape : kShapes) {
    if (shape.name != name || shape.sums != types.d || shape.sums != types.c || shape.elements != types.a ||
        shape.elements != types.b)
      continue;
    need(decoder, shape.compute_capability);
    add_operands(decoder, shape.d, shape.a, shape.b);
    return shape.run;
  }
  return nullptr;
}

void decode_mma(Decoder& decoder) {
  (void)decoder.take_one({"sync"});
  (void)decoder.take_one({"aligned"});
  const std::string_view name = decoder.take_one({"m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32"});
  (void)decoder.take_one({"row"});
  (void)decoder.take_one({"col"});
  const bool saturate = decoder.take("satfinite");
  const Types types{decoder.take_type(), decoder.take_type(), decoder.take_type(), decoder.take_type()};
  Instruction& instruction = decoder.instruction();
  instruction.kind = Kind::tensor;
  instruction.detail = saturate ? 1 : 0;
  instruction.run = integer_handler(decoder, name, types);
  if (instruction.run == nullptr && !saturate) instruction.run = narrow_handler(decoder, name, types);
  if (instruction.run != nullptr) return;
  if (!saturate) instruction.run = float_handler(decoder, name, types);
  if (instruction.run == nullptr) decoder.refuse("is not implemented for these types and this shape");
}

}  // namespace

std::vector<Opcode> tensor_opcodes() { return {{"mma", Domain::any, decode_mma}}; }

}  // namespace sparsekiln::emulator

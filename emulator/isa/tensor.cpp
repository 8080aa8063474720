#include <cstdint>
#include <cstring>

#include "emulator/isa/fragment.h"
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

// ---- elements of 8 bits ----

constexpr std::size_t kBytesOfQuad = 16;  ///< of a register: k = 4·place to 4·place + 3

/// One register to a row of each quad, of `Row` bytes.
template <std::size_t Row>
void unpack(const Warp& warp, const Instruction& instruction, std::size_t operand, std::byte* to) {
  const auto* const from = lanes::operand<const std::byte>(warp, instruction, operand);
  for (std::size_t quad = 0; quad < kQuads; ++quad)
    std::memcpy(to + quad * Row, from + quad * kBytesOfQuad, kBytesOfQuad);
}

/// m16n8k16 and m16n8k32. Sums of integers are exact; Instruction::detail 1 is .satfinite, without it they
/// wrap around.
template <class Accumulator, int K, class A, class B>
void byte_mma(Warp& warp, const Instruction& instruction, Mask mask) {
  need_all_lanes(warp, instruction, mask);
  using Number = typename Accumulator::Value;
  constexpr std::size_t kFirstA = Accumulator::kRegisters;
  constexpr std::size_t kFirstB = kFirstA + K / 8;
  constexpr std::size_t kFirstC = kFirstB + K / 16;
  alignas(64) std::byte bytes[kSumRows][K];
  alignas(64) Number a[kSumRows][K];
  for (std::size_t i = 0; i < K / 8; ++i)
    unpack<K>(warp, instruction, kFirstA + i, bytes[i % 2 * kQuads] + i / 2 * kBytesOfQuad);
  A::widen(bytes[0], a[0], kSumRows * K);
  alignas(64) Number columns[kSumColumns][K];
  for (std::size_t i = 0; i < K / 16; ++i)
    unpack<K>(warp, instruction, kFirstB + i, bytes[0] + i * kBytesOfQuad);
  B::widen(bytes[0], columns[0], kSumColumns * K);
  alignas(64) Number b[K][kSumColumns];
  transpose_columns(columns, b);
  Sums<Number> sums;
  Accumulator::load(warp, instruction, kFirstC, sums);
  multiply(a, b, sums, instruction.detail != 0);
  Accumulator::store(warp, instruction, 0, sums);
  count_tensor(warp, instruction, std::uint64_t{2} * kSumRows * kSumColumns * K);
}

template <class Accumulator>
auto of_elements(std::size_t k) {
  return [k]<class A, class B>(A, B) -> Handler {
    return k == 16 ? byte_mma<Accumulator, 16, A, B> : byte_mma<Accumulator, 32, A, B>;
  };
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

struct Types {
  ptx::Type d, a, b, c;
};

Handler byte_handler(Decoder& decoder, std::string_view name, const Types& types) {
  const bool integers = types.d == ptx::Type::s32 && is_byte(types.a) && is_byte(types.b);
  const bool half = types.d == ptx::Type::f16;
  const bool narrow = (half || types.d == ptx::Type::f32) && is_narrow(types.a) && is_narrow(types.b);
  if (types.d != types.c || !(integers || narrow) || (name != "m16n8k16" && name != "m16n8k32"))
    return nullptr;
  decoder.need(integers ? 80 : 89);
  const std::size_t k = name == "m16n8k16" ? 16 : 32;
  add_operands(decoder, half ? HalfSums::kRegisters : WideSums<float>::kRegisters, k / 8, k / 16);
  if (integers) return for_integers(types.a, types.b, of_elements<WideSums<std::int32_t>>(k));
  return half ? for_narrow(types.a, types.b, of_elements<HalfSums>(k))
              : for_narrow(types.a, types.b, of_elements<WideSums<float>>(k));
}

Handler float_handler(Decoder& decoder, std::string_view name, const Types& types) {
  for (const Shape& shape : kShapes) {
    if (shape.name != name || shape.sums != types.d || shape.sums != types.c || shape.elements != types.a ||
        shape.elements != types.b)
      continue;
    decoder.need(shape.compute_capability);
    add_operands(decoder, shape.d, shape.a, shape.b);
    return shape.run;
  }
  return nullptr;
}

void decode_mma(Decoder& decoder) {
  decoder.take_all({"sync", "aligned"});
  const std::string_view name = decoder.take_one({"m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32"});
  decoder.take_all({"row", "col"});
  const bool saturate = decoder.take("satfinite");
  const Types types{decoder.take_type(), decoder.take_type(), decoder.take_type(), decoder.take_type()};
  Instruction& instruction = decoder.instruction();
  instruction.kind = Kind::tensor;
  instruction.detail = saturate ? 1 : 0;
  if (!saturate || types.d == ptx::Type::s32) instruction.run = byte_handler(decoder, name, types);
  if (instruction.run == nullptr && !saturate) instruction.run = float_handler(decoder, name, types);
  if (instruction.run == nullptr) decoder.refuse("is not implemented for these types and this shape");
}

}  // namespace

std::vector<Opcode> tensor_opcodes() { return {{"mma", Domain::any, decode_mma}}; }

}  // namespace sparsekiln::emulator

#include "emulator/isa/wgmma_product.h"

#include <bit>
#include <cstring>

#include "emulator/isa/fragment.h"
#include "emulator/machine/block.h"

/// D = A · B + D of one warp: 16 of the 64 rows. Sums as in isa/tensor.cpp: an element is D, to which one
/// fused multiply-add in f32 is applied for each k in ascending order. Hardware's sums of 8-bit floating
/// point keep fewer bits.
namespace sparsekiln::emulator {
namespace {

constexpr std::uint32_t kRowBytes = MatrixForm::kMatrixRowBytes;
constexpr std::uint32_t kUnits = kRowBytes / kMatrixUnitBytes;

/// Where a warp reads a matrix.
struct Source {
  const std::byte* shared = nullptr;
  MatrixDescriptor descriptor;
  MatrixMajor major = MatrixMajor::k;
  std::uint32_t in_unit = 8;  ///< elements

  Source(const Warp& warp, std::uint64_t bits, MatrixMajor of, std::uint32_t bytes)
      : shared(warp.block->shared),
        descriptor(parse_descriptor(bits)),
        major(of),
        in_unit(kMatrixUnitBytes / bytes) {}

  void copy_unit(std::uint32_t row, std::uint32_t k, std::byte* to) const {
    const std::uint32_t address = unit_address(descriptor, major, row, k);
    std::memcpy(to, shared + (address - kSharedBase) % kMatrixAddresses, kMatrixUnitBytes);
  }
  /// `rows` rows of K elements each.
  void copy_rows(std::uint32_t first, std::uint32_t rows, std::byte* to) const {
    for (std::uint32_t row = first; row < first + rows; ++row)
      for (std::uint32_t unit = 0; unit < kUnits; ++unit, to += kMatrixUnitBytes) copy_unit(row, unit, to);
  }
  /// MN-major: for each of `depth` k, `rows` elements.
  void copy_columns(std::uint32_t first, std::uint32_t rows, std::uint32_t depth, std::byte* to) const {
    for (std::uint32_t k = 0; k < depth; ++k)
      for (std::uint32_t row = first; row < first + rows; row += in_unit, to += kMatrixUnitBytes)
        copy_unit(row / in_unit, k, to);
  }
};

/// A as registers hold it: register r has 4 bytes a lane of row quad + 8 · (r mod 2), from 16 · (r / 2) on.
void copy_registers(const MatrixOperation& operation, std::byte* to) {
  for (std::size_t r = 0; r < kMatrixARegisters; ++r)
    for (std::size_t quad = 0; quad < kQuads; ++quad)
      std::memcpy(to + (quad + r % 2 * kQuads) * kRowBytes + r / 2 * kMatrixUnitBytes,
                  operation.a_registers[r].data() + 4 * quad, kMatrixUnitBytes);
}

template <class Element>
constexpr int kDepth = static_cast<int>(kRowBytes) / Element::kBytes;

// ---- elements ----

template <class Format>
struct HalfElement {
  static constexpr int kBytes = 2;
  static void widen(const std::byte* from, float* to, int count) {
    number::widen_row(Format{}, reinterpret_cast<const std::uint16_t*>(from), to, count);
  }
};

/// The low 13 bits take no part.
struct Tf32Element {
  static constexpr int kBytes = 4;
  static void widen(const std::byte* from, float* to, int count) {
    for (int i = 0; i < count; ++i) {
      std::uint32_t bits;
      std::memcpy(&bits, from + 4 * i, sizeof bits);
      to[i] = number::float_of(bits & 0xffffe000u);
    }
  }
};

// ---- matrices ----

template <class Number, int K>
using RowsOfA = Number[kSumRows][K];
template <class Number, int K>
using RowsOfB = Number[K][kSumColumns];

/// The warp's rows of A.
template <class Element, class Number, int K>
void load_a(const Warp& warp, const MatrixOperation& operation, const MatrixForm& form,
            RowsOfA<Number, K>& to) {
  alignas(64) std::byte bytes[kSumRows * kRowBytes];
  const std::uint32_t first = warp.index % kWarpgroupWarps * kSumRows;
  const Source source(warp, operation.a, form.a, Element::kBytes);
  if (form.a == MatrixMajor::mn && !form.a_in_registers) {
    alignas(64) Number columns[K][kSumRows];
    source.copy_columns(first, kSumRows, K, bytes);
    Element::widen(bytes, columns[0], K * kSumRows);
    for (int k = 0; k < K; ++k)
      for (int m = 0; m < kSumRows; ++m) to[m][k] = columns[k][m];
    return;
  }
  if (form.a_in_registers)
    copy_registers(operation, bytes);
  else
    source.copy_rows(first, kSumRows, bytes);
  Element::widen(bytes, to[0], kSumRows * K);
}

/// Columns 8·block to 8·block + 7 of B.
template <class Element, class Number, int K>
void load_b(const Source& source, std::uint32_t block, RowsOfB<Number, K>& to) {
  alignas(64) std::byte bytes[kSumColumns * kRowBytes];
  if (source.major == MatrixMajor::mn) {
    source.copy_columns(block * kSumColumns, kSumColumns, K, bytes);
    Element::widen(bytes, to[0], K * kSumColumns);
    return;
  }
  alignas(64) Number columns[kSumColumns][K];
  source.copy_rows(block * kSumColumns, kSumColumns, bytes);
  Element::widen(bytes, columns[0], kSumColumns * K);
  transpose_columns(columns, to);
}

template <class Accumulator, class A, class B>
void product(Warp& warp, const MatrixOperation& operation) {
  using Number = typename Accumulator::Value;
  static_assert(A::kBytes == B::kBytes);
  constexpr int K = kDepth<A>;
  const Instruction& instruction = *operation.instruction;
  const auto form = std::bit_cast<MatrixForm>(instruction.detail);
  alignas(64) RowsOfA<Number, K> a;
  load_a<A>(warp, operation, form, a);
  if (form.negates)
    for (auto& row : a)
      for (Number& value : row) value = -value;
  const Source source(warp, operation.b, form.b, B::kBytes);
  for (std::uint32_t block = 0; block < form.column_blocks; ++block) {
    alignas(64) RowsOfB<Number, K> b;
    load_b<B>(source, block, b);
    const std::size_t first = block * Accumulator::kRegisters;
    Sums<Number> sums = {};
    if (operation.accumulates) Accumulator::load(warp, instruction, first, sums);
    multiply(a, b, sums, form.saturates);
    Accumulator::store(warp, instruction, first, sums);
  }
}

template <class Accumulator>
constexpr auto kOfElements =
    []<class A, class B>(A, B) -> MatrixProduct { return product<Accumulator, A, B>; };

}  // namespace

MatrixProduct product_of(ptx::Type sums, ptx::Type a, ptx::Type b) {
  using Single = WideSums<float>;
  if (sums == ptx::Type::s32)
    return is_byte(a) && is_byte(b) ? for_integers(a, b, kOfElements<WideSums<std::int32_t>>) : nullptr;
  const bool wide = sums == ptx::Type::f32;
  if (!wide && sums != ptx::Type::f16) return nullptr;
  if (is_narrow(a) && is_narrow(b))
    return wide ? for_narrow(a, b, kOfElements<Single>) : for_narrow(a, b, kOfElements<HalfSums>);
  if (a != b) return nullptr;
  using Half = HalfElement<number::F16>;
  if (a == ptx::Type::f16) return wide ? product<Single, Half, Half> : product<HalfSums, Half, Half>;
  if (!wide) return nullptr;
  using Brain = HalfElement<number::Bf16>;
  if (a == ptx::Type::bf16) return product<Single, Brain, Brain>;
  return a == ptx::Type::tf32 ? product<Single, Tf32Element, Tf32Element> : nullptr;
}

}  // namespace sparsekiln::emulator

#include <array>

#include <sparsekiln/error.h>

#include "compiler/cpu/vector_ir.h"

// What VectorIr does with element types.

namespace sparsekiln::cpu {
namespace {

using Value = llvm::Value;

std::int32_t lanes_of(const Value* vector) {
  return static_cast<std::int32_t>(llvm::cast<llvm::FixedVectorType>(vector->getType())->getNumElements());
}

Value* words_of(VectorIr& v, std::uint32_t bits, std::int32_t lanes) {
  return v.splat(v.ir.getInt32(bits), lanes);
}

// float32 and float64: loaded as they are multiplied.

Value* as_it_is(VectorIr& /*v*/, Value* elements) { return elements; }
Value* as_summed(VectorIr& /*v*/, Value* values, bool /*short_nans*/) { return values; }

// bfloat16: the upper half of a float32.

llvm::Type* stored_bf16(VectorIr& v) { return v.ir.getInt16Ty(); }

Value* widened_bf16(VectorIr& v, Value* elements) {
  const std::int32_t lanes = lanes_of(elements);
  Value* bits = v.ir.CreateZExt(elements, v.ints(lanes));
  return v.ir.CreateBitCast(v.ir.CreateShl(bits, words_of(v, 16, lanes)), v.floats(lanes));
}

/// Integer operations on every level: vcvtneps2bf16 would flush subnormals, and levels would disagree.
Value* rounded_bf16(VectorIr& v, Value* values, bool short_nans) {
  const std::int32_t lanes = lanes_of(values);
  Value* bits = v.ir.CreateBitCast(values, v.ints(lanes));
  Value* odd = v.ir.CreateAnd(v.ir.CreateLShr(bits, words_of(v, 16, lanes)), words_of(v, 1, lanes));
  Value* rounded = v.ir.CreateAdd(v.ir.CreateAdd(bits, words_of(v, 0x7fff, lanes)), odd);
  if (!short_nans) {
    Value* quiet = v.ir.CreateOr(bits, words_of(v, 0x400000, lanes));
    rounded = v.ir.CreateSelect(v.ir.CreateFCmpUNO(values, values), quiet, rounded);
  }
  Value* upper = v.ir.CreateLShr(rounded, words_of(v, 16, lanes));
  return v.ir.CreateTrunc(upper, llvm::FixedVectorType::get(v.ir.getInt16Ty(), static_cast<unsigned>(lanes)));
}

// float16: one instruction where the level has F16C; elsewhere LLVM would call into its library.

llvm::Type* stored_f16(VectorIr& v) {
  return v.level.f16c ? v.ir.getHalfTy() : static_cast<llvm::Type*>(v.ir.getInt16Ty());
}

Value* widened_f16_bits(VectorIr& v, Value* bits) {
  const std::int32_t lanes = lanes_of(bits);
  const auto all = [&](std::uint32_t word) { return words_of(v, word, lanes); };
  Value* sign = v.ir.CreateShl(v.ir.CreateAnd(bits, all(0x8000)), all(16));
  Value* magnitude = v.ir.CreateShl(v.ir.CreateAnd(bits, all(0x7fff)), all(13));
  Value* normal = v.ir.CreateAdd(magnitude, all(112U << 23));
  // A fraction at exponent -14, less 2^-14: exact, and nothing is subnormal in f32.
  Value* smallest = v.ir.CreateBitCast(all(113U << 23), v.floats(lanes));
  Value* fraction = v.ir.CreateBitCast(v.ir.CreateAdd(magnitude, all(113U << 23)), v.floats(lanes));
  Value* subnormal = v.ir.CreateBitCast(v.ir.CreateFSub(fraction, smallest), v.ints(lanes));
  Value* infinite = v.ir.CreateAdd(magnitude, all(224U << 23));  // or NaN
  Value* result = v.ir.CreateSelect(v.ir.CreateICmpULT(magnitude, all(1U << 23)), subnormal, normal);
  result = v.ir.CreateSelect(v.ir.CreateICmpUGE(magnitude, all(31U << 23)), infinite, result);
  return v.ir.CreateBitCast(v.ir.CreateOr(result, sign), v.floats(lanes));
}

Value* widened_f16(VectorIr& v, Value* elements) {
  const std::int32_t lanes = lanes_of(elements);
  if (v.level.f16c) return v.ir.CreateFPExt(elements, v.floats(lanes));
  return widened_f16_bits(v, v.ir.CreateZExt(elements, v.ints(lanes)));
}

Value* rounded_f16_bits(VectorIr& v, Value* values) {
  const std::int32_t lanes = lanes_of(values);
  const auto all = [&](std::uint32_t bits) { return words_of(v, bits, lanes); };
  Value* bits = v.ir.CreateBitCast(values, v.ints(lanes));
  Value* sign = v.ir.CreateAnd(v.ir.CreateLShr(bits, all(16)), all(0x8000));
  Value* magnitude = v.ir.CreateAnd(bits, all(0x7fffffff));
  Value* odd = v.ir.CreateAnd(v.ir.CreateLShr(magnitude, all(13)), all(1));
  Value* rebiased = v.ir.CreateSub(magnitude, all(112U << 23));
  Value* normal = v.ir.CreateLShr(v.ir.CreateAdd(v.ir.CreateAdd(rebiased, all(0xfff)), odd), all(13));
  // Below 2^-14 the spacing is 2^-24, which is that of f32 just above 0.5: the addition rounds.
  Value* half = v.ir.CreateBitCast(all(0x3f000000), v.floats(lanes));
  Value* shifted = v.ir.CreateFAdd(v.ir.CreateBitCast(magnitude, v.floats(lanes)), half);
  Value* subnormal = v.ir.CreateSub(v.ir.CreateBitCast(shifted, v.ints(lanes)), all(0x3f000000));
  Value* payload = v.ir.CreateAnd(v.ir.CreateLShr(magnitude, all(13)), all(0x1ff));
  Value* result = v.ir.CreateSelect(v.ir.CreateICmpULT(magnitude, all(0x38800000)), subnormal, normal);
  // 65520 and above round to infinity.
  result = v.ir.CreateSelect(v.ir.CreateICmpUGE(magnitude, all(0x477ff000)), all(0x7c00), result);
  result = v.ir.CreateSelect(v.ir.CreateFCmpUNO(values, values), v.ir.CreateOr(payload, all(0x7e00)), result);
  return v.ir.CreateTrunc(v.ir.CreateOr(result, sign),
                          llvm::FixedVectorType::get(v.ir.getInt16Ty(), static_cast<unsigned>(lanes)));
}

Value* rounded_f16(VectorIr& v, Value* values, bool /*short_nans*/) {
  if (!v.level.f16c) return rounded_f16_bits(v, values);
  const auto count = static_cast<unsigned>(lanes_of(values));
  Value* halves = v.ir.CreateFPTrunc(values, llvm::FixedVectorType::get(v.ir.getHalfTy(), count));
  if (count < 8) return halves;
  // vcvtps2ph into memory takes twice as long as into a register that is stored then.
  Value* words = v.ir.CreateBitCast(halves, llvm::FixedVectorType::get(v.ir.getInt16Ty(), count));
  return v.ir.CreateBitCast(v.in_register(words), halves->getType());
}

// Floats of 8 bits, as in compiler/element.cpp. Nothing is rounded to them.

llvm::Type* stored_byte(VectorIr& v) { return v.ir.getInt8Ty(); }

template <int kExponentBits, bool kInfinite>
Value* widened_float8(VectorIr& v, Value* elements) {
  constexpr int kFractionBits = 7 - kExponentBits;
  constexpr std::uint32_t kShift = 23 - kFractionBits;
  constexpr std::uint32_t kRebias = (127U - ((1U << (kExponentBits - 1)) - 1)) << 23;
  constexpr std::uint32_t kFraction = (1U << kFractionBits) - 1;
  const std::int32_t lanes = lanes_of(elements);
  const auto all = [&](std::uint32_t word) { return words_of(v, word, lanes); };
  Value* bits = v.ir.CreateZExt(elements, v.ints(lanes));
  Value* sign = v.ir.CreateShl(v.ir.CreateAnd(bits, all(0x80)), all(24));
  Value* magnitude = v.ir.CreateAnd(bits, all(0x7f));
  Value* shifted = v.ir.CreateShl(magnitude, all(kShift));
  Value* normal = v.ir.CreateAdd(shifted, all(kRebias));
  Value* least = v.ir.CreateBitCast(all(kRebias + ((1U - kFractionBits) << 23)), v.floats(lanes));
  Value* product = v.ir.CreateFMul(v.ir.CreateSIToFP(magnitude, v.floats(lanes)), least);
  Value* subnormal = v.ir.CreateBitCast(product, v.ints(lanes));
  Value* result = v.ir.CreateSelect(v.ir.CreateICmpULE(magnitude, all(kFraction)), subnormal, normal);
  // Infinity has the largest exponent and no fraction, here and in f32; where there is none, NaN has all
  // bits.
  const std::uint32_t first = kInfinite ? 0x7fU - kFraction : 0x7fU;
  Value* fraction = v.ir.CreateAnd(shifted, all(kFraction << kShift));
  Value* special = v.ir.CreateOr(fraction, all(0x7f800000));
  result = v.ir.CreateSelect(v.ir.CreateICmpUGE(magnitude, all(first)), special, result);
  return v.ir.CreateBitCast(v.ir.CreateOr(result, sign), v.floats(lanes));
}

Value* never_rounded(VectorIr& /*v*/, Value* /*values*/, bool /*short_nans*/) {
  throw Error(ErrorKind::internal, "something is rounded to a type of 8 bits");
}

// Integers: summed in 32 bits.

Value* widened_i8(VectorIr& v, Value* elements) {
  return v.ir.CreateSExt(elements, v.ints(lanes_of(elements)));
}

/// How the code of the cpu target reads and writes one element type. A new type is a row in the table of
/// this file, besides its row in compiler/element.cpp.
struct ElementIr {
  DType value;
  /// What an element is loaded and stored as.
  llvm::Type* (*stored)(VectorIr&);
  /// A vector of elements in the type that they are summed in (sum_type, of integers int32), exactly.
  llvm::Value* (*widened)(VectorIr&, llvm::Value* elements);
  /// Back, as VectorIr::rounded_to says.
  llvm::Value* (*rounded)(VectorIr&, llvm::Value* values, bool short_nans);
};
constexpr std::array kElements = {
    ElementIr{DType::f32, [](VectorIr& v) -> llvm::Type* { return v.ir.getFloatTy(); }, as_it_is, as_summed},
    ElementIr{DType::f16, stored_f16, widened_f16, rounded_f16},
    ElementIr{DType::bf16, stored_bf16, widened_bf16, rounded_bf16},
    ElementIr{DType::f64, [](VectorIr& v) -> llvm::Type* { return v.ir.getDoubleTy(); }, as_it_is, as_summed},
    ElementIr{DType::e4m3, stored_byte, widened_float8<4, false>, never_rounded},
    ElementIr{DType::e5m2, stored_byte, widened_float8<5, true>, never_rounded},
    ElementIr{DType::i8, stored_byte, widened_i8, never_rounded},
    ElementIr{DType::i32, [](VectorIr& v) -> llvm::Type* { return v.ir.getInt32Ty(); }, as_it_is, as_summed},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kElements.size(); ++i)
    if (static_cast<std::size_t>(kElements[i].value) != i) return false;
  return kElements.size() == static_cast<std::size_t>(kLastDType) + 1;
}
static_assert(in_order(), "rows are found by their place");

const ElementIr& element_ir(DType type) { return kElements.at(static_cast<std::size_t>(type)); }

}  // namespace

Value* VectorIr::load_floats(DType type, Value* address, std::int32_t lanes, unsigned align) {
  return widened(type, load_elements(type, address, lanes, align));
}

llvm::Type* VectorIr::element_type(DType type) { return element_ir(type).stored(*this); }

Value* VectorIr::load_elements(DType type, Value* address, std::int32_t lanes, unsigned align) {
  return load(llvm::FixedVectorType::get(element_type(type), static_cast<unsigned>(lanes)), address, align);
}

Value* VectorIr::widened(DType type, Value* elements) { return element_ir(type).widened(*this, elements); }

Value* VectorIr::load_clipped(DType type, Value* base, Value* first, Value* end, std::int32_t lanes) {
  const auto bytes = static_cast<std::int64_t>(size_of(type));
  auto* element = element_type(type);
  Value* last = ir.CreateSub(end, constant(1));
  Value* result =
      llvm::Constant::getNullValue(llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes)));
  for (std::int32_t lane = 0; lane < lanes; ++lane) {
    Value* wanted = plus(first, constant(lane));
    // No branch: what is not there is the last one, and zero is chosen after.
    Value* index = ir.CreateBinaryIntrinsic(llvm::Intrinsic::smin, wanted, last);
    Value* value = load(element, at(base, times(index, bytes)), static_cast<unsigned>(bytes));
    value = ir.CreateSelect(ir.CreateICmpSLE(wanted, last), value, llvm::Constant::getNullValue(element));
    result = ir.CreateInsertElement(result, value, static_cast<std::uint64_t>(lane));
  }
  return result;
}

Value* VectorIr::rounded_to(DType type, Value* values, bool short_nans) {
  return element_ir(type).rounded(*this, values, short_nans);
}

}  // namespace sparsekiln::cpu

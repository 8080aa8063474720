#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "emulator/isa/lanes.h"
#include "emulator/isa/number.h"
#include "emulator/isa/number_rows.h"
#include "emulator/program/decoder.h"

/// Arithmetic of f16 and bf16, single or in pairs (PTX ISA 9.7.4, and 9.7.3 for ex2 and tanh). Each result is
/// the exact one rounded once. The NaN of an instruction is the canonical one (number::kNan16).
///
/// For ex2 and tanh the ISA has error bounds and no results; here they are computed in f64 and rounded to the
/// format.
namespace sparsekiln::emulator {
namespace {

using number::Bf16;
using number::F16;
using number::Rounding;
using ptx::Type;

/// What modifiers say, in Instruction::detail.
constexpr std::uint64_t kFtz = 1 << 0;
constexpr std::uint64_t kSat = 1 << 1;
constexpr std::uint64_t kRelu = 1 << 2;

// ---- what is computed of f32 ----

/// f32 has 24 bits, at least twice those of a format and two more: a sum or product rounded to f32 and then
/// to the format is as if rounded once (Figueroa, "When is double rounding innocuous?", 1995). A sum of
/// numbers so small that the format has no 11 or 8 bits for it is exact in f32; a product of bf16 that is not
/// is below half of the least.
template <class Operation>
struct Arithmetic {
  static float of(auto, float a, float b) { return Operation()(a, b); }
};

struct Fma {
  /// The product is exact in f32.
  static float of(F16, float a, float b, float c) { return number::add_to_odd(a * b, c); }
  /// The product has 16 bits, but exponents that only f64 has.
  static float of(Bf16, float a, float b, float c) {
    const double product = static_cast<double>(a) * static_cast<double>(b);
    return number::narrow_f64<Rounding::to_odd>(number::add_to_odd(product, static_cast<double>(c)));
  }
};

struct Ex2 {
  static float of(auto, float a) {
    return number::narrow_f64<Rounding::to_odd>(std::exp2(static_cast<double>(a)));
  }
};
struct Tanh {
  static float of(auto, float a) {
    return number::narrow_f64<Rounding::to_odd>(std::tanh(static_cast<double>(a)));
  }
};

// ---- what is computed of bits ----

constexpr std::uint32_t kSign = 0x8000;
constexpr std::uint32_t kMagnitude = 0x7fff;

/// -0 is less than +0. A NaN loses to a number, unless `KeepNan` (9.7.4.7, 9.7.4.8).
template <bool Greatest, bool KeepNan, bool XorSignAbs>
struct Extreme {
  /// Bits in the order of what they stand for: -0 is -1, +0 is 0, and NaNs are where they lose or win.
  template <class Format>
  static std::int32_t place(Format, std::uint32_t bits) {
    constexpr std::uint32_t kNanPlace = Greatest == KeepNan ? 0x7fffffff : 0x80000000;
    const std::uint32_t magnitude = bits & kMagnitude;
    return static_cast<std::int32_t>(number::select(number::mask_if(magnitude > Format::kInfinity), kNanPlace,
                                                    magnitude ^ (0u - (bits >> 15))));
  }
  template <class Format>
  static std::uint16_t of(Format format, std::uint16_t first, std::uint16_t second) {
    constexpr std::uint32_t kKept = XorSignAbs ? kMagnitude : 0xffffu;
    const std::uint32_t a = first & kKept;
    const std::uint32_t b = second & kKept;
    const std::int32_t a_place = place(format, a);
    const std::int32_t b_place = place(format, b);
    const std::uint32_t best =
        number::select(number::mask_if(Greatest ? a_place > b_place : a_place < b_place), a, b);
    const std::uint32_t sign = XorSignAbs ? (std::uint32_t{first} ^ second) & kSign : 0u;
    const std::uint32_t nan = number::mask_if((best & kMagnitude) > Format::kInfinity);
    return static_cast<std::uint16_t>(number::select(nan, number::kNan16, best | sign));
  }
};

struct Neg {
  static std::uint16_t of(auto, std::uint16_t a) { return static_cast<std::uint16_t>(a ^ kSign); }
};
struct Abs {
  static std::uint16_t of(auto, std::uint16_t a) { return static_cast<std::uint16_t>(a & kMagnitude); }
};

// ---- handlers: a row of pairs is 64 elements, any other 32 ----

template <class Row>
constexpr int kElements = kLanes * int{sizeof(Row) / sizeof(std::uint16_t)};

/// An operand's elements, flushed where the modifiers say so, into `kept` if need be.
template <class Format, class Row>
const std::uint16_t* taken(const Warp& warp, const Instruction& instruction, std::size_t index,
                           std::uint16_t* kept) {
  const auto* const row = lanes::operand<const std::uint16_t>(warp, instruction, index);
  if ((instruction.detail & kFtz) == 0) return row;
  number::flush_row<Format>(row, kept, kElements<Row>);
  return kept;
}

template <class Row>
void give(const Warp& warp, const Instruction& instruction, Mask mask, const std::uint16_t* result) {
  lanes::blend(lanes::operand<Row>(warp, instruction, 0), reinterpret_cast<const Row*>(result), mask);
}

/// to[i] = Op of the i-th elements.
template <class Op, class Format, class T, std::size_t... I>
[[gnu::always_inline]] inline void each(T* __restrict to, const T* const* from, int count,
                                        std::index_sequence<I...>) {
  const auto apply = [=](const auto* __restrict... row) {
    for (int i = 0; i < count; ++i) to[i] = Op::of(Format{}, row[i]...);
  };
  apply(from[I]...);
}

/// Op of numbers: widened, computed in f32, rounded.
template <class Op, class Format, class Row, std::size_t Sources>
void compute(Warp& warp, const Instruction& instruction, Mask mask) {
  constexpr int kCount = kElements<Row>;
  alignas(64) std::uint16_t kept[kCount];
  alignas(64) float wide[Sources][kCount];
  const float* from[Sources];
  for (std::size_t i = 0; i < Sources; ++i) {
    number::widen_row(Format{}, taken<Format, Row>(warp, instruction, i + 1, kept), wide[i], kCount);
    from[i] = wide[i];
  }
  alignas(64) float result[kCount];
  each<Op, Format>(result, from, kCount, std::make_index_sequence<Sources>());
  if ((instruction.detail & kSat) != 0) number::saturate_row(result, kCount);
  if ((instruction.detail & kRelu) != 0) number::cut_negative_row(result, kCount);
  number::narrow_row<Rounding::nearest_even>(Format{}, result, kept, kCount);
  if ((instruction.detail & kFtz) != 0) {
    alignas(64) std::uint16_t flushed[kCount];
    number::flush_row<Format>(kept, flushed, kCount);
    give<Row>(warp, instruction, mask, flushed);
  } else {
    give<Row>(warp, instruction, mask, kept);
  }
}

/// Op of bits.
template <class Op, class Format, class Row, std::size_t Sources>
void compute_bits(Warp& warp, const Instruction& instruction, Mask mask) {
  constexpr int kCount = kElements<Row>;
  alignas(64) std::uint16_t kept[Sources][kCount];
  const std::uint16_t* from[Sources];
  for (std::size_t i = 0; i < Sources; ++i) from[i] = taken<Format, Row>(warp, instruction, i + 1, kept[i]);
  alignas(64) std::uint16_t result[kCount];
  each<Op, Format>(result, from, kCount, std::make_index_sequence<Sources>());
  give<Row>(warp, instruction, mask, result);
}

// ---- decoding ----

bool is_bfloat(Type type) { return type == Type::bf16 || type == Type::bf16x2; }

/// The type, which must be of 16 bits or a pair of them.
Type take_half(Decoder& decoder, int capability_of_f16, int capability_of_bf16) {
  const Type type = decoder.take_type();
  if (type != Type::f16 && type != Type::f16x2 && !is_bfloat(type)) decoder.refuse_type(type);
  decoder.need(is_bfloat(type) ? capability_of_bf16 : capability_of_f16);
  return type;
}

/// Whether an operation takes bits rather than numbers.
template <class Op, std::size_t Sources>
constexpr bool of_bits() {
  if constexpr (Sources == 1)
    return std::is_same_v<decltype(Op::of(F16{}, {})), std::uint16_t>;
  else if constexpr (Sources == 2)
    return std::is_same_v<decltype(Op::of(F16{}, {}, {})), std::uint16_t>;
  else
    return false;
}

template <class Op, std::size_t Sources, class Format, class Row>
Handler handler() {
  if constexpr (of_bits<Op, Sources>())
    return compute_bits<Op, Format, Row, Sources>;
  else
    return compute<Op, Format, Row, Sources>;
}

template <class Op, std::size_t Sources>
void finish(Decoder& decoder, Type type, std::uint64_t modifiers) {
  decoder.expect_operands(1 + Sources, 1 + Sources);
  decoder.write(decoder.operand(0), ptx::bits(type));
  for (std::size_t i = 1; i <= Sources; ++i) decoder.read(decoder.operand(i), type);
  const auto of_rows = [&]<class Row>(Row) {
    return is_bfloat(type) ? handler<Op, Sources, Bf16, Row>() : handler<Op, Sources, F16, Row>();
  };
  decoder.finish(Kind::floating, ptx::bits(type) == 16 ? of_rows(std::uint16_t{}) : of_rows(std::uint32_t{}),
                 modifiers);
}

void refuse_for_bfloat(Decoder& decoder, Type type, std::uint64_t modifiers) {
  if (is_bfloat(type) && (modifiers & (kFtz | kSat)) != 0) decoder.refuse(".ftz and .sat are not for bf16");
}

template <class Op>
void decode_sum_or_product(Decoder& decoder) {
  (void)decoder.take_one({"rn", ""});
  const std::uint64_t ftz = decoder.take("ftz") ? kFtz : 0;
  const std::uint64_t sat = decoder.take("sat") ? kSat : 0;
  const Type type = take_half(decoder, 53, 90);
  refuse_for_bfloat(decoder, type, ftz | sat);
  finish<Op, 2>(decoder, type, ftz | sat);
}

void decode_fma(Decoder& decoder) {
  (void)decoder.take_one({"rn"});
  const std::uint64_t ftz = decoder.take("ftz") ? kFtz : 0;
  const std::uint64_t sat = decoder.take("sat") ? kSat : 0;
  const std::uint64_t relu = sat == 0 && decoder.take("relu") ? kRelu : 0;
  const Type type = take_half(decoder, relu != 0 ? 80 : 53, 80);
  refuse_for_bfloat(decoder, type, ftz | sat);
  finish<Fma, 3>(decoder, type, ftz | sat | relu);
}

template <bool Greatest>
void decode_extreme(Decoder& decoder) {
  const std::uint64_t ftz = decoder.take("ftz") ? kFtz : 0;
  const bool keep_nan = decoder.take("NaN");
  const bool sign_apart = decoder.take("xorsign");
  if (sign_apart) (void)decoder.take_one({"abs"});
  const Type type = take_half(decoder, sign_apart ? 86 : 80, sign_apart ? 86 : 80);
  refuse_for_bfloat(decoder, type, ftz);
  if (keep_nan && sign_apart)
    finish<Extreme<Greatest, true, true>, 2>(decoder, type, ftz);
  else if (keep_nan)
    finish<Extreme<Greatest, true, false>, 2>(decoder, type, ftz);
  else if (sign_apart)
    finish<Extreme<Greatest, false, true>, 2>(decoder, type, ftz);
  else
    finish<Extreme<Greatest, false, false>, 2>(decoder, type, ftz);
}

template <class Op>
void decode_sign(Decoder& decoder) {
  const std::uint64_t ftz = decoder.take("ftz") ? kFtz : 0;
  const Type type = take_half(decoder, 53, 80);
  refuse_for_bfloat(decoder, type, ftz);
  finish<Op, 1>(decoder, type, ftz);
}

void decode_ex2(Decoder& decoder) {
  (void)decoder.take_one({"approx"});
  const std::uint64_t ftz = decoder.take("ftz") ? kFtz : 0;
  const Type type = take_half(decoder, 75, 90);
  if (is_bfloat(type) != (ftz != 0)) decoder.refuse(".ftz is for bf16, which needs it");
  finish<Ex2, 1>(decoder, type, ftz);
}

void decode_tanh(Decoder& decoder) {
  (void)decoder.take_one({"approx"});
  const Type type = take_half(decoder, 75, 90);
  finish<Tanh, 1>(decoder, type, 0);
}

}  // namespace

std::vector<Opcode> half_opcodes() {
  return {
      {"add", Domain::half, decode_sum_or_product<Arithmetic<std::plus<>>>},
      {"sub", Domain::half, decode_sum_or_product<Arithmetic<std::minus<>>>},
      {"mul", Domain::half, decode_sum_or_product<Arithmetic<std::multiplies<>>>},
      {"fma", Domain::half, decode_fma},
      {"min", Domain::half, decode_extreme<false>},
      {"max", Domain::half, decode_extreme<true>},
      {"abs", Domain::half, decode_sign<Abs>},
      {"neg", Domain::half, decode_sign<Neg>},
      {"ex2", Domain::half, decode_ex2},
      {"tanh", Domain::half, decode_tanh},
  };
}

}  // namespace sparsekiln::emulator

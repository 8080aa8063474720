#include <cfenv>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "emulator/isa/lanes.h"
#include "emulator/isa/number.h"
#include "emulator/program/decoder.h"

/// Floating-point arithmetic of f32 and f64 (PTX ISA 9.7.3). The NaN that an f32 instruction makes is
/// unspecified there; here it is the one that hardware makes (number::kNan32). f64 keeps payloads as the host
/// does.
///
/// For approximate instructions the ISA gives error bounds and no results. Here each is computed in f64 and
/// rounded once to f32, or divided as .rn would, which is within every bound.
namespace sparsekiln::emulator {
namespace {

using ptx::Type;

// ---- what is computed ----

template <class Operation>
struct Arithmetic {
  template <class T>
  static T of(T a, T b) {
    return Operation()(a, b);
  }
};
using Div = Arithmetic<std::divides<>>;
struct Fma {
  template <class T>
  static T of(T a, T b, T c) {
    return std::fma(a, b, c);
  }
};
struct Rcp {
  template <class T>
  static T of(T a) {
    return T{1} / a;
  }
};
struct Sqrt {
  template <class T>
  static T of(T a) {
    return std::sqrt(a);
  }
};

/// a · (1/b), where the reciprocal of a number beyond 2^126 is zero (9.7.3.8).
struct DivApprox {
  static float of(float a, float b) {
    const std::uint32_t bits = number::bits_of(b);
    const bool large = number::float_of(bits & ~number::kSign32) > 0x1p126f;
    const float quotient = a / b;
    return large ? a * number::float_of(bits & number::kSign32) : quotient;
  }
};
struct RsqrtApprox {
  static float of(float a) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a))); }
};
struct RsqrtApprox64 {
  static double of(double a) { return static_cast<double>(1.0L / std::sqrt(static_cast<long double>(a))); }
};
struct Ex2 {
  static float of(float a) { return static_cast<float>(std::exp2(static_cast<double>(a))); }
};
struct Lg2 {
  static float of(float a) { return static_cast<float>(std::log2(static_cast<double>(a))); }
};
struct Sin {
  static float of(float a) { return static_cast<float>(std::sin(static_cast<double>(a))); }
};
struct Cos {
  static float of(float a) { return static_cast<float>(std::cos(static_cast<double>(a))); }
};
struct Tanh {
  static float of(float a) { return static_cast<float>(std::tanh(static_cast<double>(a))); }
};

/// -0 is less than +0. A NaN loses to a number, unless `KeepNan` (9.7.3.11, 9.7.3.12).
template <bool Greatest, bool KeepNan>
struct Extreme {
  template <class T>
  static T of(T a, T b) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    const auto a_bits = std::bit_cast<Bits>(a);
    const auto b_bits = std::bit_cast<Bits>(b);
    // Equal numbers are the same bits, or zeros of two signs.
    const T zero = std::bit_cast<T>(Greatest ? a_bits & b_bits : a_bits | b_bits);
    const T first = a == b ? zero : a;
    const bool takes_a = Greatest ? a >= b : a <= b;
    const T best = takes_a ? first : b;
    if constexpr (KeepNan) return a != a ? a : b != b ? b : best;
    return a != a ? b : b != b ? a : best;
  }
};

/// The extreme of the magnitudes, with the product's sign.
template <class Op>
struct XorSignAbs {
  static float of(float a, float b) {
    const std::uint32_t sign = (number::bits_of(a) ^ number::bits_of(b)) & number::kSign32;
    const float best = Op::of(number::float_of(number::bits_of(a) & ~number::kSign32),
                              number::float_of(number::bits_of(b) & ~number::kSign32));
    return number::float_of(number::bits_of(best) | sign);
  }
};

// ---- what modifiers do to it ----

template <bool Ftz, class T>
T taken(T value) {
  if constexpr (Ftz) return number::flushed(value);
  return value;
}

template <bool Ftz, bool Sat, class T>
T given(T value) {
  if constexpr (std::is_same_v<T, float>) {
    if constexpr (Sat) return taken<Ftz>(number::saturated(value));
    return number::canonical(taken<Ftz>(value));
  }
  return value;
}

template <class Op, class T, bool Ftz, bool Sat>
T unary(T a) {
  return given<Ftz, Sat>(Op::of(taken<Ftz>(a)));
}
template <class Op, class T, bool Ftz, bool Sat>
T binary(T a, T b) {
  return given<Ftz, Sat>(Op::of(taken<Ftz>(a), taken<Ftz>(b)));
}
template <class Op, class T, bool Ftz, bool Sat>
T ternary(T a, T b, T c) {
  return given<Ftz, Sat>(Op::of(taken<Ftz>(a), taken<Ftz>(b), taken<Ftz>(c)));
}

/// How often an operation of rounding `of` reads: 1 to 3 operands.
template <class Op, class T>
constexpr int arity() {
  if constexpr (requires(T x) { Op::of(x); })
    return 1;
  else if constexpr (requires(T x) { Op::of(x, x); })
    return 2;
  else
    return 3;
}

template <class Op, class T, bool Ftz, bool Sat>
void compute(Warp& warp, const Instruction& instruction, Mask mask) {
  constexpr int kArity = arity<Op, T>();
  if constexpr (kArity == 1)
    lanes::map<unary<Op, T, Ftz, Sat>>(warp, instruction, mask);
  else if constexpr (kArity == 2)
    lanes::map<binary<Op, T, Ftz, Sat>>(warp, instruction, mask);
  else
    lanes::map<ternary<Op, T, Ftz, Sat>>(warp, instruction, mask);
}

/// Like `compute` with one operand, for operations without vector instructions on the host.
template <class Op, bool Ftz>
void compute_each(Warp& warp, const Instruction& instruction, Mask mask) {
  const float* a = lanes::operand<const float>(warp, instruction, 1);
  lanes::produce_each(lanes::operand<float>(warp, instruction, 0), mask,
                      [=](int lane) { return unary<Op, float, Ftz, false>(a[lane]); });
}

/// Like `compute`, with the host rounding as `detail` says (a mode of fesetround). Operands and results are
/// in memory that fesetround might access, so no compiler moves the computation across these calls.
template <class Op, class T, bool Ftz, bool Sat>
[[gnu::noinline]] void compute_rounded(Warp& warp, const Instruction& instruction, Mask mask) {
  std::fesetround(static_cast<int>(instruction.detail));
  compute<Op, T, Ftz, Sat>(warp, instruction, mask);
  std::fesetround(FE_TONEAREST);
}

// ---- decoding ----

void finish(Decoder& decoder, Handler run, Type type, std::size_t sources) {
  decoder.expect_operands(1 + sources, 1 + sources);
  decoder.write(decoder.operand(0), ptx::bits(type));
  for (std::size_t i = 1; i <= sources; ++i) decoder.read(decoder.operand(i), type);
  decoder.finish(Kind::floating, run);
}

/// The host's mode for a rounding modifier.
int host_rounding(std::string_view modifier) {
  if (modifier == "rz") return FE_TOWARDZERO;
  if (modifier == "rm") return FE_DOWNWARD;
  if (modifier == "rp") return FE_UPWARD;
  return FE_TONEAREST;
}

Type take_f32_or_f64(Decoder& decoder) {
  const Type type = decoder.take_type();
  if (type != Type::f32 && type != Type::f64) decoder.refuse_type(type);
  return type;
}

void take_f32(Decoder& decoder) {
  const Type type = decoder.take_type();
  if (type != Type::f32) decoder.refuse_type(type);
}

/// Handlers of one operation: by .ftz, .sat and whether it rounds to nearest.
template <class Op>
Handler rounded_handler(Type type, bool ftz, bool sat, bool nearest) {
  if (type == Type::f64)
    return nearest ? compute<Op, double, false, false> : compute_rounded<Op, double, false, false>;
  if (ftz && sat) return nearest ? compute<Op, float, true, true> : compute_rounded<Op, float, true, true>;
  if (ftz) return nearest ? compute<Op, float, true, false> : compute_rounded<Op, float, true, false>;
  if (sat) return nearest ? compute<Op, float, false, true> : compute_rounded<Op, float, false, true>;
  return nearest ? compute<Op, float, false, false> : compute_rounded<Op, float, false, false>;
}

/// `{.ftz}{.sat}.f32`, or `.f64`, of an operation rounded as `rounding` says.
template <class Op>
void finish_rounded(Decoder& decoder, std::string_view rounding, bool may_saturate) {
  const bool ftz = decoder.take("ftz");
  const bool sat = may_saturate && decoder.take("sat");
  const Type type = take_f32_or_f64(decoder);
  if (type == Type::f64 && (ftz || sat)) decoder.refuse(".ftz and .sat are for .f32 only");
  const int mode = host_rounding(rounding);
  finish(decoder, rounded_handler<Op>(type, ftz, sat, mode == FE_TONEAREST), type, arity<Op, float>());
  decoder.instruction().detail = static_cast<std::uint64_t>(mode);
}

template <class Op>
void decode_sum_or_product(Decoder& decoder) {
  const std::string_view rounding = decoder.take_one({"rn", "rz", "rm", "rp", ""});
  finish_rounded<Op>(decoder, rounding, true);
}

void decode_fma(Decoder& decoder) {
  const std::string_view rounding = decoder.take_one({"rn", "rz", "rm", "rp"});
  finish_rounded<Fma>(decoder, rounding, true);
}

template <class Op>
void finish_approximate(Decoder& decoder) {
  const bool ftz = decoder.take("ftz");
  take_f32(decoder);
  finish(decoder, ftz ? compute<Op, float, true, false> : compute<Op, float, false, false>, Type::f32,
         arity<Op, float>());
}

void decode_div(Decoder& decoder) {
  const std::string_view mode = decoder.take_one({"approx", "full", "rn", "rz", "rm", "rp"});
  if (mode == "approx")
    finish_approximate<DivApprox>(decoder);
  else if (mode == "full")
    finish_approximate<Div>(decoder);
  else
    finish_rounded<Div>(decoder, mode, false);
}

/// rcp and sqrt.
template <class Op>
void decode_root_or_reciprocal(Decoder& decoder) {
  const std::string_view mode = decoder.take_one({"approx", "rn", "rz", "rm", "rp"});
  if (mode == "approx")
    finish_approximate<Op>(decoder);
  else
    finish_rounded<Op>(decoder, mode, false);
}

void decode_rsqrt(Decoder& decoder) {
  (void)decoder.take_one({"approx"});
  const bool ftz = decoder.take("ftz");
  const Type type = take_f32_or_f64(decoder);
  if (type == Type::f64) {
    if (ftz) decoder.refuse(".ftz.f64 is not implemented");
    finish(decoder, compute<RsqrtApprox64, double, false, false>, type, 1);
  } else {
    finish(decoder,
           ftz ? compute<RsqrtApprox, float, true, false> : compute<RsqrtApprox, float, false, false>, type,
           1);
  }
}

template <class Op>
void decode_transcendental(Decoder& decoder) {
  (void)decoder.take_one({"approx"});
  const bool ftz = !std::is_same_v<Op, Tanh> && decoder.take("ftz");
  take_f32(decoder);
  finish(decoder, ftz ? compute_each<Op, true> : compute_each<Op, false>, Type::f32, 1);
}

template <class Op>
Handler extreme_handler(bool ftz, bool sign_apart) {
  if (sign_apart)
    return ftz ? compute<XorSignAbs<Op>, float, true, false> : compute<XorSignAbs<Op>, float, false, false>;
  return ftz ? compute<Op, float, true, false> : compute<Op, float, false, false>;
}

template <bool Greatest>
void decode_extreme(Decoder& decoder) {
  const bool ftz = decoder.take("ftz");
  const bool keep_nan = decoder.take("NaN");
  const bool sign_apart = decoder.take("xorsign");
  if (sign_apart) (void)decoder.take_one({"abs"});
  const Type type = take_f32_or_f64(decoder);
  if (type == Type::f64) {
    if (ftz || keep_nan || sign_apart) decoder.refuse("has a modifier that is for .f32 only");
    finish(decoder, compute<Extreme<Greatest, false>, double, false, false>, type, 2);
    return;
  }
  const Handler run = keep_nan ? extreme_handler<Extreme<Greatest, true>>(ftz, sign_apart)
                               : extreme_handler<Extreme<Greatest, false>>(ftz, sign_apart);
  finish(decoder, run, type, 2);
}

// ---- signs: of bits, whatever the number ----

template <class Bits>
constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));

template <class Bits, bool Ftz>
Bits flushed_bits(Bits bits) {
  if constexpr (Ftz) return number::bits_of(number::flushed(number::float_of(bits)));
  return bits;
}
template <class Bits, bool Ftz>
Bits absolute(Bits a) {
  return flushed_bits<Bits, Ftz>(a) & static_cast<Bits>(~kSign<Bits>);
}
template <class Bits, bool Ftz>
Bits negated(Bits a) {
  return flushed_bits<Bits, Ftz>(a) ^ kSign<Bits>;
}
template <class Bits>
Bits with_sign_of(Bits a, Bits b) {
  return (a & kSign<Bits>) | (b & static_cast<Bits>(~kSign<Bits>));
}

template <bool Negate>
void decode_sign(Decoder& decoder) {
  const bool ftz = decoder.take("ftz");
  const Type type = take_f32_or_f64(decoder);
  if (type == Type::f64 && ftz) decoder.refuse(".ftz is for .f32 only");
  Handler run = nullptr;
  if (type == Type::f64)
    run = Negate ? lanes::map<negated<std::uint64_t, false>> : lanes::map<absolute<std::uint64_t, false>>;
  else if (ftz)
    run = Negate ? lanes::map<negated<std::uint32_t, true>> : lanes::map<absolute<std::uint32_t, true>>;
  else
    run = Negate ? lanes::map<negated<std::uint32_t, false>> : lanes::map<absolute<std::uint32_t, false>>;
  finish(decoder, run, type, 1);
}

void decode_copysign(Decoder& decoder) {
  const Type type = take_f32_or_f64(decoder);
  finish(
      decoder,
      type == Type::f64 ? lanes::map<with_sign_of<std::uint64_t>> : lanes::map<with_sign_of<std::uint32_t>>,
      type, 2);
}

}  // namespace

std::vector<Opcode> float_opcodes() {
  return {
      {"add", Domain::floating, decode_sum_or_product<Arithmetic<std::plus<>>>},
      {"sub", Domain::floating, decode_sum_or_product<Arithmetic<std::minus<>>>},
      {"mul", Domain::floating, decode_sum_or_product<Arithmetic<std::multiplies<>>>},
      {"fma", Domain::floating, decode_fma},
      {"mad", Domain::floating, decode_fma},
      {"div", Domain::floating, decode_div},
      {"rcp", Domain::floating, decode_root_or_reciprocal<Rcp>},
      {"sqrt", Domain::floating, decode_root_or_reciprocal<Sqrt>},
      {"rsqrt", Domain::floating, decode_rsqrt},
      {"ex2", Domain::floating, decode_transcendental<Ex2>},
      {"lg2", Domain::floating, decode_transcendental<Lg2>},
      {"sin", Domain::floating, decode_transcendental<Sin>},
      {"cos", Domain::floating, decode_transcendental<Cos>},
      {"tanh", Domain::floating, decode_transcendental<Tanh>},
      {"min", Domain::floating, decode_extreme<false>},
      {"max", Domain::floating, decode_extreme<true>},
      {"abs", Domain::floating, decode_sign<false>},
      {"neg", Domain::floating, decode_sign<true>},
      {"copysign", Domain::floating, decode_copysign},
  };
}

}  // namespace sparsekiln::emulator

#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <type_traits>

#include "emulator/isa/lanes.h"
#include "emulator/isa/types.h"
#include "emulator/program/decoder.h"

/// Comparison and selection (PTX ISA 9.7.6, 9.7.7), and testp (9.7.3.1).
namespace sparsekiln::emulator {
namespace {

using ptx::Type;

// ---- what is compared: how a row's bits become a number of the host ----

template <class T>
struct Plain {
  using Bits = T;
  static T value(T bits) { return bits; }
};

/// Subnormal numbers count as zeros of their sign.
struct FlushedF32 {
  using Bits = std::uint32_t;
  static float value(std::uint32_t bits) {
    return std::bit_cast<float>((bits & 0x7f80'0000u) == 0 ? bits & 0x8000'0000u : bits);
  }
};

struct F16 {
  using Bits = std::uint16_t;
  /// In order and exact, but for infinity: 65536, which is above every finite one as well.
  static float value(std::uint16_t bits) {
    const std::uint32_t magnitude = bits & 0x7fffu;
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    const float number = magnitude > 0x7c00u ? std::numeric_limits<float>::quiet_NaN() : scaled;
    return (bits & 0x8000u) != 0 ? -number : number;
  }
};

struct FlushedF16 {
  using Bits = std::uint16_t;
  static float value(std::uint16_t bits) { return (bits & 0x7c00u) == 0 ? 0.0f : F16::value(bits); }
};

struct Bf16 {
  using Bits = std::uint16_t;
  static float value(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

// ---- comparisons; those that end in u hold for unordered numbers as well ----

using Eq = std::equal_to<>;
using Lt = std::less<>;
using Le = std::less_equal<>;
using Gt = std::greater<>;
using Ge = std::greater_equal<>;
using IntegerNe = std::not_equal_to<>;
/// Both are numbers, and they differ.
struct Ne {
  bool operator()(auto a, auto b) const { return a < b || a > b; }
};
struct Num {
  bool operator()(auto a, auto b) const { return a == a && b == b; }
};
template <class Opposite>
struct Not {
  bool operator()(auto a, auto b) const { return !Opposite()(a, b); }
};

template <class Number, class Comparison>
bool holds(typename Number::Bits a, typename Number::Bits b) {
  return Comparison()(Number::value(a), Number::value(b));
}

/// For the low or the high half of a pair.
template <class Number, class Comparison, int Shift>
bool holds_in_half(std::uint32_t a, std::uint32_t b) {
  return holds<Number, Comparison>(static_cast<std::uint16_t>(a >> Shift),
                                   static_cast<std::uint16_t>(b >> Shift));
}

// ---- handlers ----

enum Join : std::uint64_t { kNoJoiner, kAnd, kOr, kXor };
/// In `detail`: a Join, and whether there is a second result.
constexpr std::uint64_t kJoinBits = 3;
constexpr std::uint64_t kSecondResult = 4;

Mask join(std::uint64_t detail, Mask comparison, Mask other) {
  switch (detail & kJoinBits) {
    case kAnd:
      return comparison & other;
    case kOr:
      return comparison | other;
    case kXor:
      return comparison ^ other;
    default:
      return comparison;
  }
}

/// p|q of setp, from two comparisons.
void write_results(Warp& warp, const Instruction& instruction, Mask mask, Mask first, Mask second) {
  const bool both = (instruction.detail & kSecondResult) != 0;
  const bool joined = (instruction.detail & kJoinBits) != 0;
  const Mask other = joined ? warp.predicate(instruction.operands[both ? 4 : 3]) : 0;
  lanes::write_predicate(warp, instruction.operands[0], join(instruction.detail, first, other), mask);
  if (both)
    lanes::write_predicate(warp, instruction.operands[1], join(instruction.detail, second, other), mask);
}

template <class Number, class Comparison>
void set_predicate(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::size_t first = (instruction.detail & kSecondResult) != 0 ? 2 : 1;
  const Mask result = lanes::test<holds<Number, Comparison>>(warp, instruction, first);
  write_results(warp, instruction, mask, result, ~result);
}

/// setp.f16x2 and .bf16x2: p is of the low halves, q of the high ones.
template <class Number, class Comparison>
void set_predicates_of_pair(Warp& warp, const Instruction& instruction, Mask mask) {
  const Mask low = lanes::test<holds_in_half<Number, Comparison, 0>>(warp, instruction, 2);
  const Mask high = lanes::test<holds_in_half<Number, Comparison, 16>>(warp, instruction, 2);
  write_results(warp, instruction, mask, low, high);
}

/// `set`: the upper half of `detail` is the value for true.
template <class Number, class Comparison>
void set_number(Warp& warp, const Instruction& instruction, Mask mask) {
  const Mask comparison = lanes::test<holds<Number, Comparison>>(warp, instruction, 1);
  const bool joined = (instruction.detail & kJoinBits) != 0;
  const Mask result =
      join(instruction.detail, comparison, joined ? warp.predicate(instruction.operands[3]) : 0);
  const auto yes = static_cast<std::uint32_t>(instruction.detail >> 32);
  lanes::produce(lanes::operand<std::uint32_t>(warp, instruction, 0), mask, [=](int lane) {
    return (result & lanes::kLaneBits<std::uint32_t>[lane]) != 0 ? yes : std::uint32_t{0};
  });
}

/// The handler for a comparison of Number by Comparison.
struct SetPredicate {
  template <class Number, class Comparison>
  static constexpr Handler run = set_predicate<Number, Comparison>;
};
struct SetPredicatesOfPair {
  template <class Number, class Comparison>
  static constexpr Handler run = set_predicates_of_pair<Number, Comparison>;
};
struct SetNumber {
  template <class Number, class Comparison>
  static constexpr Handler run = set_number<Number, Comparison>;
};

/// Null if integers have no such comparison.
template <class Form, class T>
Handler integer_comparison(std::string_view name) {
  using Number = Plain<T>;
  if (name == "eq") return Form::template run<Number, Eq>;
  if (name == "ne") return Form::template run<Number, IntegerNe>;
  if (name == "lt" || (name == "lo" && std::is_unsigned_v<T>)) return Form::template run<Number, Lt>;
  if (name == "le" || (name == "ls" && std::is_unsigned_v<T>)) return Form::template run<Number, Le>;
  if (name == "gt" || (name == "hi" && std::is_unsigned_v<T>)) return Form::template run<Number, Gt>;
  if (name == "ge" || (name == "hs" && std::is_unsigned_v<T>)) return Form::template run<Number, Ge>;
  return nullptr;
}

template <class Form, class Number>
Handler float_comparison(std::string_view name) {
  if (name == "eq") return Form::template run<Number, Eq>;
  if (name == "ne") return Form::template run<Number, Ne>;
  if (name == "lt") return Form::template run<Number, Lt>;
  if (name == "le") return Form::template run<Number, Le>;
  if (name == "gt") return Form::template run<Number, Gt>;
  if (name == "ge") return Form::template run<Number, Ge>;
  if (name == "equ") return Form::template run<Number, Not<Ne>>;
  if (name == "neu") return Form::template run<Number, Not<Eq>>;
  if (name == "ltu") return Form::template run<Number, Not<Ge>>;
  if (name == "leu") return Form::template run<Number, Not<Gt>>;
  if (name == "gtu") return Form::template run<Number, Not<Le>>;
  if (name == "geu") return Form::template run<Number, Not<Lt>>;
  if (name == "num") return Form::template run<Number, Num>;
  if (name == "nan") return Form::template run<Number, Not<Num>>;
  return nullptr;
}

/// Null if the type has no such comparison.
template <class Form>
Handler comparison(std::string_view name, Type type, bool flush) {
  switch (type) {
    case Type::f32:
      return flush ? float_comparison<Form, FlushedF32>(name) : float_comparison<Form, Plain<float>>(name);
    case Type::f64:
      return float_comparison<Form, Plain<double>>(name);
    case Type::f16:
      return flush ? float_comparison<Form, FlushedF16>(name) : float_comparison<Form, F16>(name);
    case Type::bf16:
      return float_comparison<Form, Bf16>(name);
    case Type::s16:
      return integer_comparison<Form, std::int16_t>(name);
    case Type::s32:
      return integer_comparison<Form, std::int32_t>(name);
    case Type::s64:
      return integer_comparison<Form, std::int64_t>(name);
    case Type::b16:
    case Type::u16:
      return integer_comparison<Form, std::uint16_t>(name);
    case Type::b32:
    case Type::u32:
      return integer_comparison<Form, std::uint32_t>(name);
    case Type::b64:
    case Type::u64:
      return integer_comparison<Form, std::uint64_t>(name);
    default:
      return nullptr;
  }
}

Handler comparison_of_pair(std::string_view name, Type type, bool flush) {
  using Form = SetPredicatesOfPair;
  if (type == Type::bf16x2) return float_comparison<Form, Bf16>(name);
  return flush ? float_comparison<Form, FlushedF16>(name) : float_comparison<Form, F16>(name);
}

// ---- decoding ----

bool is_untyped(Type type) { return type == Type::b16 || type == Type::b32 || type == Type::b64; }
bool is_pair(Type type) { return type == Type::f16x2 || type == Type::bf16x2; }
bool may_flush(Type type) { return type == Type::f32 || type == Type::f16 || type == Type::f16x2; }

/// The modifiers that setp and set have before their types.
struct Condition {
  std::string_view name;
  std::uint64_t join = kNoJoiner;
  bool flush = false;
};

Condition take_condition(Decoder& decoder) {
  Condition condition;
  condition.name = decoder.take_one({"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu",
                                     "ltu", "leu", "gtu", "geu", "num", "nan"});
  const std::string_view join = decoder.take_one({"and", "or", "xor", ""});
  condition.join = join == "and" ? kAnd : join == "or" ? kOr : join == "xor" ? kXor : kNoJoiner;
  condition.flush = decoder.take("ftz");
  return condition;
}

void refuse_condition(Decoder& decoder, const Condition& condition, Type type) {
  decoder.refuse("." + std::string(condition.name) + " is no comparison of ." + std::string(ptx::name(type)));
}

void check_condition(Decoder& decoder, const Condition& condition, Type type, Handler run) {
  const bool equality = condition.name == "eq" || condition.name == "ne";
  if (run == nullptr || (is_untyped(type) && !equality)) refuse_condition(decoder, condition, type);
  if (condition.flush && !may_flush(type)) decoder.refuse(".ftz is not for ." + std::string(ptx::name(type)));
}

void read_compared(Decoder& decoder, const Condition& condition, Type type) {
  decoder.read(decoder.operand(1), type);
  decoder.read(decoder.operand(2), type);
  if (condition.join != kNoJoiner) decoder.read(decoder.operand(3), Type::pred);
}

void setp(Decoder& decoder) {
  const Condition condition = take_condition(decoder);
  const Type type = decoder.take_type();
  const Handler run = is_pair(type) ? comparison_of_pair(condition.name, type, condition.flush)
                                    : comparison<SetPredicate>(condition.name, type, condition.flush);
  check_condition(decoder, condition, type, run);
  const std::size_t count = condition.join != kNoJoiner ? 4 : 3;
  decoder.expect_operands(count, count);
  const ptx::Operand& result = decoder.operand(0);
  const bool both = result.kind == ptx::Operand::Kind::pair;
  if (is_pair(type) && !both) decoder.refuse("needs two results, p|q");
  if (both) {
    for (const ptx::Operand& element : result.elements) decoder.write(element, 1);
    if (result.elements.size() != 2) decoder.refuse("needs two results, p|q");
  } else {
    decoder.write(result, 1);
  }
  read_compared(decoder, condition, type);
  decoder.finish(Kind::predicate, run, condition.join | (both ? kSecondResult : 0));
}

void set(Decoder& decoder) {
  const Condition condition = take_condition(decoder);
  const Type to = decoder.take_type();
  const Type type = decoder.take_type();
  if (to != Type::u32 && to != Type::s32 && to != Type::f32)
    decoder.refuse("with a result of ." + std::string(ptx::name(to)) + " is not implemented");
  const Handler run = comparison<SetNumber>(condition.name, type, condition.flush);
  check_condition(decoder, condition, type, run);
  const std::size_t count = condition.join != kNoJoiner ? 4 : 3;
  decoder.expect_operands(count, count);
  decoder.write(decoder.operand(0), 32);
  read_compared(decoder, condition, type);
  const std::uint32_t yes = to == Type::f32 ? std::bit_cast<std::uint32_t>(1.0f) : 0xffffffffu;
  decoder.finish(Kind::integer, run, condition.join | std::uint64_t{yes} << 32);
}

// ---- selp, slct ----

template <class T>
void select(Warp& warp, const Instruction& instruction, Mask mask) {
  const T* yes = lanes::operand<const T>(warp, instruction, 1);
  const T* no = lanes::operand<const T>(warp, instruction, 2);
  const Mask which = warp.predicate(instruction.operands[3]);
  T* to = lanes::operand<T>(warp, instruction, 0);
  if constexpr (sizeof(T) == 2) {
    alignas(64) T result[kLanes];
    std::memcpy(result, no, sizeof result);
    lanes::blend(result, yes, which);
    lanes::blend(to, result, mask);
  } else {
    const T wide = which;
    lanes::produce(to, mask,
                   [=](int lane) { return (wide & lanes::kLaneBits<T>[lane]) != 0 ? yes[lane] : no[lane]; });
  }
}

Type take_selected_type(Decoder& decoder) {
  const Type type = decoder.take_type();
  const int bits = ptx::bits(type);
  const bool real = type == Type::f32 || type == Type::f64;
  if (bits < 16 || bits > 64 || (ptx::is_float(type) && !real)) decoder.refuse_type(type);
  return type;
}

void selp(Decoder& decoder) {
  const Type type = take_selected_type(decoder);
  const Handler run = for_width(decoder, type, []<class T>(T) -> Handler { return select<T>; });
  finish_integer(decoder, run, type, {type, type, Type::pred});
}

template <class T, class Number>
T select_by_sign(T a, T b, typename Number::Bits c) {
  return Number::value(c) >= 0 ? a : b;
}

void slct(Decoder& decoder) {
  const bool flush = decoder.take("ftz");
  const Type type = take_selected_type(decoder);
  const bool by_float = decoder.take_one({"s32", "f32"}) == "f32";
  if (flush && !by_float) decoder.refuse(".ftz is for .f32 only");
  const Handler run = for_width(decoder, type, [&]<class T>(T) -> Handler {
    if (!by_float) return lanes::map<select_by_sign<T, Plain<std::int32_t>>>;
    return flush ? lanes::map<select_by_sign<T, FlushedF32>> : lanes::map<select_by_sign<T, Plain<float>>>;
  });
  finish_integer(decoder, run, type, {type, type, by_float ? Type::f32 : Type::s32});
}

// ---- testp ----

enum class Property { finite, infinite, number, notanumber, normal, subnormal };

/// Zeros are normal numbers here (9.7.3.1).
template <class T, Property P>
bool has_property(T bits) {
  constexpr T kExponent = sizeof(T) == 4 ? T{0x7f80'0000u} : static_cast<T>(0x7ff0'0000'0000'0000u);
  const T magnitude = static_cast<T>(bits << 1) >> 1;
  const bool subnormal = magnitude != 0 && magnitude < (kExponent & (~kExponent + 1));
  switch (P) {
    case Property::finite:
      return magnitude < kExponent;
    case Property::infinite:
      return magnitude == kExponent;
    case Property::number:
      return magnitude <= kExponent;
    case Property::notanumber:
      return magnitude > kExponent;
    case Property::normal:
      return magnitude < kExponent && !subnormal;
    case Property::subnormal:
      return subnormal;
  }
}

template <class T, Property P>
void test_property(Warp& warp, const Instruction& instruction, Mask mask) {
  const Mask result = lanes::test<has_property<T, P>>(warp, instruction, 1);
  lanes::write_predicate(warp, instruction.operands[0], result, mask);
}

template <class T>
Handler property_test(std::string_view name) {
  if (name == "finite") return test_property<T, Property::finite>;
  if (name == "infinite") return test_property<T, Property::infinite>;
  if (name == "number") return test_property<T, Property::number>;
  if (name == "notanumber") return test_property<T, Property::notanumber>;
  if (name == "normal") return test_property<T, Property::normal>;
  return test_property<T, Property::subnormal>;
}

void testp(Decoder& decoder) {
  const std::string_view property =
      decoder.take_one({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  const bool wide = decoder.take_one({"f32", "f64"}) == "f64";
  const Handler run = wide ? property_test<std::uint64_t>(property) : property_test<std::uint32_t>(property);
  finish_integer(decoder, run, Type::pred, {wide ? Type::f64 : Type::f32});
}

}  // namespace

std::vector<Opcode> comparison_opcodes() {
  return {
      {"setp", Domain::any, setp}, {"set", Domain::any, set},     {"selp", Domain::any, selp},
      {"slct", Domain::any, slct}, {"testp", Domain::any, testp},
  };
}

}  // namespace sparsekiln::emulator

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "emulator/isa/lanes.h"
#include "emulator/isa/types.h"
#include "emulator/program/decoder.h"

/// Integer arithmetic (PTX ISA 9.7.1). Results wrap around unless .sat says otherwise.
namespace sparsekiln::emulator {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

/// Twice as wide as T.
template <class T>
struct WideOf;
template <>
struct WideOf<std::uint16_t> {
  using type = std::uint32_t;
};
template <>
struct WideOf<std::int16_t> {
  using type = std::int32_t;
};
template <>
struct WideOf<std::uint32_t> {
  using type = std::uint64_t;
};
template <>
struct WideOf<std::int32_t> {
  using type = std::int64_t;
};
__extension__ using Unsigned128 = unsigned __int128;
__extension__ using Signed128 = __int128;
template <>
struct WideOf<std::uint64_t> {
  using type = Unsigned128;
};
template <>
struct WideOf<std::int64_t> {
  using type = Signed128;
};
template <class T>
using Wide = typename WideOf<T>::type;

/// `T` wrapped around, computed without overflow: `unsigned` for what C++ would promote to int.
template <class T>
using Ring = std::conditional_t<sizeof(T) < 4, std::uint32_t, Unsigned<T>>;

template <class T>
T add(T a, T b) {
  return static_cast<T>(static_cast<Ring<T>>(a) + static_cast<Ring<T>>(b));
}

template <class T>
T sub(T a, T b) {
  return static_cast<T>(static_cast<Ring<T>>(a) - static_cast<Ring<T>>(b));
}

std::int32_t clamp_to_s32(std::int64_t value) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(value, std::numeric_limits<std::int32_t>::min(),
                                                            std::numeric_limits<std::int32_t>::max()));
}
std::int32_t add_saturated(std::int32_t a, std::int32_t b) { return clamp_to_s32(std::int64_t{a} + b); }
std::int32_t sub_saturated(std::int32_t a, std::int32_t b) { return clamp_to_s32(std::int64_t{a} - b); }

template <class T>
T mul_lo(T a, T b) {
  return static_cast<T>(static_cast<Ring<T>>(a) * static_cast<Ring<T>>(b));
}

template <class T>
T mul_hi(T a, T b) {
  return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >> (8 * sizeof(T)));
}

template <class T>
Wide<T> mul_wide(T a, T b) {
  return static_cast<Wide<T>>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b));
}

template <class T>
T mad_lo(T a, T b, T c) {
  return add(mul_lo(a, b), c);
}

template <class T>
T mad_hi(T a, T b, T c) {
  return add(mul_hi(a, b), c);
}

std::int32_t mad_hi_saturated(std::int32_t a, std::int32_t b, std::int32_t c) {
  return add_saturated(mul_hi(a, b), c);
}

template <class T>
Wide<T> mad_wide(T a, T b, Wide<T> c) {
  return add(mul_wide(a, b), c);
}

/// The low 24 bits as a number.
template <class T>
std::int64_t low24(T value) {
  if constexpr (std::is_signed_v<T>)
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(value) << 8) >> 8;
  else
    return value & 0xffffff;
}

template <class T>
T mul24_lo(T a, T b) {
  return static_cast<T>(low24(a) * low24(b));
}

template <class T>
T mul24_hi(T a, T b) {
  return static_cast<T>((low24(a) * low24(b)) >> 16);
}

template <class T>
T mad24_lo(T a, T b, T c) {
  return add(mul24_lo(a, b), c);
}

template <class T>
T mad24_hi(T a, T b, T c) {
  return add(mul24_hi(a, b), c);
}

template <class T>
T abs_difference_plus(T a, T b, T c) {
  return add(c, a > b ? sub(a, b) : sub(b, a));
}

template <class T>
T negated(T a) {
  return sub(T{0}, a);
}

template <class T>
T absolute(T a) {
  return a < 0 ? negated(a) : a;
}

template <class T>
T least(T a, T b) {
  return a < b ? a : b;
}

template <class T>
T greatest(T a, T b) {
  return a > b ? a : b;
}

template <class T>
T least_relu(T a, T b) {
  return greatest(least(a, b), T{0});
}

template <class T>
T greatest_relu(T a, T b) {
  return greatest(greatest(a, b), T{0});
}

template <class T>
T quotient(T a, T b) {
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return negated(a);  // of the least number as well, where the host would trap
  return static_cast<T>(a / b);
}

template <class T>
T remainder(T a, T b) {
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return static_cast<T>(a % b);
}

/// Lane by lane. The result of a division by zero is unspecified (9.7.1.8): a kernel that needs it is wrong.
template <class T, T (*F)(T, T)>
void divide(Warp& warp, const Instruction& instruction, Mask mask) {
  const T* a = lanes::operand<const T>(warp, instruction, 1);
  const T* b = lanes::operand<const T>(warp, instruction, 2);
  each_bit(mask, [&](int lane) {
    if (b[lane] == 0) fault(FaultKind::invalid_operation, warp, instruction, lane, "division by zero");
  });
  lanes::produce_each(lanes::operand<T>(warp, instruction, 0), mask,
                      [=](int lane) { return F(a[lane], b[lane]); });
}

/// Element `i` of 4 bytes or 2 halves.
template <class Element>
std::int64_t element(std::uint32_t packed, int i) {
  return static_cast<Element>(packed >> (8 * static_cast<int>(sizeof(Element)) * i));
}

/// `a` has four bytes (dp4a) or two halves (dp2a); `b` has bytes, of which dp2a takes those from First.
template <class A, class B, int First>
std::uint32_t dot_product_plus(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  for (int i = 0; i < 4 / static_cast<int>(sizeof(A)); ++i)
    c += static_cast<std::uint32_t>(element<A>(a, i) * element<B>(b, First + i));
  return c;
}

template <bool Subtract>
void add_or_sub(Decoder& decoder) {
  const bool saturated = decoder.take("sat");
  const ptx::Type type = decoder.take_type();
  if (saturated && type != ptx::Type::s32) decoder.refuse(".sat is for .s32 only");
  Handler run = nullptr;
  if (saturated)
    run = Subtract ? lanes::map<sub_saturated> : lanes::map<add_saturated>;
  else
    run = for_integer(decoder, type, []<class T>(T) -> Handler {
      return Subtract ? lanes::map<sub<T>> : lanes::map<add<T>>;
    });
  finish_integer(decoder, run, type, {type, type});
}

ptx::Type widened(Decoder& decoder, ptx::Type type) {
  switch (type) {
    case ptx::Type::u16:
      return ptx::Type::u32;
    case ptx::Type::s16:
      return ptx::Type::s32;
    case ptx::Type::u32:
      return ptx::Type::u64;
    case ptx::Type::s32:
      return ptx::Type::s64;
    default:
      decoder.refuse(".wide is for 16 and 32 bits only");
  }
}

void mul(Decoder& decoder) {
  const std::string_view mode = decoder.take_one({"lo", "hi", "wide"});
  const ptx::Type type = decoder.take_type();
  const ptx::Type result = mode == "wide" ? widened(decoder, type) : type;
  finish_integer(decoder,
                 for_integer(decoder, type,
                             [&]<class T>(T) -> Handler {
                               if (mode == "lo") return lanes::map<mul_lo<T>>;
                               if (mode == "hi") return lanes::map<mul_hi<T>>;
                               if constexpr (sizeof(T) < 8) return lanes::map<mul_wide<T>>;
                               decoder.refuse(".wide is for 16 and 32 bits only");
                             }),
                 result, {type, type});
}

void mad(Decoder& decoder) {
  const std::string_view mode = decoder.take_one({"lo", "hi", "wide"});
  const bool saturated = mode == "hi" && decoder.take("sat");
  const ptx::Type type = decoder.take_type();
  if (saturated && type != ptx::Type::s32) decoder.refuse(".sat is for .s32 only");
  const ptx::Type result = mode == "wide" ? widened(decoder, type) : type;
  finish_integer(decoder,
                 for_integer(decoder, type,
                             [&]<class T>(T) -> Handler {
                               if (saturated) return lanes::map<mad_hi_saturated>;
                               if (mode == "lo") return lanes::map<mad_lo<T>>;
                               if (mode == "hi") return lanes::map<mad_hi<T>>;
                               if constexpr (sizeof(T) < 8) return lanes::map<mad_wide<T>>;
                               decoder.refuse(".wide is for 16 and 32 bits only");
                             }),
                 result, {type, type, result});
}

template <bool Add>
void mul24(Decoder& decoder) {
  const bool low = decoder.take_one({"lo", "hi"}) == "lo";
  const ptx::Type type = decoder.take_type();
  if (ptx::bits(type) != 32) decoder.refuse("is for .u32 and .s32 only");
  const Handler run = for_word(decoder, type, [&]<class T>(T) -> Handler {
    if (Add) return low ? lanes::map<mad24_lo<T>> : lanes::map<mad24_hi<T>>;
    return low ? lanes::map<mul24_lo<T>> : lanes::map<mul24_hi<T>>;
  });
  if (Add)
    finish_integer(decoder, run, type, {type, type, type});
  else
    finish_integer(decoder, run, type, {type, type});
}

void sad(Decoder& decoder) {
  const ptx::Type type = decoder.take_type();
  finish_integer(
      decoder,
      for_integer(decoder, type, []<class T>(T) -> Handler { return lanes::map<abs_difference_plus<T>>; }),
      type, {type, type, type});
}

void div(Decoder& decoder) {
  const ptx::Type type = decoder.take_type();
  finish_integer(decoder,
                 for_integer(decoder, type, []<class T>(T) -> Handler { return divide<T, quotient<T>>; }),
                 type, {type, type});
}

void rem(Decoder& decoder) {
  const ptx::Type type = decoder.take_type();
  finish_integer(decoder,
                 for_integer(decoder, type, []<class T>(T) -> Handler { return divide<T, remainder<T>>; }),
                 type, {type, type});
}

void abs(Decoder& decoder) {
  const ptx::Type type = decoder.take_type();
  finish_integer(decoder,
                 for_signed(decoder, type, []<class T>(T) -> Handler { return lanes::map<absolute<T>>; }),
                 type, {type});
}

void neg(Decoder& decoder) {
  const ptx::Type type = decoder.take_type();
  finish_integer(decoder,
                 for_signed(decoder, type, []<class T>(T) -> Handler { return lanes::map<negated<T>>; }),
                 type, {type});
}

template <bool Max>
void min_or_max(Decoder& decoder) {
  const bool relu = decoder.take("relu");
  const ptx::Type type = decoder.take_type();
  Handler run = nullptr;
  if (relu && type == ptx::Type::s32)
    run = Max ? lanes::map<greatest_relu<std::int32_t>> : lanes::map<least_relu<std::int32_t>>;
  else if (relu)
    decoder.refuse(".relu is for .s32 only");
  else
    run = for_integer(decoder, type, []<class T>(T) -> Handler {
      return Max ? lanes::map<greatest<T>> : lanes::map<least<T>>;
    });
  finish_integer(decoder, run, type, {type, type});
}

/// Handlers by whether `a` and `b` are signed.
template <class A, class UnsignedA, int First>
Handler dot_product(bool a_signed, bool b_signed) {
  if (a_signed)
    return b_signed ? lanes::map<dot_product_plus<A, std::int8_t, First>>
                    : lanes::map<dot_product_plus<A, std::uint8_t, First>>;
  return b_signed ? lanes::map<dot_product_plus<UnsignedA, std::int8_t, First>>
                  : lanes::map<dot_product_plus<UnsignedA, std::uint8_t, First>>;
}

template <bool Bytes>
void dot_product_accumulate(Decoder& decoder) {
  const bool high = !Bytes && decoder.take_one({"lo", "hi"}) == "hi";
  const bool a_signed = decoder.take_one({"s32", "u32"}) == "s32";
  const bool b_signed = decoder.take_one({"s32", "u32"}) == "s32";
  Handler run = nullptr;
  if (Bytes)
    run = dot_product<std::int8_t, std::uint8_t, 0>(a_signed, b_signed);
  else if (high)
    run = dot_product<std::int16_t, std::uint16_t, 2>(a_signed, b_signed);
  else
    run = dot_product<std::int16_t, std::uint16_t, 0>(a_signed, b_signed);
  finish_integer(decoder, run, ptx::Type::b32, {ptx::Type::b32, ptx::Type::b32, ptx::Type::b32});
}

}  // namespace

std::vector<Opcode> integer_opcodes() {
  return {
      {"add", Domain::integer, add_or_sub<false>},
      {"sub", Domain::integer, add_or_sub<true>},
      {"mul", Domain::integer, mul},
      {"mad", Domain::integer, mad},
      {"mul24", Domain::integer, mul24<false>},
      {"mad24", Domain::integer, mul24<true>},
      {"sad", Domain::integer, sad},
      {"div", Domain::integer, div},
      {"rem", Domain::integer, rem},
      {"abs", Domain::integer, abs},
      {"neg", Domain::integer, neg},
      {"min", Domain::integer, min_or_max<false>},
      {"max", Domain::integer, min_or_max<true>},
      {"dp4a", Domain::integer, dot_product_accumulate<true>},
      {"dp2a", Domain::integer, dot_product_accumulate<false>},
  };
}

}  // namespace sparsekiln::emulator

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <type_traits>

#include "emulator/isa/lanes.h"
#include "emulator/isa/types.h"
#include "emulator/program/decoder.h"

/// Logic, shifts (PTX ISA 9.7.8), bits and bytes (9.7.1.12 to 9.7.1.22, 9.7.9.7).
namespace sparsekiln::emulator {
namespace {

using ptx::Type;

// ---- and, or, xor, not, cnot ----

template <class Operation, class T>
T combined(T a, T b) {
  return static_cast<T>(Operation()(a, b));
}

template <class T>
T complement(T a) {
  return static_cast<T>(~a);
}

template <class T>
T is_zero(T a) {
  return a == 0 ? 1 : 0;
}

template <class Operation>
void combine_predicates(Warp& warp, const Instruction& instruction, Mask mask) {
  const Mask result =
      Operation()(warp.predicate(instruction.operands[1]), warp.predicate(instruction.operands[2]));
  lanes::write_predicate(warp, instruction.operands[0], result, mask);
}

/// b16, b32, b64, and pred where `predicates`.
Type bit_type(Decoder& decoder, bool predicates) {
  const Type type = decoder.take_type();
  if (type == Type::b16 || type == Type::b32 || type == Type::b64) return type;
  if (predicates && type == Type::pred) return type;
  decoder.refuse_type(type);
}

template <class Operation>
void combine(Decoder& decoder) {
  const Type type = bit_type(decoder, true);
  const Handler run = type == Type::pred ? combine_predicates<Operation>
                                         : for_width(decoder, type, []<class T>(T) -> Handler {
                                             return lanes::map<combined<Operation, T>>;
                                           });
  finish_integer(decoder, run, type, {type, type});
}

void invert(Decoder& decoder) {
  const Type type = bit_type(decoder, true);
  const Handler run =
      type == Type::pred
          ? lanes::negate_predicate
          : for_width(decoder, type, []<class T>(T) -> Handler { return lanes::map<complement<T>>; });
  finish_integer(decoder, run, type, {type});
}

void cnot(Decoder& decoder) {
  const Type type = bit_type(decoder, false);
  finish_integer(decoder,
                 for_width(decoder, type, []<class T>(T) -> Handler { return lanes::map<is_zero<T>>; }), type,
                 {type});
}

// ---- shifts: amounts of the width and more shift everything out ----

template <class T>
inline constexpr std::uint32_t kBits = 8 * sizeof(T);

template <class T>
T shift_left(T a, std::uint32_t amount) {
  const T shifted = static_cast<T>(a << (amount & (kBits<T> - 1)));
  return amount < kBits<T> ? shifted : T{0};
}

template <class T>
T shift_right(T a, std::uint32_t amount) {
  if constexpr (std::is_signed_v<T>) return static_cast<T>(a >> std::min(amount, kBits<T> - 1));
  const T shifted = static_cast<T>(a >> (amount & (kBits<T> - 1)));
  return amount < kBits<T> ? shifted : T{0};
}

void shl(Decoder& decoder) {
  const Type type = bit_type(decoder, false);
  finish_integer(decoder,
                 for_width(decoder, type, []<class T>(T) -> Handler { return lanes::map<shift_left<T>>; }),
                 type, {type, Type::u32});
}

void shr(Decoder& decoder) {
  const Type type = decoder.take_type();
  if (type == Type::pred || ptx::is_float(type)) decoder.refuse("is for integers only");
  const Handler run =
      ptx::is_signed(type)
          ? for_signed(decoder, type, []<class T>(T) -> Handler { return lanes::map<shift_right<T>>; })
          : for_width(decoder, type, []<class T>(T) -> Handler { return lanes::map<shift_right<T>>; });
  finish_integer(decoder, run, type, {type, Type::u32});
}

/// `high`:`low` as 64 bits.
std::uint64_t funnel(std::uint32_t high, std::uint32_t low) { return std::uint64_t{high} << 32 | low; }

template <bool Clamp>
std::uint32_t funnel_amount(std::uint32_t amount) {
  return Clamp ? std::min<std::uint32_t>(amount, 32) : amount & 31;
}

template <bool Clamp>
std::uint32_t funnel_left(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  return static_cast<std::uint32_t>(funnel(b, a) << funnel_amount<Clamp>(c) >> 32);
}

template <bool Clamp>
std::uint32_t funnel_right(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  return static_cast<std::uint32_t>(funnel(b, a) >> funnel_amount<Clamp>(c));
}

void shf(Decoder& decoder) {
  const bool left = decoder.take_one({"l", "r"}) == "l";
  const bool clamp = decoder.take_one({"clamp", "wrap"}) == "clamp";
  decoder.take_one({"b32"});
  Handler run = clamp ? lanes::map<funnel_right<true>> : lanes::map<funnel_right<false>>;
  if (left) run = clamp ? lanes::map<funnel_left<true>> : lanes::map<funnel_left<false>>;
  finish_integer(decoder, run, Type::b32, {Type::b32, Type::b32, Type::u32});
}

// ---- lop3 ----

/// Bit i of the table is the answer where the bits of a, b and c spell i. Chosen by c, then b, then a, 32
/// bits at a time.
std::uint32_t look_up(std::uint64_t table, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const auto all = [table](int i) { return std::uint32_t{0} - static_cast<std::uint32_t>(table >> i & 1); };
  const auto choose = [](std::uint32_t which, std::uint32_t zero, std::uint32_t one) {
    return zero ^ (which & (zero ^ one));
  };
  const std::uint32_t without_a = choose(b, choose(c, all(0), all(1)), choose(c, all(2), all(3)));
  const std::uint32_t with_a = choose(b, choose(c, all(4), all(5)), choose(c, all(6), all(7)));
  return choose(a, without_a, with_a);
}

void lop3(Decoder& decoder) {
  decoder.take_one({"b32"});
  decoder.expect_operands(5, 5);
  const std::int64_t table = decoder.constant(decoder.operand(4));
  if (table < 0 || table > 255) decoder.refuse("has a table that is not of 8 bits");
  decoder.write(decoder.operand(0), 32);
  for (std::size_t i = 1; i <= 3; ++i) decoder.read(decoder.operand(i), Type::b32);
  decoder.finish(Kind::integer, lanes::map_detail<look_up>, static_cast<std::uint64_t>(table));
}

// ---- prmt ----

/// Byte `selector` of b:a; its bit 3 asks for the byte's sign instead, eight times.
std::uint32_t selected_byte(std::uint64_t bytes, std::uint32_t selector) {
  const auto byte = static_cast<std::uint32_t>(bytes >> (8 * (selector & 7)) & 0xff);
  const std::uint32_t sign = (byte & 0x80) != 0 ? 0xff : 0;
  return (selector & 8) != 0 ? sign : byte;
}

std::uint32_t permute(std::uint32_t a, std::uint32_t b, std::uint32_t selectors) {
  const std::uint64_t bytes = funnel(b, a);
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) result |= selected_byte(bytes, selectors >> (4 * i) & 0xf) << (8 * i);
  return result;
}

/// The selectors that each mode has for the two low bits of c (9.7.9.7, table of modes), 16 bits each, the
/// first lowest.
std::uint64_t selectors_of(std::string_view mode) {
  if (mode == "f4e") return 0x6543'5432'4321'3210;
  if (mode == "b4e") return 0x0123'7012'6701'5670;
  if (mode == "rc8") return 0x3333'2222'1111'0000;
  if (mode == "ecl") return 0x3333'3222'3211'3210;
  if (mode == "ecr") return 0x3210'2210'1110'0000;
  return 0x3232'1010'3232'1010;  // rc16
}

std::uint32_t permute_by_mode(std::uint64_t modes, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  return permute(a, b, static_cast<std::uint32_t>(modes >> (16 * (c & 3)) & 0xffff));
}

void prmt(Decoder& decoder) {
  decoder.take_one({"b32"});
  const std::string_view mode = decoder.take_one({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16", ""});
  if (!mode.empty()) decoder.instruction().detail = selectors_of(mode);
  finish_integer(decoder, mode.empty() ? lanes::map<permute> : lanes::map_detail<permute_by_mode>, Type::b32,
                 {Type::b32, Type::b32, Type::b32});
}

// ---- bit fields ----

/// `length` low ones.
template <class T>
T low_ones(std::uint32_t length) {
  return length >= kBits<T> ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << length) - 1);
}

/// A position or a length. The ISA says that their low 8 bits count; an H100 takes all of them for 64-bit
/// types.
template <class T>
std::uint32_t of_field(std::uint32_t number) {
  return sizeof(T) == 8 ? std::min(number, 2 * kBits<T>) : number & 0xff;
}

template <class T>
T extract_field(T a, std::uint32_t b, std::uint32_t c) {
  using U = std::make_unsigned_t<T>;
  const std::uint32_t position = of_field<T>(b);
  const std::uint32_t length = of_field<T>(c);
  const auto bits = static_cast<U>(a);
  const U field = shift_right(bits, position) & low_ones<U>(length);
  if constexpr (!std::is_signed_v<T>) return field;
  const std::uint32_t sign_at = std::min(position + length - 1, kBits<T> - 1);
  const bool ones = length != 0 && (bits >> sign_at & 1) != 0;
  // Bits of the field that lie above the number's own are copies of the sign as well.
  const std::uint32_t own = position < kBits<T> ? std::min(length, kBits<T> - position) : 0;
  return static_cast<T>(ones ? field | static_cast<U>(~low_ones<U>(own)) : field);
}

template <class T>
T insert_field(T a, T b, std::uint32_t c, std::uint32_t d) {
  const std::uint32_t position = of_field<T>(c);
  const T ones = shift_left(low_ones<T>(of_field<T>(d)), position);
  return static_cast<T>((b & ~ones) | (shift_left(a, position) & ones));
}

void bfe(Decoder& decoder) {
  const Type type = decoder.take_type();
  finish_integer(decoder,
                 for_word(decoder, type, []<class T>(T) -> Handler { return lanes::map<extract_field<T>>; }),
                 type, {type, Type::u32, Type::u32});
}

void bfi(Decoder& decoder) {
  const Type type = bit_type(decoder, false);
  if (type == Type::b16) decoder.refuse("is for .b32 and .b64 only");
  finish_integer(decoder,
                 for_width(decoder, type, []<class T>(T) -> Handler { return lanes::map<insert_field<T>>; }),
                 type, {type, type, Type::u32, Type::u32});
}

// ---- counting and finding ----

template <class T>
std::uint32_t count_ones(T a) {
  return static_cast<std::uint32_t>(std::popcount(a));
}

template <class T>
std::uint32_t leading_zeros(T a) {
  return static_cast<std::uint32_t>(std::countl_zero(a));
}

template <class T>
T reversed(T a) {
  const auto swap = [&a](T pattern, int distance) {
    a = static_cast<T>((a >> distance & pattern) | (a & pattern) << distance);
  };
  constexpr T kAll = static_cast<T>(~T{0});
  swap(kAll / 3, 1);   // 01010101…
  swap(kAll / 5, 2);   // 00110011…
  swap(kAll / 17, 4);  // 00001111…
  return sizeof(T) == 8 ? static_cast<T>(__builtin_bswap64(a))
                        : static_cast<T>(__builtin_bswap32(static_cast<std::uint32_t>(a)));
}

/// Place of the highest bit that differs from the sign; all ones where none does. From the top where
/// `Amount`.
template <class T, bool Amount>
std::uint32_t find_highest(T a) {
  using U = std::make_unsigned_t<T>;
  auto bits = static_cast<U>(a);
  if constexpr (std::is_signed_v<T>) bits = a < 0 ? static_cast<U>(~bits) : bits;
  if (bits == 0) return 0xffffffffu;
  const auto zeros = static_cast<std::uint32_t>(std::countl_zero(bits));
  return Amount ? zeros : kBits<T> - 1 - zeros;
}

void popc(Decoder& decoder) {
  const Type type = bit_type(decoder, false);
  if (type == Type::b16) decoder.refuse("is for .b32 and .b64 only");
  finish_integer(decoder,
                 for_width(decoder, type, []<class T>(T) -> Handler { return lanes::map<count_ones<T>>; }),
                 Type::u32, {type});
}

void clz(Decoder& decoder) {
  const Type type = bit_type(decoder, false);
  if (type == Type::b16) decoder.refuse("is for .b32 and .b64 only");
  finish_integer(decoder,
                 for_width(decoder, type, []<class T>(T) -> Handler { return lanes::map<leading_zeros<T>>; }),
                 Type::u32, {type});
}

void brev(Decoder& decoder) {
  const Type type = bit_type(decoder, false);
  if (type == Type::b16) decoder.refuse("is for .b32 and .b64 only");
  const Handler run =
      type == Type::b32 ? lanes::map<reversed<std::uint32_t>> : lanes::map<reversed<std::uint64_t>>;
  finish_integer(decoder, run, type, {type});
}

void bfind(Decoder& decoder) {
  const bool amount = decoder.take("shiftamt");
  const Type type = decoder.take_type();
  finish_integer(decoder,
                 for_word(decoder, type,
                          [&]<class T>(T) -> Handler {
                            return amount ? lanes::map<find_highest<T, true>>
                                          : lanes::map<find_highest<T, false>>;
                          }),
                 Type::u32, {type});
}

/// The `offset`-th set bit of `bits` from bit `base` on, that bit included: upwards from 1, downwards from
/// −1; 0 asks for bit `base` itself. All ones where there is none.
std::uint32_t find_nth_set(std::uint32_t bits, std::uint32_t base, std::int32_t offset) {
  const auto is_set = [bits](std::int64_t at) { return at >= 0 && at < 32 && (bits >> at & 1) != 0; };
  if (offset == 0) return is_set(base) ? base : 0xffffffffu;
  std::int64_t left = offset > 0 ? offset : -std::int64_t{offset};
  for (std::int64_t at = base; at >= 0 && at < 32; at += offset > 0 ? 1 : -1)
    if (is_set(at) && --left == 0) return static_cast<std::uint32_t>(at);
  return 0xffffffffu;
}

void fns(Decoder& decoder) {
  decoder.take_one({"b32"});
  finish_integer(decoder, lanes::map<find_nth_set>, Type::b32, {Type::b32, Type::u32, Type::s32});
}

/// `b` ones from bit `a` on; those above the top are lost.
template <bool Clamp>
std::uint32_t bit_mask(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t position = Clamp ? a : a & 31;
  const std::uint32_t width = Clamp ? b : b & 31;
  return shift_left(low_ones<std::uint32_t>(width), position);
}

void bmsk(Decoder& decoder) {
  const bool clamp = decoder.take_one({"clamp", "wrap"}) == "clamp";
  decoder.take_one({"b32"});
  finish_integer(decoder, clamp ? lanes::map<bit_mask<true>> : lanes::map<bit_mask<false>>, Type::b32,
                 {Type::u32, Type::u32});
}

}  // namespace

std::vector<Opcode> logic_opcodes() {
  return {
      {"and", Domain::integer, combine<std::bit_and<>>},
      {"or", Domain::integer, combine<std::bit_or<>>},
      {"xor", Domain::integer, combine<std::bit_xor<>>},
      {"not", Domain::integer, invert},
      {"cnot", Domain::integer, cnot},
      {"shl", Domain::integer, shl},
      {"shr", Domain::integer, shr},
      {"shf", Domain::integer, shf},
      {"lop3", Domain::integer, lop3},
      {"prmt", Domain::integer, prmt},
      {"bfe", Domain::integer, bfe},
      {"bfi", Domain::integer, bfi},
      {"popc", Domain::integer, popc},
      {"clz", Domain::integer, clz},
      {"brev", Domain::integer, brev},
      {"bfind", Domain::integer, bfind},
      {"fns", Domain::integer, fns},
      {"bmsk", Domain::integer, bmsk},
  };
}

}  // namespace sparsekiln::emulator

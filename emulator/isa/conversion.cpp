#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "emulator/isa/conversion_float.h"
#include "emulator/isa/conversion_value.h"
#include "emulator/isa/lanes.h"
#include "emulator/isa/narrow_elements.h"
#include "emulator/program/decoder.h"
#include "emulator/program/program.h"

/// cvt (PTX ISA 9.7.9.21). What kernels convert often has a handler of its own, here and in conversion_float;
/// the rest goes through conversion_value, lane by lane.
namespace sparsekiln::emulator {
namespace {

using number::Rounding;
using ptx::Type;

// ---- any form ----

Conversion conversion_of(const Instruction& instruction) {
  return std::bit_cast<Conversion>(instruction.detail);
}

template <class To, class From>
void convert_each(Warp& warp, const Instruction& instruction, Mask mask) {
  const Conversion conversion = conversion_of(instruction);
  const From* from = lanes::operand<const From>(warp, instruction, 1);
  lanes::produce_each(lanes::operand<To>(warp, instruction, 0), mask,
                      [&](int lane) { return static_cast<To>(convert(conversion, from[lane])); });
}

// ---- integers ----

/// How rows of `Wide` cut to the bits of a type and extend again.
template <class Wide>
struct Extension {
  Wide kept;
  Wide sign;

  explicit Extension(Type type)
      : kept(static_cast<Wide>(~std::uint64_t{0} >> (64 - ptx::bits(type)))),
        sign(ptx::is_signed(type) ? static_cast<Wide>(std::uint64_t{1} << (ptx::bits(type) - 1)) : Wide{0}) {}

  [[nodiscard]] Wide of(Wide value) const {
    return static_cast<Wide>(static_cast<Wide>((value & kept) ^ sign) - sign);
  }
};

template <class To, class From>
void convert_integer(Warp& warp, const Instruction& instruction, Mask mask) {
  using Wide = std::conditional_t<(sizeof(To) > sizeof(From)), To, From>;
  const Conversion conversion = conversion_of(instruction);
  const Extension<Wide> source(conversion.from);
  const Extension<Wide> target(conversion.to);
  const From* from = lanes::operand<const From>(warp, instruction, 1);
  lanes::produce(lanes::operand<To>(warp, instruction, 0), mask, [=](int lane) {
    return static_cast<To>(target.of(source.of(static_cast<Wide>(from[lane]))));
  });
}

/// Between 32 and 64 bits.
template <class To, class From>
To cast(From value) {
  return static_cast<To>(value);
}

// ---- decoding of cvt ----

void finish(Decoder& decoder, std::uint64_t detail, Handler run, int to_bits, Type source,
            std::size_t sources) {
  decoder.expect_operands(1 + sources, 1 + sources);
  decoder.write(decoder.operand(0), to_bits);
  for (std::size_t i = 1; i <= sources; ++i) decoder.read(decoder.operand(i), source);
  decoder.finish(Kind::conversion, run, detail);
}

/// What a modifier that rounds says; nothing for any other.
bool take_rounding(Decoder& decoder, Conversion& conversion, bool& given, bool& away) {
  const std::string_view name =
      decoder.take_one({"rni", "rzi", "rmi", "rpi", "rna", "rn", "rz", "rm", "rp", ""});
  given = !name.empty();
  away = name == "rna";
  conversion.to_integral = name.size() == 3 && !away;
  if (name.starts_with("rz")) conversion.rounding = Rounding::to_zero;
  if (name.starts_with("rm")) conversion.rounding = Rounding::down;
  if (name.starts_with("rp")) conversion.rounding = Rounding::up;
  return given;
}

bool is_narrow_pair(Type type) { return type == Type::e4m3x2 || type == Type::e5m2x2; }

/// Between f16x2, or two f32, and a pair of 8 bits.
using ptx::Type;

/// .relu: negative numbers and -0 become +0; NaN stays.
template <bool Relu>
float clipped(float value) {
  return Relu && (number::bits_of(value) & number::kSign32) != 0 && value == value ? 0.0f : value;
}

template <class Format, bool Relu>
std::uint16_t pair_of(float upper, float lower) {
  return static_cast<std::uint16_t>(number::narrow(Format{}, clipped<Relu>(upper)) << 8 |
                                    number::narrow(Format{}, clipped<Relu>(lower)));
}

template <class Format, bool Relu>
std::uint16_t from_f32(float upper, float lower) {
  return pair_of<Format, Relu>(upper, lower);
}

template <class Format, bool Relu>
std::uint16_t from_f16x2(std::uint32_t pair) {
  return pair_of<Format, Relu>(number::widen(number::F16{}, static_cast<std::uint16_t>(pair >> 16)),
                               number::widen(number::F16{}, static_cast<std::uint16_t>(pair)));
}

template <class Format, bool Relu>
std::uint32_t to_f16(std::uint32_t bits) {
  const float value = clipped<Relu>(number::widen(Format{}, static_cast<std::uint8_t>(bits)));
  return number::narrow<number::Rounding::nearest_even>(number::F16{}, value);  // exact
}

template <class Format, bool Relu>
std::uint32_t to_f16x2(std::uint16_t pair) {
  return to_f16<Format, Relu>(pair >> 8u) << 16 | to_f16<Format, Relu>(pair);
}

template <class Format, bool Relu>
Handler of_format(Type from, Type to) {
  if (to == Type::f16x2) return lanes::map<to_f16x2<Format, Relu>>;
  return from == Type::f32 ? lanes::map<from_f32<Format, Relu>> : lanes::map<from_f16x2<Format, Relu>>;
}

template <class Format>
Handler of_relu(const Conversion& conversion) {
  return conversion.relu ? of_format<Format, true>(conversion.from, conversion.to)
                         : of_format<Format, false>(conversion.from, conversion.to);
}

/// Two f32, or an f16x2, to a pair of 8 bits (Conversion::to, e4m3x2 or e5m2x2), which saturates; or such a
/// pair to f16x2. Instruction::detail is not used.
Handler narrow_pair_handler(const Conversion& conversion) {
  const bool e4m3 = conversion.to == Type::e4m3x2 || conversion.from == Type::e4m3x2;
  return e4m3 ? of_relu<number::E4m3>(conversion) : of_relu<number::E5m2>(conversion);
}

void decode_narrow_pair(Decoder& decoder, const Conversion& conversion) {
  decoder.need(89);
  const bool narrows = is_narrow_pair(conversion.to);
  if (conversion.from != Type::f16x2 && conversion.from != Type::f32 && narrows)
    decoder.refuse("is implemented from .f32 and .f16x2 only");
  if (conversion.to_integral || conversion.sat || conversion.ftz || conversion.satfinite != narrows ||
      conversion.rounding != Rounding::nearest_even)
    decoder.refuse(narrows ? "rounds with .rn and has .satfinite"
                           : "has .rn and no other modifier but .relu");
  const bool two = conversion.from == Type::f32;
  const Type source = two ? Type::f32 : narrows ? Type::b32 : Type::b16;
  finish(decoder, 0, narrow_pair_handler(conversion), narrows ? 16 : 32, source, two ? 2 : 1);
}

/// `.f16x2.f32`, `.bf16x2.f32`: two sources.
void decode_pair(Decoder& decoder, Conversion conversion) {
  conversion.from = decoder.take_type();
  if (conversion.to == Type::f16x2 && is_narrow_pair(conversion.from)) {
    decode_narrow_pair(decoder, conversion);
    return;
  }
  if (conversion.from != Type::f32) decoder.refuse("is implemented from .f32 only");
  decoder.need(80);
  const bool to_zero = conversion.rounding == Rounding::to_zero;
  if (conversion.to_integral || conversion.sat || conversion.ftz ||
      (!to_zero && conversion.rounding != Rounding::nearest_even))
    decoder.refuse("rounds with .rn or .rz, and has neither .sat nor .ftz");
  finish(decoder, limits_of(conversion), pair_handler(conversion), 32, Type::f32, 2);
}

void decode_tf32(Decoder& decoder, const Conversion& conversion, bool away) {
  if (decoder.take_type() != Type::f32) decoder.refuse("is implemented from .f32 only");
  decoder.need(away ? 80 : 90);
  const bool to_zero = conversion.rounding == Rounding::to_zero;
  const bool nearest = conversion.rounding == Rounding::nearest_even;
  if (conversion.to_integral || conversion.sat || conversion.ftz || (!away && !nearest && !to_zero))
    decoder.refuse("rounds with .rna, .rn or .rz, and has neither .sat nor .ftz");
  if (away ? conversion.relu : conversion.satfinite)
    decoder.refuse("has a modifier that is not implemented here");
  const Rounding rounding = away ? Rounding::nearest_away : conversion.rounding;
  finish(decoder, limits_of(conversion), tf32_handler(rounding), 32, Type::f32, 1);
}

bool is_integer(Type type) { return !ptx::is_float(type) && type >= Type::u8 && type <= Type::s64; }
bool is_single_float(Type type) {
  return type == Type::f16 || type == Type::bf16 || type == Type::f32 || type == Type::f64;
}

/// Whether every number of `from` is one of `to`.
bool widens(Type from, Type to) {
  if (from == to || to == Type::f64) return true;
  return to == Type::f32 && from != Type::f64;
}

/// What 9.7.9.21 asks of a form: refuses others.
void check(Decoder& decoder, const Conversion& conversion, bool rounding_given) {
  const bool from_float = ptx::is_float(conversion.from);
  const bool to_float = ptx::is_float(conversion.to);
  if (!to_float && from_float && !conversion.to_integral) decoder.refuse("needs .rni, .rzi, .rmi or .rpi");
  if (to_float && conversion.to_integral && conversion.from != conversion.to)
    decoder.refuse("rounds to an integer in another format");
  if (!to_float && !from_float && rounding_given) decoder.refuse("has nothing to round");
  if (to_float && !conversion.to_integral) {
    const bool exact = from_float && widens(conversion.from, conversion.to);
    if (exact == rounding_given) decoder.refuse(exact ? "has nothing to round" : "needs a rounding modifier");
  }
  if (conversion.ftz && conversion.from != Type::f32 && conversion.to != Type::f32)
    decoder.refuse(".ftz is for .f32 only");
  const bool from_f32_to_16 =
      conversion.from == Type::f32 && (conversion.to == Type::f16 || conversion.to == Type::bf16);
  if ((conversion.relu || conversion.satfinite) && !from_f32_to_16)
    decoder.refuse(".relu and .satfinite are implemented from .f32 to 16 bits only");
  if (conversion.sat && conversion.to == Type::bf16) decoder.refuse(".sat is not for .bf16");
  if (conversion.relu && conversion.sat) decoder.refuse("has .relu and .sat");
}

void check_architecture(Decoder& decoder, const Conversion& conversion) {
  const bool from_bf16 = conversion.from == Type::bf16;
  const bool to_bf16 = conversion.to == Type::bf16;
  if (!from_bf16 && !to_bf16) {
    if (conversion.relu) decoder.need(80);
    return;
  }
  const bool with_f32 = conversion.from == Type::f32 || (conversion.to == Type::f32 && !conversion.ftz);
  decoder.need(with_f32 ? 80 : 90);
}

/// The narrowest row that holds a type: what an immediate gets.
int row_bits(Type type) { return std::max(16, ptx::bits(type)); }

/// The handlers of `Pick` for rows of these bits, of the result and of the source.
template <class Pick>
Handler for_rows(int to_bits, int from_bits, Pick pick) {
  const auto with_source = [&]<class To>(To to) -> Handler {
    if (from_bits == 16) return pick(to, std::uint16_t{});
    if (from_bits == 32) return pick(to, std::uint32_t{});
    return pick(to, std::uint64_t{});
  };
  if (to_bits == 16) return with_source(std::uint16_t{});
  if (to_bits == 32) return with_source(std::uint32_t{});
  return with_source(std::uint64_t{});
}

Handler fast_integer_handler(const Conversion& conversion, int to_bits, int from_bits) {
  if (conversion.from == Type::s32 && conversion.to == Type::s64 && from_bits == 32)
    return lanes::map<cast<std::int64_t, std::int32_t>>;
  if (conversion.from == Type::u32 && to_bits == 64 && from_bits == 32 && ptx::bits(conversion.to) == 64)
    return lanes::map<cast<std::uint64_t, std::uint32_t>>;
  if (conversion.from == Type::u64 && conversion.to == Type::u32 && to_bits == 32)
    return lanes::map<cast<std::uint32_t, std::uint64_t>>;
  return for_rows(to_bits, from_bits,
                  []<class To, class From>(To, From) -> Handler { return convert_integer<To, From>; });
}

/// A register of at least the bits of its type.
int bits_of_row(Decoder& decoder, const ptx::Operand& operand, Type type) {
  const int bits = decoder.register_bits(operand);
  if (bits == 0) return row_bits(type);
  if (bits < ptx::bits(type)) decoder.refuse("a register is narrower than the type");
  if (bits > 64) decoder.refuse("registers of this width are not implemented");
  if (type == Type::bf16 && bits != 16) decoder.refuse("a register is wider than .bf16");
  return bits;
}

void decode_single(Decoder& decoder, Conversion conversion, bool rounding_given) {
  conversion.from = decoder.take_type();
  for (const Type type : {conversion.from, conversion.to})
    if (!is_integer(type) && !is_single_float(type)) decoder.refuse_type(type);
  check(decoder, conversion, rounding_given);
  check_architecture(decoder, conversion);
  decoder.expect_operands(2, 2);
  const int to_bits = bits_of_row(decoder, decoder.operand(0), conversion.to);
  const int from_bits = bits_of_row(decoder, decoder.operand(1), conversion.from);
  const bool immediate = decoder.register_bits(decoder.operand(1)) == 0;
  const Type source =
      immediate && ptx::bits(conversion.from) == from_bits ? conversion.from : ptx::untyped(from_bits);
  const bool floats = ptx::is_float(conversion.from) || ptx::is_float(conversion.to);
  const bool exact_rows = to_bits == row_bits(conversion.to) && from_bits == row_bits(conversion.from);
  if (const Handler run = floats && exact_rows ? fast_float_handler(conversion) : nullptr) {
    finish(decoder, limits_of(conversion), run, to_bits, source, 1);
    return;
  }
  const Handler run = !floats && !conversion.sat
                          ? fast_integer_handler(conversion, to_bits, from_bits)
                          : for_rows(to_bits, from_bits, []<class To, class From>(To, From) -> Handler {
                              return convert_each<To, From>;
                            });
  finish(decoder, std::bit_cast<std::uint64_t>(conversion), run, to_bits, source, 1);
}

void decode_cvt(Decoder& decoder) {
  Conversion conversion;
  bool rounding_given = false;
  bool away = false;
  take_rounding(decoder, conversion, rounding_given, away);
  for (bool more = true; more;) {
    more = false;
    for (const auto& [name, flag] :
         {std::pair{"ftz", &conversion.ftz}, std::pair{"sat", &conversion.sat},
          std::pair{"relu", &conversion.relu}, std::pair{"satfinite", &conversion.satfinite}})
      if (!*flag && decoder.take(name)) more = *flag = true;
  }
  conversion.to = decoder.take_type();
  if (conversion.to == Type::tf32) {
    if (!rounding_given) decoder.refuse("needs a rounding modifier");
    decode_tf32(decoder, conversion, away);
    return;
  }
  if (away) decoder.refuse(".rna is for .tf32 only");
  const bool narrows = is_narrow_pair(conversion.to);
  if (narrows || conversion.to == Type::f16x2 || conversion.to == Type::bf16x2) {
    if (!rounding_given) decoder.refuse("needs a rounding modifier");
    if (narrows) conversion.from = decoder.take_type();
    narrows ? decode_narrow_pair(decoder, conversion) : decode_pair(decoder, conversion);
    return;
  }
  decode_single(decoder, conversion, rounding_given);
}

}  // namespace

std::vector<Opcode> conversion_opcodes() { return {{"cvt", Domain::any, decode_cvt}}; }

}  // namespace sparsekiln::emulator

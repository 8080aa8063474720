#pragma once

#include <cstdint>

#include "emulator/program/decoder.h"

/// From a type of the PTX to one of the host: `pick` is called with a value of the host's type and gives the
/// handler made for it.
namespace sparsekiln::emulator {

template <class Pick>
[[nodiscard]] Handler for_word(Decoder& decoder, ptx::Type type, Pick pick) {
  switch (type) {
    case ptx::Type::u32:
      return pick(std::uint32_t{});
    case ptx::Type::s32:
      return pick(std::int32_t{});
    case ptx::Type::u64:
      return pick(std::uint64_t{});
    case ptx::Type::s64:
      return pick(std::int64_t{});
    default:
      decoder.refuse_type(type);
  }
}

/// u16, u32, u64, s16, s32, s64; others are refused.
template <class Pick>
[[nodiscard]] Handler for_integer(Decoder& decoder, ptx::Type type, Pick pick) {
  if (type == ptx::Type::u16) return pick(std::uint16_t{});
  if (type == ptx::Type::s16) return pick(std::int16_t{});
  return for_word(decoder, type, pick);
}

/// s16, s32, s64; others are refused.
template <class Pick>
[[nodiscard]] Handler for_signed(Decoder& decoder, ptx::Type type, Pick pick) {
  switch (type) {
    case ptx::Type::s16:
      return pick(std::int16_t{});
    case ptx::Type::s32:
      return pick(std::int32_t{});
    case ptx::Type::s64:
      return pick(std::int64_t{});
    default:
      decoder.refuse_type(type);
  }
}

/// By width alone, as unsigned numbers: 16, 32 and 64 bits; others are refused.
template <class Pick>
[[nodiscard]] Handler for_width(Decoder& decoder, ptx::Type type, Pick pick) {
  switch (ptx::bits(type)) {
    case 16:
      return pick(std::uint16_t{});
    case 32:
      return pick(std::uint32_t{});
    case 64:
      return pick(std::uint64_t{});
    default:
      decoder.refuse_type(type);
  }
}

/// Ends the decoding of an instruction on integers, bits or predicates: `run` computes the first operand from
/// the others.
inline void finish_integer(Decoder& decoder, Handler run, ptx::Type result,
                           std::initializer_list<ptx::Type> sources) {
  decoder.take_operands(ptx::bits(result), sources);
  decoder.finish(result == ptx::Type::pred ? Kind::predicate : Kind::integer, run);
}

}  // namespace sparsekiln::emulator

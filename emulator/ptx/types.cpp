#include <array>

#include "emulator/ptx/module.h"

namespace sparsekiln::ptx {
namespace {

enum class Family : std::uint8_t { bits, integer_unsigned, integer_signed, real };

struct Row {
  Type type;
  std::string_view name;
  int bits;
  Family family;
};

/// In the order of the enumeration.
constexpr std::array kTypes{
    Row{Type::pred, "pred", 1, Family::bits},
    Row{Type::b8, "b8", 8, Family::bits},
    Row{Type::b16, "b16", 16, Family::bits},
    Row{Type::b32, "b32", 32, Family::bits},
    Row{Type::b64, "b64", 64, Family::bits},
    Row{Type::b128, "b128", 128, Family::bits},
    Row{Type::u8, "u8", 8, Family::integer_unsigned},
    Row{Type::u16, "u16", 16, Family::integer_unsigned},
    Row{Type::u32, "u32", 32, Family::integer_unsigned},
    Row{Type::u64, "u64", 64, Family::integer_unsigned},
    Row{Type::s8, "s8", 8, Family::integer_signed},
    Row{Type::s16, "s16", 16, Family::integer_signed},
    Row{Type::s32, "s32", 32, Family::integer_signed},
    Row{Type::s64, "s64", 64, Family::integer_signed},
    Row{Type::f16, "f16", 16, Family::real},
    Row{Type::f16x2, "f16x2", 32, Family::real},
    Row{Type::bf16, "bf16", 16, Family::real},
    Row{Type::bf16x2, "bf16x2", 32, Family::real},
    Row{Type::tf32, "tf32", 32, Family::real},
    Row{Type::f32, "f32", 32, Family::real},
    Row{Type::f64, "f64", 64, Family::real},
    Row{Type::e4m3, "e4m3", 8, Family::real},
    Row{Type::e5m2, "e5m2", 8, Family::real},
    Row{Type::e4m3x2, "e4m3x2", 16, Family::real},
    Row{Type::e5m2x2, "e5m2x2", 16, Family::real},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kTypes.size(); ++i)
    if (kTypes[i].type != static_cast<Type>(i)) return false;
  return kTypes.back().type == Type::e5m2x2;
}
static_assert(in_order());

const Row& row(Type type) { return kTypes[static_cast<std::size_t>(type)]; }

}  // namespace

std::optional<Type> parse_type(std::string_view name) {
  for (const Row& row : kTypes)
    if (row.name == name) return row.type;
  return std::nullopt;
}

std::string_view name(Type type) { return row(type).name; }
int bits(Type type) { return row(type).bits; }
bool is_signed(Type type) { return row(type).family == Family::integer_signed; }
bool is_float(Type type) { return row(type).family == Family::real; }

Type untyped(int bits) {
  if (bits == 8) return Type::b8;
  if (bits == 16) return Type::b16;
  return bits == 32 ? Type::b32 : Type::b64;
}

}  // namespace sparsekiln::ptx

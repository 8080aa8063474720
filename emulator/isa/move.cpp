#include <cstdint>

#include "emulator/isa/lanes.h"
#include "emulator/isa/types.h"
#include "emulator/program/decoder.h"

/// mov (PTX ISA 9.7.9.3, 9.7.9.4): copies, constants, special registers, addresses; packs and unpacks
/// vectors.
namespace sparsekiln::emulator {
namespace {

using ptx::Type;

template <class T>
T same(T value) {
  return value;
}

void copy_predicate(Warp& warp, const Instruction& instruction, Mask mask) {
  lanes::write_predicate(warp, instruction.operands[0], warp.predicate(instruction.operands[1]), mask);
}

/// Operand 0 = the `Count` operands after it, the first lowest, `Bits` of each. Rows of 8-bit registers have
/// elements of 16.
template <class Whole, class Part, int Bits, int Count>
void pack(Warp& warp, const Instruction& instruction, Mask mask) {
  const Part* parts[Count];
  for (int i = 0; i < Count; ++i) parts[i] = lanes::operand<const Part>(warp, instruction, 1 + i);
  lanes::produce(lanes::operand<Whole>(warp, instruction, 0), mask, [=](int lane) {
    constexpr Whole kOnes = static_cast<Whole>((Whole{1} << Bits) - 1);
    Whole whole = 0;
    for (int i = 0; i < Count; ++i)
      whole = static_cast<Whole>(whole | static_cast<Whole>(parts[i][lane] & kOnes) << (Bits * i));
    return whole;
  });
}

template <class Whole, class Part, int Bits, int Count>
void unpack(Warp& warp, const Instruction& instruction, Mask mask) {
  const Whole* whole = lanes::operand<const Whole>(warp, instruction, Count);
  for (int i = 0; i < Count; ++i)
    lanes::produce(lanes::operand<Part>(warp, instruction, i), mask, [=](int lane) {
      constexpr Whole kOnes = static_cast<Whole>((Whole{1} << Bits) - 1);
      return static_cast<Part>(whole[lane] >> (Bits * i) & kOnes);
    });
}

struct Packing {
  int whole;
  int parts;
  Handler pack;
  Handler unpack;
};

template <class Whole, class Part, int Bits, int Count>
constexpr Packing packing() {
  return {Bits * Count, Count, pack<Whole, Part, Bits, Count>, unpack<Whole, Part, Bits, Count>};
}

constexpr Packing kPackings[] = {
    packing<std::uint16_t, std::uint16_t, 8, 2>(),  packing<std::uint32_t, std::uint16_t, 8, 4>(),
    packing<std::uint32_t, std::uint16_t, 16, 2>(), packing<std::uint64_t, std::uint16_t, 16, 4>(),
    packing<std::uint64_t, std::uint32_t, 32, 2>(),
};

void mov_vector(Decoder& decoder, Type type, bool packs) {
  if (type != Type::b16 && type != Type::b32 && type != Type::b64)
    decoder.refuse("with a vector is for .b16, .b32 and .b64 only");
  const ptx::Operand& vector = decoder.operand(packs ? 1 : 0);
  const int whole = ptx::bits(type);
  for (const Packing& packing : kPackings) {
    if (packing.whole != whole || packing.parts != static_cast<int>(vector.elements.size())) continue;
    const int bits = whole / packing.parts;
    if (packs) {
      decoder.write(decoder.operand(0), whole);
      for (const ptx::Operand& element : vector.elements) decoder.read(element, ptx::untyped(bits));
    } else {
      for (const ptx::Operand& element : vector.elements) decoder.write(element, bits);
      decoder.read(decoder.operand(1), type);
    }
    decoder.instruction().run = packs ? packing.pack : packing.unpack;
    return;
  }
  decoder.refuse("of a vector of " + std::to_string(vector.elements.size()) + " is not implemented");
}

void mov(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.expect_operands(2, 2);
  decoder.instruction().kind = Kind::move;
  const bool unpacks = decoder.operand(0).kind == ptx::Operand::Kind::vector;
  if (unpacks || decoder.operand(1).kind == ptx::Operand::Kind::vector) {
    mov_vector(decoder, type, !unpacks);
    return;
  }
  decoder.write(decoder.operand(0), ptx::bits(type));
  decoder.read(decoder.operand(1), type);
  if (ptx::bits(type) == 32 && decoder.operand(1).kind == ptx::Operand::Kind::reg)
    decoder.instruction().traits |= kCopiesRegister;
  decoder.instruction().run =
      type == Type::pred
          ? copy_predicate
          : for_width(decoder, type, []<class T>(T) -> Handler { return lanes::map<same<T>>; });
}

}  // namespace

std::vector<Opcode> move_opcodes() { return {{"mov", Domain::any, mov}}; }

}  // namespace sparsekiln::emulator

#include <cstdint>
#include <string_view>

#include "emulator/isa/lanes.h"
#include "emulator/machine/cluster.h"
#include "emulator/machine/memory.h"
#include "emulator/program/decoder.h"

/// cvta and isspacep (PTX ISA 9.7.9.19, 9.7.9.20). The windows of shared and local memory in generic
/// addresses are this emulator's (machine/memory.h).
namespace sparsekiln::emulator {
namespace {

using ptx::Type;

template <std::uint64_t Window>
std::uint64_t to_generic(std::uint64_t address) {
  return address + Window;
}
template <std::uint64_t Window>
std::uint64_t from_generic(std::uint64_t address) {
  return address - Window;
}

template <std::uint64_t Window>
bool in_window(std::uint64_t address) {
  return address - Window < kWindowBytes;
}
/// shared::cta is the window of the block alone, inside that of its cluster.
bool in_own_shared(std::uint64_t address) { return address - kSharedWindow < 1u << kClusterShift; }
bool in_constant(std::uint64_t address) { return address - kConstantBase < kConstantBytes; }
/// The window of parameters is contained in that of global memory (9.7.9.19).
bool in_global(std::uint64_t address) {
  return !in_window<kSharedWindow>(address) && !in_window<kLocalWindow>(address) && !in_constant(address);
}

std::string_view take_window(Decoder& decoder) {
  return decoder.take_one(
      {"global", "shared::cta", "shared::cluster", "shared", "local", "param::entry", "param", "const"});
}

void decode_cvta(Decoder& decoder) {
  const bool back = decoder.take("to");
  const std::string_view space = take_window(decoder);
  if (decoder.take_type() != Type::u64) decoder.refuse("is implemented for .u64 only");
  decoder.take_operands(64, {Type::u64});
  Instruction& instruction = decoder.instruction();
  instruction.kind = Kind::conversion;
  if (space == "global" || space == "const")
    instruction.run = lanes::map<to_generic<0>>;
  else if (space == "param" || space == "param::entry")
    instruction.run = back ? lanes::map<from_generic<kParamWindow>> : lanes::map<to_generic<kParamWindow>>;
  else if (space == "local")
    instruction.run = back ? lanes::map<from_generic<kLocalWindow>> : lanes::map<to_generic<kLocalWindow>>;
  else
    instruction.run = back ? lanes::map<from_generic<kSharedWindow>> : lanes::map<to_generic<kSharedWindow>>;
}

template <bool (*In)(std::uint64_t)>
void write_whether(Warp& warp, const Instruction& instruction, Mask mask) {
  lanes::write_predicate(warp, instruction.operands[0], lanes::test<In>(warp, instruction, 1), mask);
}

void decode_isspacep(Decoder& decoder) {
  const std::string_view space = take_window(decoder);
  decoder.take_operands(1, {Type::u64});
  decoder.instruction().kind = Kind::predicate;
  if (space == "global")
    decoder.instruction().run = write_whether<in_global>;
  else if (space == "local")
    decoder.instruction().run = write_whether<in_window<kLocalWindow>>;
  else if (space == "param" || space == "param::entry")
    decoder.instruction().run = write_whether<in_window<kParamWindow>>;
  else if (space == "const")
    decoder.instruction().run = write_whether<in_constant>;
  else if (space == "shared::cluster")
    decoder.instruction().run = write_whether<in_window<kSharedWindow>>;
  else
    decoder.instruction().run = write_whether<in_own_shared>;
}

}  // namespace

std::vector<Opcode> address_opcodes() {
  return {{"cvta", Domain::any, decode_cvta}, {"isspacep", Domain::any, decode_isspacep}};
}

}  // namespace sparsekiln::emulator

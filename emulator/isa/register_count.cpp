#include <cstdint>

#include "emulator/isa/fragment.h"
#include "emulator/program/decoder.h"

/// setmaxnreg (PTX ISA 9.7.19.5).
namespace sparsekiln::emulator {
namespace {

template <bool Increases>
void set(Warp& warp, const Instruction& instruction, Mask mask) {
  need_all_lanes(warp, instruction, mask);
  set_registers(warp, instruction, static_cast<std::uint32_t>(instruction.immediate), Increases);
}

void decode_setmaxnreg(Decoder& decoder) {
  decoder.need_sm_90a();
  const bool increases = decoder.take_one({"inc", "dec"}) == "inc";
  decoder.take_all({"sync", "aligned", "u32"});
  decoder.expect_operands(1, 1);
  Instruction& instruction = decoder.instruction();
  instruction.immediate = decoder.constant(decoder.operand(0));
  if (instruction.immediate < 24 || instruction.immediate > 256 || instruction.immediate % 8 != 0)
    decoder.refuse("takes 24 to 256 registers, a multiple of 8");
  decoder.finish(Kind::barrier, increases ? set<true> : set<false>);
}

}  // namespace

std::vector<Opcode> register_count_opcodes() { return {{"setmaxnreg", Domain::any, decode_setmaxnreg}}; }

}  // namespace sparsekiln::emulator

#include <cstdint>

#include "emulator/isa/lanes.h"
#include "emulator/program/decoder.h"

/// cp.async, its groups and waits (PTX ISA 9.7.9.25.3).
namespace sparsekiln::emulator {
namespace {

/// Where the number of bytes to read comes from.
enum class Source : std::uint8_t { all, size_row, ignored_where };

/// Operands: shared address, global address, and a row that says how much is read. The offset of the shared
/// address is Instruction::immediate, that of the global one Instruction::detail.
template <std::uint32_t Bytes, Source source>
void copy(Warp& warp, const Instruction& instruction, Mask mask) {
  alignas(64) std::uint64_t to[kLanes];
  alignas(64) std::uint64_t from[kLanes];
  std::uint32_t read[kLanes];
  lane_addresses(warp, instruction.operands[0], instruction.immediate, to);
  lane_addresses(warp, instruction.operands[1], static_cast<std::int64_t>(instruction.detail), from);
  if constexpr (source == Source::all) {
    std::fill_n(read, kLanes, Bytes);
  } else if constexpr (source == Source::ignored_where) {
    const Mask ignored = warp.predicate(instruction.operands[2]);
    for (int lane = 0; lane < kLanes; ++lane) read[lane] = (ignored >> lane & 1) != 0 ? 0 : Bytes;
  } else {
    const auto* const sizes = lanes::operand<const std::uint32_t>(warp, instruction, 2);
    each_bit(mask, [&](int lane) {
      read[lane] = sizes[lane];
      if (sizes[lane] > Bytes)
        fault(FaultKind::invalid_operation, warp, instruction, lane,
              "reads " + std::to_string(sizes[lane]) + " bytes in a copy of " + std::to_string(Bytes));
    });
  }
  copy_async(warp, instruction, mask, static_cast<int>(Bytes), to, from, read);
}

void commit(Warp& warp, const Instruction&, Mask mask) { commit_copies(warp, mask); }
void wait_group(Warp& warp, const Instruction& instruction, Mask mask) {
  wait_copies(warp, mask, static_cast<std::uint32_t>(instruction.immediate));
}
void wait_all(Warp& warp, const Instruction&, Mask mask) { wait_all_copies(warp, mask); }

template <Source source>
Handler copy_of(Decoder& decoder, std::int64_t bytes) {
  switch (bytes) {
    case 4:
      return copy<4, source>;
    case 8:
      return copy<8, source>;
    case 16:
      return copy<16, source>;
    default:
      decoder.refuse("copies 4, 8 or 16 bytes");
  }
}

void decode_copy(Decoder& decoder, bool all_levels) {
  if (!decoder.take("shared") && !decoder.take("shared::cta")) decoder.refuse("does not copy to .shared");
  (void)decoder.take_one({"global"});
  const std::size_t policies = decoder.take("L2::cache_hint") ? 1 : 0;
  (void)decoder.take_one({"L2::64B", "L2::128B", "L2::256B", ""});
  decoder.expect_operands(3 + policies, 4 + policies);
  const std::size_t operands = decoder.operands() - policies;
  if (policies != 0) decoder.ignore(decoder.operand(operands));
  const std::int64_t bytes = decoder.constant(decoder.operand(2));
  if (!all_levels && bytes != 16) decoder.refuse(".cg copies 16 bytes");

  Instruction& instruction = decoder.instruction();
  decoder.read_address(decoder.operand(0));
  const std::int64_t to = instruction.immediate;
  decoder.read_address(decoder.operand(1));
  instruction.detail = static_cast<std::uint64_t>(instruction.immediate);
  instruction.immediate = to;
  instruction.kind = Kind::copy;
  decoder.accesses(static_cast<int>(bytes));
  if (operands == 3) {
    instruction.run = copy_of<Source::all>(decoder, bytes);
  } else if (decoder.register_bits(decoder.operand(3)) == 1) {
    decoder.read(decoder.operand(3), ptx::Type::pred);
    instruction.run = copy_of<Source::ignored_where>(decoder, bytes);
  } else {
    decoder.read(decoder.operand(3), ptx::Type::u32);
    instruction.run = copy_of<Source::size_row>(decoder, bytes);
  }
}

void decode_cp(Decoder& decoder) {
  decoder.need(80);
  const bool reduces = decoder.take("reduce");
  (void)decoder.take_one({"async"});
  if (reduces || decoder.take("bulk")) {
    if (reduces) (void)decoder.take_one({"bulk"});
    return decode_bulk(decoder, reduces);
  }
  if (decoder.take("mbarrier")) return decode_copies_arrival(decoder);
  if (decoder.take("commit_group")) {
    decoder.expect_operands(0, 0);
    decoder.finish(Kind::copy, commit);
  } else if (decoder.take("wait_all")) {
    decoder.expect_operands(0, 0);
    decoder.finish(Kind::copy, wait_all);
  } else if (decoder.take("wait_group")) {
    decoder.instruction().immediate = decoder.take_pending_groups();
    decoder.finish(Kind::copy, wait_group);
  } else {
    decode_copy(decoder, decoder.take_one({"ca", "cg"}) == "ca");
  }
}

}  // namespace

std::vector<Opcode> async_copy_opcodes() { return {{"cp", Domain::any, decode_cp}}; }

}  // namespace sparsekiln::emulator

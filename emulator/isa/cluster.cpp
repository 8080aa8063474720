#include "emulator/machine/cluster.h"

#include <cstdint>

#include "emulator/isa/lanes.h"
#include "emulator/machine/async_proxy.h"
#include "emulator/machine/memory.h"
#include "emulator/program/decoder.h"

/// mapa and getctarank (PTX ISA 9.7.9.23, 9.7.9.24): addresses of shared memory of the blocks of a cluster.
namespace sparsekiln::emulator {
namespace {

/// The shared::cluster address in the block of a rank that corresponds to an address.
template <class Address, std::uint64_t Window>
void map_to_rank(Warp& warp, const Instruction& instruction, Mask mask) {
  const auto* const from = lanes::operand<const Address>(warp, instruction, 1);
  const auto* const ranks = lanes::operand<const std::uint32_t>(warp, instruction, 2);
  lanes::produce_each(lanes::operand<Address>(warp, instruction, 0), mask, [&](int lane) {
    if (block_of_rank(warp, ranks[lane]) == nullptr)
      fault(FaultKind::invalid_operation, warp, instruction, lane,
            "rank " + std::to_string(ranks[lane]) + " of a cluster that has fewer blocks");
    const auto within = static_cast<std::uint32_t>(from[lane] - Window) & ((1u << kClusterShift) - 1);
    return static_cast<Address>(((ranks[lane] + 1) << kClusterShift | within) + Window);
  });
}

template <class Address, std::uint64_t Window>
void find_rank(Warp& warp, const Instruction& instruction, Mask mask) {
  const auto* const from = lanes::operand<const Address>(warp, instruction, 1);
  lanes::produce_each(lanes::operand<std::uint32_t>(warp, instruction, 0), mask, [&](int lane) {
    const std::uint32_t window = static_cast<std::uint32_t>(from[lane] - Window) >> kClusterShift;
    return window == 0 ? rank_of(warp) : window - 1;
  });
}

void decode_map(Decoder& decoder) {
  decoder.need(90);
  const bool in_shared = decoder.take("shared::cluster");
  const bool wide = decoder.take_one({"u32", "u64"}) == "u64";
  const ptx::Type type = wide ? ptx::Type::u64 : ptx::Type::u32;
  if (!in_shared && !wide) decoder.refuse("gives a generic address of 32 bits");
  decoder.take_operands(ptx::bits(type), {type, ptx::Type::u32});
  decoder.finish(Kind::conversion, !in_shared ? map_to_rank<std::uint64_t, kSharedWindow>
                                   : wide     ? map_to_rank<std::uint64_t, 0>
                                              : map_to_rank<std::uint32_t, 0>);
}

void decode_rank(Decoder& decoder) {
  decoder.need(90);
  const bool in_shared = decoder.take("shared::cluster");
  const bool wide = decoder.take_one({"u32", "u64"}) == "u64";
  if (!in_shared && !wide) decoder.refuse("takes a generic address of 32 bits");
  decoder.take_operands(32, {wide ? ptx::Type::u64 : ptx::Type::u32});
  decoder.finish(Kind::conversion, !in_shared ? find_rank<std::uint64_t, kSharedWindow>
                                   : wide     ? find_rank<std::uint64_t, 0>
                                              : find_rank<std::uint32_t, 0>);
}

}  // namespace

std::vector<Opcode> cluster_opcodes() {
  return {{"mapa", Domain::any, decode_map}, {"getctarank", Domain::any, decode_rank}};
}

}  // namespace sparsekiln::emulator

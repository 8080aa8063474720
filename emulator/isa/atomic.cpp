#include <bit>
#include <cstdint>
#include <cstring>

#include "emulator/isa/combination.h"
#include "emulator/isa/lanes.h"
#include "emulator/isa/memory_form.h"
#include "emulator/machine/memory.h"

/// atom and red (PTX ISA 9.7.13.5 to 9.7.13.7). Lanes that meet at one address do so one after another, in an
/// order that the seed decides.
namespace sparsekiln::emulator {
namespace {

using namespace combination;

/// What a handler needs to know, packed into Instruction::detail.
struct Form {
  AccessSpace space = AccessSpace::generic;
  Semantics semantics = Semantics::relaxed;
  Scope scope = Scope::device;
  bool returns = true;  ///< operand 0 is the old value: atom, not red
  std::uint8_t unused[4] = {};
};
static_assert(sizeof(Form) == sizeof(std::uint64_t));

/// Where an address lies decides how some atomics round.
bool in_global_memory(AccessSpace space, std::uint64_t address) {
  const auto within = [&](std::uint64_t window) {
    return address >= window && address - window < kWindowBytes;
  };
  return space == AccessSpace::global ||
         (space == AccessSpace::generic && !within(kSharedWindow) && !within(kLocalWindow));
}

/// Each half is atomic for itself.
template <class Format>
std::uint32_t add_halves(std::uint32_t a, std::uint32_t b) {
  const auto low = add_half<Format>(static_cast<std::uint16_t>(a), static_cast<std::uint16_t>(b));
  const auto high =
      add_half<Format>(static_cast<std::uint16_t>(a >> 16), static_cast<std::uint16_t>(b >> 16));
  return low | std::uint32_t{high} << 16;
}
template <class T>
T exchange(T, T b) {
  return b;
}

/// Lets the lanes of `mask` take their turns: change(lane, old) gives the new value, and gets the old one.
template <class T, class Change>
void take_turns(Warp& warp, const Instruction& instruction, Mask mask, std::uint32_t address_row,
                Change change) {
  const auto form = std::bit_cast<Form>(instruction.detail);
  alignas(64) std::uint64_t addresses[kLanes];
  std::byte* host[kLanes];
  lane_addresses(warp, address_row, instruction.immediate, addresses);
  access(warp, instruction, mask,
         {.space = form.space,
          .kind = AccessKind::atomic,
          .bytes = sizeof(T),
          .strong = true,
          .scope = form.scope},
         addresses, host);
  int order[kLanes];
  std::uint32_t count = 0;
  each_bit(mask, [&](int lane) { order[count++] = lane; });
  for (std::uint32_t left = count; left > 1; --left) std::swap(order[left - 1], order[draw(warp) % left]);
  for (std::uint32_t i = 0; i < count; ++i) {
    const int lane = order[i];
    T old;
    std::memcpy(&old, host[lane], sizeof old);
    const T value = change(lane, old, in_global_memory(form.space, addresses[lane]));
    if (std::memcmp(&value, &old, sizeof value) != 0) memory_changed(warp);
    std::memcpy(host[lane], &value, sizeof value);
    if (form.returns) lanes::operand<T>(warp, instruction, 0)[lane] = old;
    synchronize_through(warp, instruction, lane, form.space, addresses[lane], AccessKind::atomic,
                        form.semantics, form.scope);
  }
}

/// Operands: the old value where it is wanted, the operand, the address.
template <class T, T (*F)(T, T), T (*InGlobal)(T, T) = F>
void combine(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::size_t first = std::bit_cast<Form>(instruction.detail).returns ? 1 : 0;
  const T* const operand = lanes::operand<const T>(warp, instruction, first);
  take_turns<T>(warp, instruction, mask, instruction.operands[first + 1], [=](int lane, T old, bool global) {
    return global ? InGlobal(old, operand[lane]) : F(old, operand[lane]);
  });
}

template <class T>
void compare_and_swap(Warp& warp, const Instruction& instruction, Mask mask) {
  const T* const expected = lanes::operand<const T>(warp, instruction, 1);
  const T* const wanted = lanes::operand<const T>(warp, instruction, 2);
  take_turns<T>(warp, instruction, mask, instruction.operands[3],
                [=](int lane, T old, bool) { return old == expected[lane] ? wanted[lane] : old; });
}

template <class T>
Handler arithmetic_of(std::string_view operation) {
  if (operation == "add") return combine<T, add<T>>;
  if (operation == "min") return combine<T, least<T>>;
  return operation == "max" ? combine<T, greatest<T>> : nullptr;
}

template <class T>
Handler bitwise_of(std::string_view operation) {
  if (operation == "and") return combine<T, bit_and<T>>;
  if (operation == "or") return combine<T, bit_or<T>>;
  if (operation == "xor") return combine<T, bit_xor<T>>;
  if (operation == "exch") return combine<T, exchange<T>>;
  if (operation == "cas") return compare_and_swap<T>;
  return nullptr;
}

Handler handler_of(std::string_view operation, ptx::Type type) {
  switch (type) {
    case ptx::Type::b16:
      return operation == "cas" ? compare_and_swap<std::uint16_t> : nullptr;
    case ptx::Type::b32:
      return bitwise_of<std::uint32_t>(operation);
    case ptx::Type::b64:
      return bitwise_of<std::uint64_t>(operation);
    case ptx::Type::u32:
      if (operation == "inc") return combine<std::uint32_t, increment>;
      if (operation == "dec") return combine<std::uint32_t, decrement>;
      return arithmetic_of<std::uint32_t>(operation);
    case ptx::Type::s32:
      return arithmetic_of<std::int32_t>(operation);
    case ptx::Type::u64:
      return arithmetic_of<std::uint64_t>(operation);
    case ptx::Type::s64:
      return operation == "add" ? nullptr : arithmetic_of<std::int64_t>(operation);
    case ptx::Type::f32:
      return operation == "add" ? combine<float, add<float>, add_flushed> : nullptr;
    case ptx::Type::f64:
      return operation == "add" ? combine<double, add<double>> : nullptr;
    default:
      return nullptr;
  }
}

/// add.noftz: f16 and bf16, alone or in pairs.
Handler half_handler_of(ptx::Type type) {
  switch (type) {
    case ptx::Type::f16:
      return combine<std::uint16_t, add_half<number::F16>>;
    case ptx::Type::f16x2:
      return combine<std::uint32_t, add_halves<number::F16>>;
    case ptx::Type::bf16:
      return combine<std::uint16_t, add_half<number::Bf16>>;
    case ptx::Type::bf16x2:
      return combine<std::uint32_t, add_halves<number::Bf16>>;
    default:
      return nullptr;
  }
}

/// The first target that has an operation of a type (9.7.13.5, 9.7.13.7, "Target ISA Notes"; 64-bit ones on
/// shared memory came later than on global memory, and all before any device of this emulator).
int least_target(std::string_view operation, ptx::Type type) {
  switch (type) {
    case ptx::Type::bf16:
    case ptx::Type::bf16x2:
      return 90;
    case ptx::Type::f16:
    case ptx::Type::b16:
      return 70;
    case ptx::Type::f16x2:
    case ptx::Type::f64:
      return 60;
    case ptx::Type::b64:
    case ptx::Type::u64:
    case ptx::Type::s64:
      return operation == "add" || operation == "cas" || operation == "exch" ? 20 : 32;
    default:
      return 20;
  }
}

/// The modifier .sem needs sm_70, .scope sm_60.
void take_order(Decoder& decoder, Form& form) {
  const auto take = [&](std::string_view name, Semantics semantics) {
    if (!decoder.take(name)) return false;
    form.semantics = semantics;
    decoder.need(70);
    return true;
  };
  (void)(take("relaxed", Semantics::relaxed) || take("release", Semantics::release) ||
         (form.returns &&
          (take("acquire", Semantics::acquire) || take("acq_rel", Semantics::acquire_release))));
  if (take_scope_if_any(decoder, form.scope)) decoder.need(60);
}

template <bool Returns>
void decode(Decoder& decoder) {
  Form form;
  form.returns = Returns;
  take_order(decoder, form);
  form.space = take_space(decoder);
  if (form.space == AccessSpace::constant || form.space == AccessSpace::local)
    decoder.refuse("is for .global, .shared and generic addresses only");
  const std::string_view operation =
      decoder.take_one({"add", "and", "cas", "dec", "exch", "inc", "max", "min", "or", "xor"});
  const bool keeps_subnormals = operation == "add" && decoder.take("noftz");
  const ptx::Type type = decoder.take_type();
  Instruction& instruction = decoder.instruction();
  instruction.run = keeps_subnormals ? half_handler_of(type) : handler_of(operation, type);
  const bool swaps = operation == "cas";
  if (instruction.run == nullptr || (!Returns && (swaps || operation == "exch"))) decoder.refuse_type(type);
  decoder.need(least_target(operation, type));
  const std::size_t first = Returns ? 1 : 0;
  decoder.expect_operands(first + (swaps ? 3 : 2), first + (swaps ? 3 : 2));
  if (Returns) decoder.write(decoder.operand(0), ptx::bits(type));
  decoder.read(decoder.operand(first + 1), type);
  if (swaps) decoder.read(decoder.operand(first + 2), type);
  decoder.read_address(decoder.operand(first));
  decoder.accesses(ptx::bits(type) / 8);
  instruction.detail = std::bit_cast<std::uint64_t>(form);
  mark_memory(decoder, form.space, true);
  instruction.kind = Kind::atomic;
}

}  // namespace

std::vector<Opcode> atomic_opcodes() {
  return {{"atom", Domain::any, decode<true>}, {"red", Domain::any, decode<false>}};
}

}  // namespace sparsekiln::emulator

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "emulator/isa/lanes.h"
#include "emulator/isa/memory_form.h"
#include "emulator/isa/tensor_map.h"
#include "emulator/isa/types.h"
#include "emulator/machine/memory.h"

/// ld, ldu, st, prefetch (PTX ISA 9.7.9.8 and following). A register may be wider than what is loaded or
/// stored: loads extend with the sign of the type, stores take the low bits (9.4.1).
namespace sparsekiln::emulator {
namespace {

/// What a handler needs to know, packed into Instruction::detail.
struct Form {
  AccessSpace space = AccessSpace::generic;
  bool strong = false;
  Semantics semantics = Semantics::relaxed;
  Scope scope = Scope::device;
  std::uint8_t count = 1;  ///< elements of a vector
  std::uint8_t bytes = 4;  ///< of all elements
  std::uint8_t unused[2] = {};
};
static_assert(sizeof(Form) == sizeof(std::uint64_t));

Form form_of(const Instruction& instruction) { return std::bit_cast<Form>(instruction.detail); }

void synchronize(Warp& warp, const Instruction& instruction, Mask mask, const Form& form, AccessKind kind,
                 const std::uint64_t* addresses) {
  if (!form.strong || !checks_order(warp)) return;
  each_bit(mask, [&](int lane) {
    synchronize_through(warp, instruction, lane, form.space, addresses[lane], kind, form.semantics,
                        form.scope);
  });
}

/// The accesses of a warp. Addresses are in the first row of a store; in a load, they are in the row after
/// `count` others.
struct Lanes {
  alignas(64) std::uint64_t addresses[kLanes];
  std::byte* host[kLanes];
  Mask common;  ///< lanes that write where an earlier one does

  Lanes(Warp& warp, const Instruction& instruction, Mask mask, const Form& form, AccessKind kind,
        std::uint32_t base_row, decltype(Access::keeps) keeps = nullptr) {
    lane_addresses(warp, base_row, instruction.immediate, addresses);
    common = access(warp, instruction, mask,
                    {.space = form.space,
                     .kind = kind,
                     .bytes = form.bytes,
                     .strong = form.strong,
                     .scope = form.scope,
                     .keeps = keeps},
                    addresses, host);
  }
};

/// `Memory` elements to rows of `Register`.
template <class Memory, class Register>
void load(Warp& warp, const Instruction& instruction, Mask mask) {
  const Form form = form_of(instruction);
  const Lanes at(warp, instruction, mask, form, AccessKind::read, instruction.operands[form.count]);
  for (std::size_t element = 0; element < form.count; ++element) {
    auto* const to = lanes::operand<Register>(warp, instruction, element);
    const std::size_t offset = element * sizeof(Memory);
    each_bit(mask, [&](int lane) {
      Memory value;
      std::memcpy(&value, at.host[lane] + offset, sizeof value);
      to[lane] = static_cast<Register>(value);
    });
  }
  synchronize(warp, instruction, mask, form, AccessKind::read, at.addresses);
}

/// Lanes that store to the same address must store the same value.
template <class Memory, class Register>
void check_common(const Warp& warp, const Instruction& instruction, const Form& form, const Lanes& at) {
  std::byte written[kLanes][16];
  for (std::size_t element = 0; element < form.count; ++element) {
    const auto* const from = lanes::operand<const Register>(warp, instruction, element);
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<Memory>(from[lane]);
      std::memcpy(written[lane] + element * sizeof(Memory), &value, sizeof value);
    }
  }
  after_common_write(warp, instruction, at.common, form.bytes, at.host, written);
}

template <class Memory, class Register>
bool keeps(const Warp& warp, const Instruction& instruction, int lane, const std::byte* memory) {
  for (std::size_t element = 0; element < form_of(instruction).count; ++element) {
    const auto value = static_cast<Memory>(lanes::operand<const Register>(warp, instruction, element)[lane]);
    if (std::memcmp(memory + element * sizeof value, &value, sizeof value) != 0) return false;
  }
  return true;
}

template <class Memory, class Register>
void store(Warp& warp, const Instruction& instruction, Mask mask) {
  const Form form = form_of(instruction);
  const Lanes at(warp, instruction, mask, form, AccessKind::write, instruction.operands[form.count],
                 keeps<Memory, Register>);
  for (std::size_t element = 0; element < form.count; ++element) {
    const auto* const from = lanes::operand<const Register>(warp, instruction, element);
    const std::size_t offset = element * sizeof(Memory);
    each_bit(mask, [&](int lane) {
      const auto value = static_cast<Memory>(from[lane]);
      std::memcpy(at.host[lane] + offset, &value, sizeof value);
    });
  }
  if (at.common != 0) check_common<Memory, Register>(warp, instruction, form, at);
  synchronize(warp, instruction, mask, form, AccessKind::write, at.addresses);
}

/// The same bytes for all lanes.
template <class Memory, class Register>
void load_parameter(Warp& warp, const Instruction& instruction, Mask mask) {
  const Form form = form_of(instruction);
  const std::byte* from = parameters(warp) + instruction.immediate;
  for (std::size_t element = 0; element < form.count; ++element) {
    Memory value;
    std::memcpy(&value, from + element * sizeof(Memory), sizeof value);
    lanes::produce(lanes::operand<Register>(warp, instruction, element), mask,
                   [=](int) { return static_cast<Register>(value); });
  }
}

/// Calls `pick` with a value of the memory's type and one of the register's.
template <class Pick>
Handler for_widths(Decoder& decoder, ptx::Type type, int register_bits, Pick pick) {
  const auto with_register = [&]<class Memory>(Memory memory) -> Handler {
    if (register_bits < int{8 * sizeof(Memory)}) decoder.refuse("a register is narrower than the type");
    if constexpr (sizeof(Memory) <= 2)
      if (register_bits == 16) return pick(memory, std::uint16_t{});
    if constexpr (sizeof(Memory) <= 4)
      if (register_bits == 32) return pick(memory, std::uint32_t{});
    if (register_bits == 64) return pick(memory, std::uint64_t{});
    decoder.refuse("registers of this width are not implemented");
  };
  const bool is_signed = ptx::is_signed(type);
  const bool is_single = type == ptx::Type::f16 || type == ptx::Type::bf16 || type == ptx::Type::f32 ||
                         type == ptx::Type::f64 || !ptx::is_float(type);
  switch (is_single ? ptx::bits(type) : 0) {
    case 8:
      return is_signed ? with_register(std::int8_t{}) : with_register(std::uint8_t{});
    case 16:
      return is_signed ? with_register(std::int16_t{}) : with_register(std::uint16_t{});
    case 32:
      return is_signed ? with_register(std::int32_t{}) : with_register(std::uint32_t{});
    case 64:
      return with_register(std::uint64_t{});
    default:
      decoder.refuse_type(type);
  }
}

Handler loader(Decoder& decoder, ptx::Type type, int register_bits) {
  return for_widths(
      decoder, type, register_bits,
      []<class Memory, class Register>(Memory, Register) -> Handler { return load<Memory, Register>; });
}

/// `.v2`, `.v4`, `.v8`, or one element.
std::uint8_t take_count(Decoder& decoder) {
  if (decoder.take("v2")) return 2;
  if (decoder.take("v4")) return 4;
  if (decoder.take("v8")) return 8;
  return 1;
}

/// The registers of a vector, or the one that stands for itself.
std::vector<const ptx::Operand*> registers_of(Decoder& decoder, const ptx::Operand& operand,
                                              std::size_t count) {
  std::vector<const ptx::Operand*> result;
  if (operand.kind == ptx::Operand::Kind::vector)
    for (const ptx::Operand& element : operand.elements) result.push_back(&element);
  else
    result.push_back(&operand);
  if (result.size() != count)  // Triton writes one element as a vector as well, and ptxas takes it
    decoder.refuse("has a vector of " + std::to_string(result.size()) + " where the modifiers say " +
                   std::to_string(count));
  return result;
}

/// One width for all of them; sinks and constants take that of the type.
int register_bits_of(Decoder& decoder, const std::vector<const ptx::Operand*>& registers, ptx::Type type) {
  int bits = 0;
  for (const ptx::Operand* operand : registers) {
    const int own = decoder.register_bits(*operand);
    if (own == 0) continue;
    if (bits != 0 && own != bits) decoder.refuse("mixes registers of different widths");
    bits = own;
  }
  return bits != 0 ? bits : std::max(ptx::bits(type), 16);
}

/// Writes what is loaded; returns the bits of each register.
int write_loaded(Decoder& decoder, std::size_t count, ptx::Type type) {
  const auto registers = registers_of(decoder, decoder.operand(0), count);
  const int bits = register_bits_of(decoder, registers, type);
  for (const ptx::Operand* operand : registers) decoder.write(*operand, bits);
  return bits;
}

/// A constant to store has the type of the instruction; a register any type of its width.
ptx::Type source_type(Decoder& decoder, const ptx::Operand& operand, int bits, ptx::Type type) {
  if (bits != 16 && bits != 32 && bits != 64) decoder.refuse("registers of this width are not implemented");
  return decoder.register_bits(operand) == 0 && ptx::bits(type) == bits ? type : ptx::untyped(bits);
}

void finish(Decoder& decoder, Form form, ptx::Type type) {
  const int bytes = ptx::bits(type) / 8;
  form.bytes = static_cast<std::uint8_t>(bytes * form.count);
  if (form.bytes > 16) decoder.refuse("accesses of more than 16 bytes are not implemented");
  decoder.accesses(bytes);
  decoder.instruction().detail = std::bit_cast<std::uint64_t>(form);
}

/// `.weak`, `.volatile`, `.relaxed.scope`, or what orders: `.acquire.scope` of loads, `.release.scope` of
/// stores.
void take_ordering(Decoder& decoder, Form& form, bool store) {
  if (decoder.take("weak")) return;
  if (decoder.take("volatile")) {  // as relaxed, with the scope of the system (8.2)
    form.strong = true;
    form.scope = Scope::system;
  } else if (decoder.take("relaxed")) {
    form.strong = true;
    form.scope = take_scope(decoder);
  } else if (decoder.take(store ? "release" : "acquire")) {
    form.strong = true;
    form.semantics = store ? Semantics::release : Semantics::acquire;
    form.scope = take_scope(decoder);
  }
}

void decode_parameter_load(Decoder& decoder, Form form) {
  form.count = take_count(decoder);
  const ptx::Type type = decoder.take_type();
  if (ptx::bits(type) < 8) decoder.refuse_type(type);
  decoder.expect_operands(2, 2);
  const int bits = write_loaded(decoder, form.count, type);
  form.bytes = static_cast<std::uint8_t>(ptx::bits(type) / 8 * form.count);
  Instruction& instruction = decoder.instruction();
  if (decoder.base_is_register(decoder.operand(1))) {  // within the space of parameters
    if (form.bytes > 16) decoder.refuse("accesses of more than 16 bytes are not implemented");
    decoder.read_address(decoder.operand(1));
    instruction.immediate += static_cast<std::int64_t>(kParamWindow);
    instruction.run = loader(decoder, type, bits);
  } else {
    instruction.immediate =
        static_cast<std::int64_t>(decoder.parameter_offset(decoder.operand(1), form.bytes));
    if (instruction.immediate % form.bytes != 0) decoder.refuse("is misaligned");
    instruction.run =
        for_widths(decoder, type, bits, []<class Memory, class Register>(Memory, Register) -> Handler {
          return load_parameter<Memory, Register>;
        });
  }
  decoder.finish(Kind::memory_param, instruction.run, std::bit_cast<std::uint64_t>(form));
}

/// Two, and a cache policy where a modifier says so.
void expect_operands(const Decoder& decoder, bool policy) {
  const std::size_t all = policy ? 3 : 2;
  decoder.expect_operands(all, all);
  if (policy) decoder.ignore(decoder.operand(2));
}

void decode_load(Decoder& decoder) {
  Form form;
  take_ordering(decoder, form, false);
  if (decoder.take("param") || decoder.take("param::entry")) {
    if (form.strong) decoder.refuse("orders nothing: parameters are constant");
    decode_parameter_load(decoder, form);
    return;
  }
  form.space = take_space(decoder);
  take_cache_operator(decoder, false);
  if (decoder.take("nc") && form.space != AccessSpace::global) decoder.refuse(".nc is for .global only");
  const bool policy = take_cache_hints(decoder, false);
  form.count = take_count(decoder);
  const ptx::Type type = decoder.take_type();
  expect_operands(decoder, policy);
  const int bits = write_loaded(decoder, form.count, type);
  decoder.read_address(decoder.operand(1));
  mark_memory(decoder, form.space, form.strong);
  finish(decoder, form, type);
  decoder.instruction().run = loader(decoder, type, bits);
}

void decode_store(Decoder& decoder) {
  Form form;
  take_ordering(decoder, form, true);
  form.space = take_space(decoder);
  if (form.space == AccessSpace::constant) decoder.refuse("writes constant memory");
  take_cache_operator(decoder, true);
  const bool policy = take_cache_hints(decoder, true);
  form.count = take_count(decoder);
  const ptx::Type type = decoder.take_type();
  expect_operands(decoder, policy);
  const auto registers = registers_of(decoder, decoder.operand(1), form.count);
  const int bits = register_bits_of(decoder, registers, type);
  for (const ptx::Operand* operand : registers)
    decoder.read(*operand, source_type(decoder, *operand, bits, type));
  decoder.read_address(decoder.operand(0));
  mark_memory(decoder, form.space, form.strong);
  finish(decoder, form, type);
  decoder.instruction().run = for_widths(
      decoder, type, bits,
      []<class Memory, class Register>(Memory, Register) -> Handler { return store<Memory, Register>; });
}

/// Brings a line nearer, or nothing at all: a hint that faults on no address.
void decode_prefetch(Decoder& decoder) {
  if (decode_tensor_map_prefetch(decoder)) return;
  const AccessSpace space = take_space(decoder);
  (void)decoder.take_one({"L1", "L2", "L2::evict_last", "L2::evict_normal"});
  decoder.expect_operands(1, 1);
  decoder.read_address(decoder.operand(0));
  decoder.finish(space == AccessSpace::global ? Kind::memory_global : Kind::memory_generic,
                 lanes::do_nothing);
}

}  // namespace

std::vector<Opcode> load_store_opcodes() {
  return {{"ld", Domain::any, decode_load},
          {"ldu", Domain::any, decode_load},
          {"st", Domain::any, decode_store},
          {"prefetch", Domain::any, decode_prefetch}};
}

}  // namespace sparsekiln::emulator

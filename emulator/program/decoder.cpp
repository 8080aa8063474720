#include "emulator/program/decoder.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "emulator/isa/lanes.h"

namespace sparsekiln::emulator {
namespace {

using OperandKind = ptx::Operand::Kind;

std::uint64_t widen(std::uint32_t address) { return address; }

std::uint64_t low_bits(std::uint64_t value, int bits) {
  return bits >= 64 ? value : value & ((std::uint64_t{1} << bits) - 1);
}

/// Modifiers that keep their order among each other.
enum class ModifierClass : std::uint8_t { other, type, space, layout };

ModifierClass class_of(std::string_view modifier) {
  if (ptx::parse_type(modifier)) return ModifierClass::type;
  if (modifier == "row" || modifier == "col") return ModifierClass::layout;
  const std::string_view space = modifier.substr(0, modifier.find("::"));
  for (const std::string_view known : {"global", "shared", "local", "const", "param"})
    if (space == known) return ModifierClass::space;
  return ModifierClass::other;
}

/// Opcodes of many instructions, which the first modifier tells apart.
bool is_named_by_first(std::string_view opcode) {
  for (const std::string_view known : {"bar", "barrier", "cp", "mbarrier", "tensormap", "wgmma"})
    if (opcode == known) return true;
  return false;
}

Domain domain_of(ptx::Type type) {
  switch (type) {
    case ptx::Type::f32:
    case ptx::Type::f64:
      return Domain::floating;
    case ptx::Type::f16:
    case ptx::Type::f16x2:
    case ptx::Type::bf16:
    case ptx::Type::bf16x2:
      return Domain::half;
    default:
      return ptx::is_float(type) ? Domain::any : Domain::integer;
  }
}

}  // namespace

Decoder::Decoder(Assembly& assembly, const ptx::Statement& statement)
    : assembly_(assembly), statement_(statement), taken_(statement.modifiers.size()) {
  draft_.instruction.statement =
      static_cast<std::uint32_t>(&statement - assembly.function().statements.data());
  draft_.instruction.guard = kNoGuard;
  if (!statement.guarded) return;
  if (statement.guard >= assembly.function().registers.size() ||
      assembly.function().registers[statement.guard].type != ptx::Type::pred)
    refuse("the guard is no predicate");
  draft_.instruction.guard = statement.guard;
  draft_.instruction.guard_flip = statement.guard_negated ? kAllLanes : 0;
}

void Decoder::run(Family family) {
  family(*this);
  if (draft_.instruction.run == nullptr)
    throw std::logic_error("no handler for " + text_of(assembly_.function(), statement_));
  if (more_modifiers()) refuse("." + statement_.modifiers[next_modifier()] + " is not implemented here");
  for (const ptx::Operand& operand : statement_.operands)
    if (!was_used(operand)) refuse("too many operands, or one that is not implemented");
  assembly_.drafts.push_back(std::move(draft_));
}

Domain Decoder::domain() const {
  for (auto modifier = statement_.modifiers.rbegin(); modifier != statement_.modifiers.rend(); ++modifier)
    if (const auto type = ptx::parse_type(*modifier)) return domain_of(*type);
  return Domain::any;
}

void Decoder::need_sm_90a() const {
  const ptx::Module& module = assembly_.module();
  if (module.compute_capability != 90 || !module.architecture_specific) refuse("needs .target sm_90a");
}

void Decoder::need(int compute_capability) const {
  if (this->compute_capability() < compute_capability)
    refuse("needs sm_" + std::to_string(compute_capability) + " or later");
}

void Decoder::refuse(const std::string& why) const {
  throw ptx::Error(statement_.line, text_of(assembly_.function(), statement_) + " " + why);
}

void Decoder::refuse_type(ptx::Type type) const {
  refuse("is not implemented for ." + std::string(ptx::name(type)));
}

std::size_t Decoder::next_modifier() const {
  return static_cast<std::size_t>(std::find(taken_.begin(), taken_.end(), false) - taken_.begin());
}

/// As ptxas has it, modifiers may come in any order, as long as those of a class keep theirs, and those stay
/// first that are part of the name.
bool Decoder::can_take(std::size_t modifier) const {
  const std::size_t first = next_modifier();
  if (first == 0 && modifier != 0 && is_named_by_first(statement_.opcode)) return false;
  const ModifierClass own = class_of(statement_.modifiers[modifier]);
  if (own == ModifierClass::other) return true;
  for (std::size_t left = first; left < modifier; ++left)
    if (!taken_[left] && class_of(statement_.modifiers[left]) == own) return false;
  return true;
}

bool Decoder::take(std::string_view name) {
  for (std::size_t i = 0; i < statement_.modifiers.size(); ++i)
    if (!taken_[i] && statement_.modifiers[i] == name && can_take(i)) {
      taken_[i] = true;
      return true;
    }
  return false;
}

std::string_view Decoder::take_one(std::initializer_list<std::string_view> names) {
  for (std::size_t i = 0; i < statement_.modifiers.size(); ++i) {
    const auto name = std::find(names.begin(), names.end(), statement_.modifiers[i]);
    if (taken_[i] || name == names.end() || !can_take(i)) continue;
    taken_[i] = true;
    return *name;
  }
  if (std::find(names.begin(), names.end(), std::string_view()) != names.end()) return {};
  std::string wanted;
  for (const std::string_view name : names) wanted += (wanted.empty() ? "." : ", .") + std::string(name);
  if (more_modifiers())
    refuse("." + statement_.modifiers[next_modifier()] + " is not implemented; expected " + wanted);
  refuse("a modifier is missing; expected " + wanted);
}

void Decoder::take_all(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) take_one({name});
}

ptx::Type Decoder::take_type() {
  if (!more_modifiers()) refuse("the type is missing");
  for (std::size_t i = 0; i < statement_.modifiers.size(); ++i)
    if (const auto type = ptx::parse_type(statement_.modifiers[i]); type && !taken_[i]) {
      taken_[i] = true;
      return *type;
    }
  refuse("." + statement_.modifiers[next_modifier()] + " is not implemented here");
}

void Decoder::expect_operands(std::size_t least, std::size_t most) const {
  const std::size_t given = statement_.operands.size();
  if (given >= least && given <= most) return;
  const std::string wanted =
      least == most ? std::to_string(least) : std::to_string(least) + " to " + std::to_string(most);
  refuse("has " + std::to_string(given) + " operands; expected " + wanted);
}

const ptx::Operand& Decoder::operand(std::size_t index) const {
  if (index >= statement_.operands.size()) refuse("an operand is missing");
  return statement_.operands[index];
}

const ptx::Register& Decoder::register_of(const ptx::Operand& operand) const {
  if (operand.index >= assembly_.function().registers.size()) refuse("an unknown register");
  return assembly_.function().registers[operand.index];
}

int Decoder::register_bits(const ptx::Operand& operand) const {
  if (operand.kind == OperandKind::special) return special_register_bits(operand.text);
  return operand.kind == OperandKind::reg ? ptx::bits(register_of(operand).type) : 0;
}

int Decoder::row_bytes_or_refuse(int bits, const ptx::Operand& operand) const {
  const int bytes = row_bytes(bits);
  if (bytes < 0) refuse("operands of " + std::to_string(bits) + " bits are not implemented");
  if (operand.kind == OperandKind::reg && register_bits(operand) != bits)
    refuse("register " + register_of(operand).name + " has " + std::to_string(register_bits(operand)) +
           " bits where " + std::to_string(bits) + " are expected");
  return bytes;
}

void Decoder::write(const ptx::Operand& operand, int bits) {
  if (!draft_.read.empty()) throw std::logic_error("a family adds writes after reads: " + statement_.opcode);
  mark(operand);
  const int bytes = row_bytes_or_refuse(bits, operand);
  if (operand.negated) refuse("a negated operand cannot be written");
  if (operand.kind == OperandKind::sink) {
    draft_.written.push_back(assembly_.temporary(bytes));
    return;
  }
  if (operand.kind != OperandKind::reg) refuse("only a register can be written");
  if (std::find(draft_.written.begin(), draft_.written.end(), operand.index) != draft_.written.end())
    refuse("writes " + register_of(operand).name + " twice");
  draft_.written.push_back(operand.index);
}

void Decoder::read(const ptx::Operand& operand, ptx::Type type) {
  mark(operand);
  std::uint32_t row = row_to_read(operand, type);
  if (operand.negated) {
    if (type != ptx::Type::pred) refuse("only a predicate can be negated");
    row = add_before(lanes::negate_predicate, 0, row);
  }
  draft_.read.push_back(row);
}

void Decoder::take_operands(int written_bits, std::initializer_list<ptx::Type> read_types) {
  expect_operands(1 + read_types.size(), 1 + read_types.size());
  write(operand(0), written_bits);
  std::size_t index = 1;
  for (const ptx::Type type : read_types) read(operand(index++), type);
}

std::uint32_t Decoder::row_to_read(const ptx::Operand& operand, ptx::Type type) {
  const int bits = ptx::bits(type);
  const int bytes = row_bytes_or_refuse(bits, operand);
  switch (operand.kind) {
    case OperandKind::reg:
      return operand.index;
    case OperandKind::special: {
      const int has = special_register_bits(operand.text);
      if (has == 0) refuse("special register " + operand.text + " is not implemented");
      if (has != bits) refuse("special register " + operand.text + " has " + std::to_string(has) + " bits");
      return assembly_.special(bytes, operand.text);
    }
    case OperandKind::integer:
    case OperandKind::real32:
    case OperandKind::real64:
      return assembly_.constant(bytes, immediate_bits(operand, type));
    case OperandKind::variable: {
      const std::uint64_t address = address_of_named(operand);
      if (bits < 32 || ptx::is_float(type) || low_bits(address, bits) != address)
        refuse("the address of " + operand.text + " does not fit");
      return assembly_.constant(bytes, address);
    }
    default:
      refuse("an operand is not a value");
  }
}

std::uint64_t Decoder::immediate_bits(const ptx::Operand& operand, ptx::Type type) const {
  const int bits = ptx::bits(type);
  const bool untyped = type == ptx::Type::b32 || type == ptx::Type::b64;
  if (operand.kind == OperandKind::integer) {
    if (ptx::is_float(type)) refuse("an integer constant where a floating-point one is expected");
    if (type == ptx::Type::pred) return operand.bits != 0 ? kAllLanes : 0;
    return low_bits(operand.bits, bits);
  }
  if (operand.kind == OperandKind::real32) {
    if (bits == 32 && (untyped || type == ptx::Type::f32)) return operand.bits;
    refuse("a constant of 32-bit floating point where " + std::string(ptx::name(type)) + " is expected");
  }
  if (bits == 64 && (untyped || type == ptx::Type::f64)) return operand.bits;
  if (type == ptx::Type::f32) {  // 4.5.2: kept as f64, converted at its use
    const auto value = std::bit_cast<double>(operand.bits);
    return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  }
  refuse("a constant of 64-bit floating point where " + std::string(ptx::name(type)) + " is expected");
}

std::uint64_t Decoder::address_of_variable(const ptx::Operand& operand) const {
  const auto found = assembly_.layout().addresses.find(operand.text);
  if (found == assembly_.layout().addresses.end())
    refuse("the address of " + operand.text + " is not known in this state space");
  return found->second + static_cast<std::uint64_t>(operand.offset);
}

std::uint64_t Decoder::address_of_named(const ptx::Operand& operand) const {
  for (const ptx::Parameter& parameter : assembly_.function().parameters)
    if (parameter.name == operand.text) return parameter.offset + static_cast<std::uint64_t>(operand.offset);
  return address_of_variable(operand);
}

std::uint32_t Decoder::add_before(Handler handler, int bytes, std::uint32_t from) {
  const std::uint32_t to = assembly_.temporary(bytes);
  Draft draft;
  draft.instruction.run = handler;
  draft.instruction.guard = kNoGuard;
  draft.instruction.statement = draft_.instruction.statement;
  draft.instruction.traits = kMadeByDecoder;
  draft.written = {to};
  draft.read = {from};
  assembly_.drafts.push_back(std::move(draft));
  return to;
}

void Decoder::read_address(const ptx::Operand& operand) {
  mark(operand);
  if (operand.kind != OperandKind::address || operand.elements.size() != 1)
    refuse("an operand is not an address");
  read_base(operand);
}

void Decoder::read_tensor_address(const ptx::Operand& operand, std::size_t dimensions) {
  mark(operand);
  if (operand.kind != OperandKind::address || operand.elements.size() != 2)
    refuse("an operand is not a tensor map with coordinates");
  const std::vector<ptx::Operand>& coordinates = operand.elements[1].elements;
  if (coordinates.size() != dimensions)
    refuse("has " + std::to_string(coordinates.size()) + " coordinates where the modifiers say " +
           std::to_string(dimensions));
  read_base(operand);
  for (const ptx::Operand& coordinate : coordinates) read(coordinate, ptx::Type::s32);
}

void Decoder::read_base(const ptx::Operand& operand) {
  const ptx::Operand& base = operand.elements[0];
  draft_.instruction.immediate = operand.offset;
  switch (base.kind) {
    case OperandKind::reg: {
      const int bits = register_bits(base);
      if (bits == 64)
        draft_.read.push_back(base.index);
      else if (bits == 32)
        draft_.read.push_back(add_before(lanes::map<widen>, 8, base.index));
      else
        refuse("an address in a register of " + std::to_string(bits) + " bits");
      return;
    }
    case OperandKind::variable:
      draft_.read.push_back(assembly_.constant(8, address_of_variable(base)));
      return;
    case OperandKind::integer:
      draft_.read.push_back(assembly_.constant(8, base.bits));
      return;
    default:
      refuse("an address whose base is not implemented");
  }
}

std::uint64_t Decoder::parameter_offset(const ptx::Operand& operand, std::uint64_t bytes) const {
  mark(operand);
  if (operand.kind != OperandKind::address || operand.elements.size() != 1 ||
      operand.elements[0].kind != OperandKind::variable)
    refuse("only a parameter's own name plus a constant is implemented as its address");
  const ptx::Operand& base = operand.elements[0];
  for (const ptx::Parameter& parameter : assembly_.function().parameters) {
    if (parameter.name != base.text) continue;
    const std::uint64_t within =
        static_cast<std::uint64_t>(base.offset) + static_cast<std::uint64_t>(operand.offset);
    if (within > parameter.bytes || bytes > parameter.bytes - within)
      refuse("lies outside of parameter " + parameter.name);
    return parameter.offset + within;
  }
  refuse(base.text + " is no parameter");
}

std::int64_t Decoder::constant(const ptx::Operand& operand) const {
  mark(operand);
  if (operand.kind != OperandKind::integer || operand.negated)
    refuse("an operand is not an integer constant");
  return static_cast<std::int64_t>(operand.bits);
}

std::int64_t Decoder::take_pending_groups() const {
  expect_operands(1, 1);
  const std::int64_t groups = constant(operand(0));
  if (groups < 0 || groups > 0xffffffff) refuse("waits for no such number");
  return groups;
}

const std::uint64_t* Decoder::keep(std::vector<std::uint64_t> data) {
  assembly_.storage.push_back(std::move(data));
  return assembly_.storage.back().data();
}

void Decoder::accesses(int bytes) {
  assembly_.narrowest_access = std::min(assembly_.narrowest_access, static_cast<std::uint32_t>(bytes));
}

void Decoder::access_later(const ptx::Operand& operand) {
  draft_.async = true;
  if (operand.kind != OperandKind::reg || register_bits(operand) != 32)
    refuse("an operand is not a register");
  assembly_.rows()[operand.index].async = true;
}

bool Decoder::was_used(const ptx::Operand& operand) const {
  if (std::find(used_.begin(), used_.end(), &operand) != used_.end()) return true;
  const bool composed = operand.kind == OperandKind::vector || operand.kind == OperandKind::pair;
  return composed && std::all_of(operand.elements.begin(), operand.elements.end(),
                                 [&](const ptx::Operand& element) { return was_used(element); });
}

}  // namespace sparsekiln::emulator

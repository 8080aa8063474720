// PTX: text that a program hands to the driver. What parses must hold together, and be decoded or refused.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "emulator/program/decode.h"
#include "emulator/ptx/parse.h"

namespace {

namespace ptx = sparsekiln::ptx;

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const ptx::Operand& operand, const ptx::Function& function) {
  using Kind = ptx::Operand::Kind;
  if (operand.kind == Kind::reg) require(operand.index < function.registers.size());
  if (operand.kind == Kind::label) require(operand.index <= function.statements.size());
  if (operand.kind == Kind::address) require(operand.elements.size() == 1);
  if (operand.kind == Kind::pair) require(operand.elements.size() == 2);
  if (operand.kind == Kind::vector) require(!operand.elements.empty());
  for (const ptx::Operand& element : operand.elements) check(element, function);
}

void check(const ptx::Variable& variable) {
  require(!variable.name.empty());
  require(variable.alignment != 0 && (variable.alignment & (variable.alignment - 1)) == 0);
  require(variable.initial.size() <= variable.bytes);
  require((variable.bytes == 0) == variable.external);
}

void check(const ptx::Function& function, const ptx::Module& module) {
  for (const ptx::Variable& variable : function.variables) check(variable);
  std::uint64_t end = 0;
  for (const ptx::Parameter& parameter : function.parameters) {
    require(parameter.offset >= end && parameter.offset % parameter.alignment == 0);
    end = parameter.offset + parameter.bytes;
  }
  require(end <= 32764);
  for (const ptx::Statement& statement : function.statements) {
    require(!statement.opcode.empty() && statement.line > 0);
    require(statement.source.file < module.files.size() || statement.source.file == 0);
    if (statement.guarded) require(function.registers.at(statement.guard).type == ptx::Type::pred);
    for (const ptx::Operand& operand : statement.operands) check(operand, function);
  }
}

/// Every row lies in the register file, every instruction has somebody to run it.
void check(const sparsekiln::emulator::Program& program) {
  require(!program.code.empty());
  for (const sparsekiln::emulator::Instruction& instruction : program.code) {
    require(instruction.run != nullptr);
    require(instruction.guard == sparsekiln::emulator::kNoGuard ||
            instruction.guard < program.register_bytes);
  }
  for (const std::uint32_t row : program.operand_pool) require(row < program.register_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const ptx::Module module = ptx::parse({reinterpret_cast<const char*>(data), size});
    for (const ptx::Variable& variable : module.variables) check(variable);
    for (const ptx::Function& function : module.functions) check(function, module);
    sparsekiln::emulator::Addresses addresses;
    for (const ptx::Variable& variable : module.variables)
      addresses[variable.name] = 4096 * (addresses.size() + 1);
    for (const ptx::Function& function : module.functions)
      check(sparsekiln::emulator::decode(module, function, addresses));
  } catch (const ptx::Error& error) {
    require(error.line() > 0);
  }
  return 0;
}

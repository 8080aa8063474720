#include "emulator/program/program.h"

#include <cstdio>
#include <string_view>
#include <utility>

namespace sparsekiln::emulator {
namespace {

std::string hex(const char* prefix, int digits, std::uint64_t bits) {
  char text[32];
  std::snprintf(text, sizeof text, "%s%0*llX", prefix, digits, static_cast<unsigned long long>(bits));
  return text;
}

/// Writes operands as PTX has them.
class Printer {
 public:
  explicit Printer(const ptx::Function& function) : function_(function) {}

  void add(std::string_view text) { text_.append(text); }
  void add_register(std::uint32_t index) {
    add(index < function_.registers.size() ? std::string_view(function_.registers[index].name) : "%?");
  }
  void add_list(const std::vector<ptx::Operand>& operands, std::string_view between) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (i > 0) add(between);
      add_operand(operands[i]);
    }
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  using Kind = ptx::Operand::Kind;

  void add_operand(const ptx::Operand& operand) {
    if (operand.negated) add("!");
    switch (operand.kind) {
      case Kind::reg:
        return add_register(operand.index);
      case Kind::special:
        return add(operand.text);
      case Kind::integer:
        return add(std::to_string(static_cast<std::int64_t>(operand.bits)));
      case Kind::real32:
        return add(hex("0f", 8, operand.bits));
      case Kind::real64:
        return add(hex("0d", 16, operand.bits));
      case Kind::variable:
        add(operand.text);
        return add_offset(operand.offset);
      case Kind::label:
        return add_label(operand);
      case Kind::address:
        return add_address(operand);
      case Kind::vector:
        add("{");
        add_list(operand.elements, ", ");
        return add("}");
      case Kind::sink:
        return add("_");
      case Kind::pair:
        return add_list(operand.elements, "|");
    }
  }

  void add_address(const ptx::Operand& operand) {
    add("[");
    add_operand(operand.elements.front());
    add_offset(operand.offset);
    for (std::size_t i = 1; i < operand.elements.size(); ++i) {
      add(", ");
      add_operand(operand.elements[i]);
    }
    add("]");
  }

  void add_offset(std::int64_t offset) {
    if (offset == 0) return;
    if (offset > 0) add("+");
    add(std::to_string(offset));
  }

  void add_label(const ptx::Operand& operand) {
    if (!operand.text.empty()) return add(operand.text);
    if (operand.index >= function_.statements.size()) return add("the end");
    add("line ");
    add(std::to_string(function_.statements[operand.index].line));
  }

  const ptx::Function& function_;
  std::string text_;
};

}  // namespace

const char* name(Kind kind) {
  static constexpr const char* kNames[] = {
      "integer",       "floating",      "conversion",      "move",         "predicate",    "branch",
      "memory_global", "memory_shared", "memory_constant", "memory_local", "memory_param", "memory_generic",
      "atomic",        "barrier",       "fence",           "warp",         "copy",         "matrix_load",
      "tensor",        "other"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Kind::other) + 1);
  return kNames[static_cast<std::size_t>(kind)];
}

std::string text_of(const ptx::Function& function, const ptx::Statement& statement) {
  Printer printer(function);
  if (statement.guarded) {
    printer.add(statement.guard_negated ? "@!" : "@");
    printer.add_register(statement.guard);
    printer.add(" ");
  }
  printer.add(statement.opcode);
  for (const std::string& modifier : statement.modifiers) {
    printer.add(".");
    printer.add(modifier);
  }
  if (!statement.operands.empty()) printer.add(" ");
  printer.add_list(statement.operands, ", ");
  printer.add(";");
  return printer.take();
}

}  // namespace sparsekiln::emulator

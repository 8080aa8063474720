#include "emulator/program/layout.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "emulator/machine/memory.h"

namespace sparsekiln::emulator {
namespace {

using Names = std::set<std::string_view, std::less<>>;

void collect_names(const ptx::Operand& operand, Names& names) {
  if (operand.kind == ptx::Operand::Kind::variable) names.insert(operand.text);
  for (const ptx::Operand& element : operand.elements) collect_names(element, names);
}

/// Puts variables one after the other, each at its alignment.
class Stack {
 public:
  Stack(std::uint64_t base, int line) : base_(base), end_(base), line_(line) {}

  std::uint64_t place(const ptx::Variable& variable) {
    align(variable.alignment);
    const std::uint64_t at = end_;
    if (variable.bytes > kMost || end_ + variable.bytes - base_ > kMost)
      throw ptx::Error(line_, "variable " + variable.name + " does not fit");
    end_ += variable.bytes;
    return at;
  }
  void align(std::uint32_t alignment) {
    const std::uint64_t unit = std::max<std::uint32_t>(alignment, 1);
    if (unit > kMost) throw ptx::Error(line_, "alignment of " + std::to_string(unit) + " bytes");
    end_ = (end_ + unit - 1) / unit * unit;
    alignment_ = std::max(alignment_, static_cast<std::uint32_t>(unit));
  }
  [[nodiscard]] std::uint32_t bytes() const { return static_cast<std::uint32_t>(end_ - base_); }
  [[nodiscard]] std::uint32_t alignment() const { return alignment_; }
  [[nodiscard]] std::uint64_t end() const { return end_; }

 private:
  /// CUDA C++ Programming Guide, "Technical specifications": local memory of a thread; shared memory is less.
  static constexpr std::uint64_t kMost = 512 * 1024;

  std::uint64_t base_;
  std::uint64_t end_;
  std::uint32_t alignment_ = 16;
  int line_;
};

}  // namespace

Layout lay_out(const ptx::Module& module, const ptx::Function& function, const Addresses& addresses) {
  Names used;
  for (const ptx::Statement& statement : function.statements)
    for (const ptx::Operand& operand : statement.operands) collect_names(operand, used);

  Layout layout{.addresses = addresses};
  Stack shared(kSharedBase, function.line);
  Stack local(0, function.line);
  std::vector<const ptx::Variable*> dynamic;
  const auto place = [&](const ptx::Variable& variable, bool own) {
    if (variable.space == ptx::Space::local) layout.addresses[variable.name] = local.place(variable);
    if (variable.space != ptx::Space::shared || (!own && !used.contains(variable.name))) return;
    if (variable.external)
      dynamic.push_back(&variable);
    else
      layout.addresses[variable.name] = shared.place(variable);
  };
  for (const ptx::Variable& variable : function.variables) place(variable, true);
  for (const ptx::Variable& variable : module.variables) place(variable, false);
  for (const ptx::Variable* variable : dynamic) shared.align(variable->alignment);
  for (const ptx::Variable* variable : dynamic) layout.addresses[variable->name] = shared.end();

  layout.shared_bytes = shared.bytes();
  layout.shared_alignment = shared.alignment();
  layout.local_bytes = local.bytes();
  for (const ptx::Parameter& parameter : function.parameters)
    layout.param_bytes =
        std::max(layout.param_bytes, static_cast<std::uint32_t>(parameter.offset + parameter.bytes));
  return layout;
}

}  // namespace sparsekiln::emulator

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "emulator/ptx/module.h"

namespace sparsekiln::ptx {

/// The registers and labels of a function, by the scopes in which they are known (PTX ISA 4.6: a declaration
/// in braces ends with them, and hides outer ones). Names refer to the module's text.
class Scopes {
 public:
  /// Registers are added to `function` when they are first used: `.reg .b32 %r<1000000000>` costs nothing.
  explicit Scopes(Function& function) : function_(function) {}

  void open(int line);
  /// Ends the innermost scope: its labels are resolved. Throws Error if it declared a name twice; at the
  /// outermost, also for labels that nothing has.
  void close();
  [[nodiscard]] std::size_t depth() const noexcept { return scopes_.size(); }

  /// `.reg .b32 name;`
  void declare(std::string_view name, Type type, int line);
  /// `.reg .b32 prefix<count>;`: prefix0 … prefix(count-1).
  void declare_range(std::string_view prefix, std::uint64_t count, Type type, int line);
  /// Index into Function::registers; nothing if no register has the name.
  [[nodiscard]] std::optional<std::uint32_t> find(std::string_view name);

  /// Names the statement that comes next.
  void define_label(std::string_view name, int line);
  /// Operand `operand` of the statement that comes next is this label; its index is set when the scope ends.
  void use_label(std::string_view name, std::size_t operand, int line);

 private:
  struct Symbol {
    std::uint32_t reg = kUnused;  ///< of Function::registers, once it is used
    Type type = Type::b32;
    std::uint32_t depth = 0;  ///< of its scope, from 1
  };
  struct Range {
    std::uint64_t count = 0;
    Type type = Type::b32;
    std::uint32_t depth = 0;
  };
  struct Hidden {
    std::string_view name;
    std::optional<Symbol> outer;  ///< what the name meant before
  };
  struct Declared {
    std::string_view name;
    int line;
  };
  struct Scope {
    std::vector<Hidden> symbols;
    std::vector<std::string_view> ranges;  ///< their prefixes
    std::vector<Declared> declared;        ///< by name, not as part of a range
    std::unordered_map<std::string_view, std::uint32_t> labels;
    std::size_t first_use = 0;  ///< of uses_
  };
  struct LabelUse {
    std::string_view name;
    std::uint32_t statement;
    std::uint32_t operand;
    int line;
  };
  static constexpr std::uint32_t kUnused = 0xffffffffu;

  [[nodiscard]] std::optional<Range> range_of(std::string_view name) const;
  void refuse_overlaps(const Scope& scope) const;
  void resolve_labels(const Scope& scope);
  std::uint32_t add(std::string_view name, Type type);

  Function& function_;
  std::vector<Scope> scopes_;
  std::unordered_map<std::string_view, Symbol> symbols_;
  std::unordered_map<std::string_view, std::vector<Range>> ranges_;  ///< innermost last
  std::uint32_t deepest_range_ = 0;  ///< depth of the innermost scope that has one
  std::vector<LabelUse> uses_;       ///< not resolved yet
};

}  // namespace sparsekiln::ptx

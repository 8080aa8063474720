#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/ptx/module.h"
#include "emulator/ptx/scopes.h"
#include "emulator/ptx/token.h"

namespace sparsekiln::ptx {

using NameSet = std::set<std::string, std::less<>>;

/// What the parts of a parse share.
struct Parse {
  explicit Parse(std::string_view text)
      : cursor(text), initial_bytes_left(static_cast<std::uint64_t>(text.size()) * 8) {}

  Cursor cursor;
  Module module;
  NameSet names;  ///< of the module's variables and functions
  /// What initial values may still take: nested ones may leave gaps, and these must not outgrow the text.
  std::uint64_t initial_bytes_left;
  std::uint32_t last_file = 0;  ///< the greatest that a `.loc` has named
};

inline constexpr std::uint64_t kMostFiles = 65535;  ///< the greatest number of a `.file`: each takes a place

/// "not implemented: .name", with its line.
[[noreturn]] void refuse_directive(const Token& directive);
/// What follows `.pragma`: hints to ptxas (11.5), none of which changes what a kernel computes.
void skip_pragma(Cursor& cursor);

/// A directive that starts a variable: `.global`, `.const`, `.shared`, `.local`.
[[nodiscard]] std::optional<Space> space_of(const Token& directive);

/// A type that a register or a variable may be declared with (5.2.1). Refuses alternate formats and vectors.
[[nodiscard]] Type parse_declared_type(Cursor& cursor);
/// `.align 16`, if it is next: a power of two; 0 if it is not there.
[[nodiscard]] std::uint32_t parse_alignment(Cursor& cursor);

/// From what follows `.shared` and the like to the semicolon: `.align 16 .b8 smem[1024];` (5.3, 5.4).
/// `external`: it was preceded by `.extern`. A list of several variables gives several.
[[nodiscard]] std::vector<Variable> parse_variables(Parse& parse, Space space, bool external);

/// `(.param .u64 a, .param .align 8 .b8 b[24])` (5.1.6.1), if it is there; offsets are laid out.
[[nodiscard]] std::vector<Parameter> parse_parameters(Cursor& cursor);

/// From what follows `.entry` to its closing brace.
[[nodiscard]] Function parse_function(Parse& parse);

/// Reads operands of the statement that comes next.
class OperandReader {
 public:
  OperandReader(Cursor& cursor, Scopes& scopes, const NameSet& module_names, const NameSet& function_names)
      : cursor_(cursor), scopes_(scopes), module_names_(module_names), function_names_(function_names) {}

  /// One operand, pairs included.
  [[nodiscard]] Operand read();

 private:
  [[nodiscard]] Operand read_one();
  [[nodiscard]] Operand read_named();
  [[nodiscard]] Operand read_number();
  [[nodiscard]] Operand read_address();
  [[nodiscard]] Operand read_vector();
  [[nodiscard]] std::int64_t read_offset();

  Cursor& cursor_;
  Scopes& scopes_;
  const NameSet& module_names_;
  const NameSet& function_names_;
};

/// `%tid.x` and its like (10); `%tid` alone is none: it is a vector.
[[nodiscard]] bool is_special_register(std::string_view name);

}  // namespace sparsekiln::ptx

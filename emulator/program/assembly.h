#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "emulator/program/draft.h"
#include "emulator/program/layout.h"
#include "emulator/program/program.h"
#include "emulator/ptx/module.h"

namespace sparsekiln::emulator {

/// Bits of the value of a special register, 0 where it is unknown or not implemented (PTX ISA, section 10).
/// Clocks are not: time is nothing that this emulator has.
[[nodiscard]] int special_register_bits(std::string_view name);

/// A program while its statements are decoded: drafts, and the virtual rows that they use. The first rows are
/// the function's registers, by their index.
class Assembly {
 public:
  Assembly(const ptx::Module& module, const ptx::Function& function, Layout layout);

  [[nodiscard]] const ptx::Module& module() const { return *module_; }
  [[nodiscard]] const ptx::Function& function() const { return *function_; }
  [[nodiscard]] const Layout& layout() const { return layout_; }

  /// A row that only the decoder knows of. `bytes` as in VirtualRow.
  std::uint32_t temporary(int bytes);
  /// A row that holds `value` in every lane; the same for the same value and size.
  std::uint32_t constant(int bytes, std::uint64_t value);
  std::uint32_t special(int bytes, const std::string& name);

  std::vector<Draft> drafts;
  std::vector<std::vector<std::uint64_t>> storage;
  std::uint32_t narrowest_access = 4;

  [[nodiscard]] const std::vector<VirtualRow>& rows() const { return rows_; }
  [[nodiscard]] std::vector<VirtualRow>& rows() { return rows_; }
  /// FixedRow::row is a virtual row here.
  [[nodiscard]] const std::vector<FixedRow>& fixed_rows() const { return fixed_rows_; }

 private:
  std::uint32_t add_fixed(FixedRow row);

  const ptx::Module* module_;
  const ptx::Function* function_;
  Layout layout_;
  std::vector<VirtualRow> rows_;
  std::vector<FixedRow> fixed_rows_;
  std::map<std::tuple<int, std::uint64_t, std::string>, std::uint32_t> known_;
};

/// Bytes of an element of a register's row; -1: no row holds it (128 bits).
[[nodiscard]] int row_bytes(int bits);

}  // namespace sparsekiln::emulator

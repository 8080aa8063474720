#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include <llvm/IR/GlobalVariable.h>

#include "compiler/cpu/layout_data.h"
#include "compiler/cpu/module.h"
#include "compiler/cpu/vector_ir.h"

namespace sparsekiln::cpu {

/// How the code of one entry gets at its layout: constants of the module where it is baked, else loads from
/// the image that comes with the call.
class LayoutIr {
 public:
  using Value = llvm::Value;

  /// Baked. `names` of its tables, which `suffix` is added to.
  LayoutIr(EmittedModule& module, const TableNames& names, std::string suffix, LayoutData data);
  /// Attached.
  explicit LayoutIr(EmittedModule& module);

  [[nodiscard]] bool attached() const { return data_ == nullptr; }
  /// What a number is, where that is known when the code is written.
  [[nodiscard]] std::optional<std::int64_t> known(LayoutNumber number) const {
    return attached() ? std::nullopt : std::optional((*data_)[number]);
  }
  /// Whether a baked layout has a table.
  [[nodiscard]] bool has(std::size_t table) const { return entries(table) > 0; }
  /// How many entries that has; 0 where attached.
  [[nodiscard]] std::int64_t entries(std::size_t table) const {
    return attached() ? 0 : std::ssize(data_->tables[table]);
  }
  /// An i64, and the address of a table's first i32, in the current pass.
  [[nodiscard]] Value* number(LayoutNumber number) const;
  [[nodiscard]] Value* table(std::size_t table);

 private:
  [[nodiscard]] Value* image() const;

  EmittedModule& module_;
  std::unique_ptr<const LayoutData> data_;  ///< null: attached
  TableNames names_{};
  std::string suffix_;
  std::array<llvm::GlobalVariable*, kLayoutTables> globals_{};  ///< of those that were asked for
};

}  // namespace sparsekiln::cpu

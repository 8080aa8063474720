#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sparsekiln/problem.h>

#include "compiler/schedule.h"

namespace sparsekiln::cuda {

/// What the tables of one module may take of the 64 KB of `__constant__` memory.
inline constexpr std::int64_t kConstantTableLimit = 64 * 1024 - 256;

/// Bytes of the table of columns, which all entries of a module share, as `columns` and as the rest of one
/// entry.
[[nodiscard]] std::int64_t column_table_bytes(const Problem& problem);
[[nodiscard]] std::int64_t item_table_bytes(const Schedule& schedule);
/// Both: the tables of a module with one entry.
[[nodiscard]] std::int64_t table_bytes(const Problem& problem, const Schedule& schedule);
/// No schedule of this problem over at most `workers` CTAs (target.workers × config.split) has larger tables.
/// From the layout's size alone.
[[nodiscard]] std::int64_t constant_table_bound(const Problem& problem, std::int64_t workers);

/// Writes the tables of a module, each once, and the `Table` types through which the templates read them.
class TableWriter {
 public:
  TableWriter(const Problem& problem, std::string& text) : problem_(problem), text_(text) {}

  /// Appends what entry `index` needs besides what was written before, and `struct Table<index>`.
  void write(std::size_t index, const Schedule& schedule, TableForm form);
  [[nodiscard]] std::int64_t constant_bytes() const { return constant_bytes_; }

 private:
  void write_columns(TableForm form);
  void write_items(std::size_t index, const Schedule& schedule, TableForm form);
  void declare(std::string_view type, const std::string& name, TableForm form);

  struct Written {
    const Schedule* schedule;
    TableForm form;
    std::size_t index;
  };
  const Problem& problem_;
  std::string& text_;
  std::vector<Written> written_;
  std::vector<TableForm> columns_;
  std::int64_t constant_bytes_ = 0;
};

}  // namespace sparsekiln::cuda

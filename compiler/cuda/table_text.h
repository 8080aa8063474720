#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sparsekiln/config.h>

#include "compiler/cuda/tables.h"

namespace sparsekiln::cuda {

/// What a kernel is told of its workspace besides the tables, see Workspace of sparsekiln/binary.h.
struct TableFigures {
  std::int32_t counters = 0;       ///< of one batch tile
  std::int64_t counter_bytes = 0;  ///< in front
  std::int64_t tile_bytes = 0;
};

/// Appends `name`_`index`, an array of int in the memory of `form`.
void write_numbers(std::string& text, std::string_view name, std::size_t index, TableForm form,
                   const std::vector<std::int32_t>& numbers);

/// Writes the tables of a module, each once, and the `Table` types through which the templates read them.
class TableWriter {
 public:
  explicit TableWriter(std::string& text) : text_(text) {}

  /// Appends what entry `index` needs besides what was written before, and `struct Table<index>`.
  void write(std::size_t index, const Tables& tables, TableForm form, const TableFigures& figures);
  [[nodiscard]] std::int64_t constant_bytes() const { return constant_bytes_; }

 private:
  void write_arrays(std::size_t index, const Tables& tables, TableForm form);

  struct Written {
    Tables tables;
    TableForm form;
    std::size_t index;
  };
  std::string& text_;
  std::vector<Written> written_;
  std::int64_t constant_bytes_ = 0;
};

}  // namespace sparsekiln::cuda

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sparsekiln/binary.h>
#include <sparsekiln/config.h>

#include "compiler/block_scales.h"
#include "compiler/cuda/tables.h"
#include "compiler/source.h"

namespace sparsekiln::cuda {

/// What a kernel is told of its workspace besides the tables, see Workspace of sparsekiln/binary.h.
struct TableFigures {
  std::int32_t counters = 0;       ///< of one batch tile
  std::int64_t counter_bytes = 0;  ///< in front
  std::int64_t tile_bytes = 0;
  std::optional<std::int64_t> features;  ///< of y, where the kernel asks for them
  std::optional<std::int32_t> columns;   ///< blocks of x, likewise
};

/// What the tables of form `global` of one module may take as text of the source. Above it,
/// NVRTC would take longer to read them than for the rest of the kernel (docs/scheduling.md).
inline constexpr std::int64_t kMostTextBytes = 16 * 1024;

/// Where the arrays of a table are.
enum class TablePlace {
  constant,  ///< text of the source, in `__constant__` memory
  global,    ///< text of the source, in `__device__` memory
  data,      ///< Binary::data: the source only declares them
};

/// Decides where the tables of one module are.
class TablePlaces {
 public:
  [[nodiscard]] TablePlace next(TableForm form, std::int64_t bytes);
  [[nodiscard]] std::int64_t constant_bytes() const { return constant_bytes_; }

 private:
  std::int64_t constant_bytes_ = 0;
  std::int64_t text_bytes_ = 0;  ///< of form `global`
};

/// Writes the arrays of one table, `name`_`index`.
class ArrayWriter {
 public:
  ArrayWriter(Source& source, std::size_t index, TablePlace place)
      : source_(source), index_(index), place_(place) {}
  void write(std::string_view name, const std::vector<std::int32_t>& numbers);
  void write(std::string_view name, const std::vector<Tables::Step>& steps);
  void write(std::string_view name, const std::vector<Tables::WorkerBegin>& begins);
  void write(std::string_view name, const std::vector<Tables::SplitPart>& parts);

 private:
  template <class Element>
  void write(std::string_view type, std::string_view name, const std::vector<Element>& elements);

  Source& source_;
  std::size_t index_;
  TablePlace place_;
};

/// The expression that reads an element of the array `name`_`index`; `at` is its index in the array.
[[nodiscard]] std::string element_text(std::string_view name, std::size_t index, TablePlace place,
                                       std::string_view at);

/// Writes which scale a block of W has, and returns what reads it in a `Table`: `block_scale(block)`, and
/// `first_block(scale)`, of the scale after the last one the end. `index` as of ArrayWriter.
[[nodiscard]] std::string write_block_scales(Source& source, TablePlaces& places, std::size_t index,
                                             const BlockScales& scales);

/// Writes the tables of a module, each once, and the `Table` types through which the templates read them.
class TableWriter {
 public:
  explicit TableWriter(Source& source) : source_(source) {}

  /// Adds what entry `index` needs besides what was written before, and `struct Table<index>`.
  /// With block scales, all entries have the same.
  void write(std::size_t index, const Tables& tables, TableForm form, const TableFigures& figures,
             const BlockScales* scales = nullptr);
  [[nodiscard]] std::int64_t constant_bytes() const { return places_.constant_bytes(); }

 private:
  struct Written {
    Tables tables;
    TableForm form;
    TablePlace place;
    std::size_t index;
  };
  /// The arrays of these tables, written now or before.
  const Written& written(std::size_t index, const Tables& tables, TableForm form);
  void write_arrays(const Written& table);
  /// One that comes with the launch.
  void write_attached(std::size_t index, const BlockScales* scales);
  [[nodiscard]] std::string& text() { return source_.text; }

  Source& source_;
  TablePlaces places_;
  std::vector<Written> written_;
  std::string block_scales_;  ///< what reads them
};

}  // namespace sparsekiln::cuda

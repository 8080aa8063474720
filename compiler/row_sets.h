#pragma once

#include <cstdint>
#include <vector>

#include <sparsekiln/layout.h>

namespace sparsekiln {

/// Rows of blocks, each with the columns that it needs in ascending order: a layout, or one whose rows have
/// been merged. Row r needs cols[begin[r]] … cols[begin[r + 1]).
struct RowSets {
  std::int32_t columns = 0;  ///< all columns are below
  std::vector<std::int32_t> begin{0};
  std::vector<std::int32_t> cols;

  [[nodiscard]] std::int32_t rows() const { return static_cast<std::int32_t>(begin.size()) - 1; }
  [[nodiscard]] static RowSets of(const Layout& layout);
};

/// A place of a row group without a row.
inline constexpr std::int32_t kNoRow = -1;

}  // namespace sparsekiln

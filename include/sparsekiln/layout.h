#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include <sparsekiln/digest.h>

namespace sparsekiln {

/// Figures of a layout from which the time of a kernel is predicted without a schedule.
struct LayoutStatistics {
  std::int64_t blocks = 0;       ///< present blocks
  double density = 0;            ///< blocks / (rows × cols); 0 for a grid without cells
  std::int32_t empty_rows = 0;   ///< block rows without a present block
  std::int32_t empty_cols = 0;   ///< block columns without a present block
  std::int32_t longest_row = 0;  ///< present blocks of the fullest block row
  std::int32_t longest_col = 0;  ///< present blocks of the fullest block column
  double row_deviation = 0;      ///< population standard deviation of the blocks in a row
};

/// An immutable grid of block rows × block columns, each block present or absent.
///
/// Rows are output features, columns are input features, both counted in blocks. Present blocks are numbered
/// row-major, which is the order of `values()` of a PyTorch BSR tensor and of `data` of
/// scipy.sparse.bsr_matrix. A Layout is a cheap handle: copies share the indices. The digest depends on
/// nothing but the grid.
class Layout {
 public:
  /// The largest number of rows or columns, in blocks. A kernel takes fewer empty ones (`validate`).
  static constexpr std::int64_t kMaxExtent = std::int64_t{1} << 24;
  /// The largest number of present blocks.
  static constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 30;

  /// The empty grid of 0 × 0 blocks.
  Layout();

  /// Takes BSR index arrays: `crow` has rows + 1 entries, `col` has crow.back() entries, ascending within a
  /// row. Throws `invalid_argument` where they are unsorted, duplicate or out of range, naming the row.
  [[nodiscard]] static Layout from_csr(std::int64_t rows, std::int64_t cols,
                                       std::span<const std::int32_t> crow, std::span<const std::int32_t> col);
  /// As above, taking over the arrays instead of copying them.
  [[nodiscard]] static Layout from_csr(std::int64_t rows, std::int64_t cols, std::vector<std::int32_t> crow,
                                       std::vector<std::int32_t> col);
  /// Takes a row-major grid of rows × cols bytes; non-zero means present.
  [[nodiscard]] static Layout from_mask(std::int64_t rows, std::int64_t cols,
                                        std::span<const std::uint8_t> mask);

  /// Reads `.npy` (2-D bool or integer), `.mtx` (Matrix Market), `.smtx`, or text of 0 and 1 (any other
  /// ending); the ending decides, and docs/layouts.md says what each may hold. Throws `invalid_argument` with
  /// the file, the place in it and what was expected, and `io` where the file cannot be read, is no regular
  /// file (a pipe, a device) or has more than 4 GiB.
  [[nodiscard]] static Layout load(const std::filesystem::path& file);
  /// Writes the format of the ending (none: text), through a temporary file that is renamed: all or nothing.
  /// Throws `io` where it cannot be written, `invalid_argument` for other endings and grids it cannot hold.
  void save(const std::filesystem::path& file) const;

  [[nodiscard]] std::int32_t rows() const noexcept;
  [[nodiscard]] std::int32_t cols() const noexcept;
  [[nodiscard]] std::int64_t blocks() const noexcept;

  /// Row view: rows() + 1 offsets into col(), and the block columns in ascending order within each row.
  [[nodiscard]] std::span<const std::int32_t> crow() const noexcept;
  [[nodiscard]] std::span<const std::int32_t> col() const noexcept;
  /// The block columns present in one block row. The number of the first such block is crow()[row].
  [[nodiscard]] std::span<const std::int32_t> row(std::int32_t row) const noexcept;

  /// Column view: cols() + 1 offsets into row_of() and block_of(), ascending by row within each column.
  [[nodiscard]] std::span<const std::int32_t> ccol() const;
  [[nodiscard]] std::span<const std::int32_t> row_of() const;
  /// The row-major number of each block of the column view.
  [[nodiscard]] std::span<const std::int32_t> block_of() const;

  /// The parts one after the other along the diagonal, nothing beside them: a layer with this layout computes
  /// the products of all parts at once, each with its own features. Its blocks are those of the first part,
  /// then those of the second … Throws `invalid_argument` where there is no part, or too much of them.
  [[nodiscard]] static Layout diagonal(std::span<const Layout> parts);

  /// Rows and columns exchanged: block k of the result is block block_of()[k] of this.
  [[nodiscard]] Layout transposed() const;

  /// True where the block is present. O(log row length).
  [[nodiscard]] bool contains(std::int32_t row, std::int32_t col) const noexcept;

  [[nodiscard]] const LayoutStatistics& statistics() const noexcept;
  [[nodiscard]] const Digest& digest() const noexcept;

  friend bool operator==(const Layout& a, const Layout& b) noexcept { return a.digest() == b.digest(); }

 private:
  struct Grid;
  explicit Layout(std::shared_ptr<const Grid> grid);
  std::shared_ptr<const Grid> grid_;
};

}  // namespace sparsekiln

#include <sparsekiln/layout.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <xxhash.h>

namespace sparsekiln {

namespace {

using Indices = std::vector<std::int32_t>;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::invalid_argument, what); }

void check_extent(std::string_view name, std::int64_t extent) {
  if (extent < 0 || extent > Layout::kMaxExtent)
    refuse(fmt::format("layout: {} {} is out of range; expected 0 to {}", extent, name, Layout::kMaxExtent));
}

void check_csr(std::int64_t rows, std::int64_t cols, std::span<const std::int32_t> crow,
               std::span<const std::int32_t> col) {
  check_extent("rows", rows);
  check_extent("columns", cols);
  if (std::ssize(crow) != rows + 1)
    refuse(fmt::format("layout: crow has {} entries; {} rows need {}", crow.size(), rows, rows + 1));
  if (std::ssize(col) > Layout::kMaxBlocks)
    refuse(fmt::format("layout: {} blocks are too many; at most {} are possible", col.size(),
                       Layout::kMaxBlocks));
  if (crow.front() != 0) refuse(fmt::format("layout: crow starts at {}; expected 0", crow.front()));
  for (std::int64_t i = 0; i < rows; ++i) {
    if (crow[i + 1] < crow[i])
      refuse(fmt::format("layout: row {}: crow descends from {} to {}", i, crow[i], crow[i + 1]));
    if (crow[i + 1] > std::ssize(col))
      refuse(fmt::format("layout: row {}: crow is {}, but col has {} entries", i, crow[i + 1], col.size()));
    std::int32_t previous = -1;
    for (std::int32_t k = crow[i]; k < crow[i + 1]; ++k) {
      if (col[k] < 0 || col[k] >= cols)
        refuse(
            fmt::format("layout: row {}: column {} is out of range; expected 0 to {}", i, col[k], cols - 1));
      if (col[k] == previous) refuse(fmt::format("layout: row {}: column {} appears twice", i, col[k]));
      if (col[k] < previous)
        refuse(fmt::format("layout: row {}: column {} follows {}; sort the columns within each row", i,
                           col[k], previous));
      previous = col[k];
    }
  }
  if (crow.back() != std::ssize(col))
    refuse(fmt::format("layout: crow ends at {}, but col has {} entries", crow.back(), col.size()));
}

/// XXH3-128 over little-endian 32-bit words, in any byte order of this machine.
class WordHash {
 public:
  WordHash() : state_(XXH3_createState()) {
    if (!state_ || XXH3_128bits_reset(state_.get()) != XXH_OK)
      throw Error(ErrorKind::internal, "layout: no memory for a digest");
  }

  void add(std::span<const std::int32_t> words) {
    if constexpr (std::endian::native == std::endian::little) {
      XXH3_128bits_update(state_.get(), words.data(), words.size_bytes());
    } else {
      for (const std::int32_t word : words) {
        const auto bits = static_cast<std::uint32_t>(word);
        const std::uint8_t bytes[4] = {static_cast<std::uint8_t>(bits), static_cast<std::uint8_t>(bits >> 8),
                                       static_cast<std::uint8_t>(bits >> 16),
                                       static_cast<std::uint8_t>(bits >> 24)};
        XXH3_128bits_update(state_.get(), bytes, sizeof bytes);
      }
    }
  }

  [[nodiscard]] Digest digest() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    Digest digest;
    std::copy(std::begin(canonical.digest), std::end(canonical.digest), digest.bytes.begin());
    return digest;
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

/// The canonical form: rows, cols, crow, col. The lengths follow from the values before them.
Digest digest_of(std::int32_t rows, std::int32_t cols, const Indices& crow, const Indices& col) {
  WordHash hash;
  const std::int32_t extents[] = {rows, cols};
  hash.add(extents);
  hash.add(crow);
  hash.add(col);
  return hash.digest();
}

LayoutStatistics statistics_of(std::int32_t rows, std::int32_t cols, const Indices& crow,
                               const Indices& col) {
  LayoutStatistics statistics;
  statistics.blocks = std::ssize(col);
  const double blocks = static_cast<double>(col.size());
  if (rows > 0 && cols > 0)
    statistics.density = blocks / (static_cast<double>(rows) * static_cast<double>(cols));
  const double mean = rows > 0 ? blocks / rows : 0;
  double squares = 0;
  for (std::int32_t i = 0; i < rows; ++i) {
    const std::int32_t length = crow[i + 1] - crow[i];
    statistics.empty_rows += length == 0;
    statistics.longest_row = std::max(statistics.longest_row, length);
    squares += (length - mean) * (length - mean);
  }
  if (rows > 0) statistics.row_deviation = std::sqrt(squares / rows);
  Indices in_col(cols);
  for (const std::int32_t j : col) ++in_col[j];
  for (const std::int32_t length : in_col) {
    statistics.empty_cols += length == 0;
    statistics.longest_col = std::max(statistics.longest_col, length);
  }
  return statistics;
}

}  // namespace

struct Layout::Grid {
  std::int32_t rows;
  std::int32_t cols;
  Indices crow;
  Indices col;
  LayoutStatistics statistics;
  Digest digest;

  Grid(std::int32_t row_count, std::int32_t col_count, Indices row_offsets, Indices columns)
      : rows(row_count),
        cols(col_count),
        crow(std::move(row_offsets)),
        col(std::move(columns)),
        statistics(statistics_of(rows, cols, crow, col)),
        digest(digest_of(rows, cols, crow, col)) {}

  struct ColumnView {
    Indices ccol;
    Indices row_of;
    Indices block_of;
  };

  /// Made at the first request, since the forward product does not need it.
  const ColumnView& columns() const {
    std::call_once(columns_once_, [this] {
      ColumnView view;
      view.ccol.resize(std::size_t(cols) + 1);
      view.row_of.resize(col.size());
      view.block_of.resize(col.size());
      for (const std::int32_t j : col) ++view.ccol[j + 1];
      for (std::int32_t j = 0; j < cols; ++j) view.ccol[j + 1] += view.ccol[j];
      Indices next(view.ccol.begin(), view.ccol.end() - 1);
      for (std::int32_t i = 0; i < rows; ++i) {
        for (std::int32_t k = crow[i]; k < crow[i + 1]; ++k) {
          const std::int32_t slot = next[col[k]]++;
          view.row_of[slot] = i;
          view.block_of[slot] = k;
        }
      }
      columns_ = std::move(view);
    });
    return columns_;
  }

  /// Made at the first request as well.
  const std::shared_ptr<const Grid>& transposed() const {
    std::call_once(transposed_once_, [this] {
      transposed_ = std::make_shared<const Grid>(cols, rows, columns().ccol, columns().row_of);
    });
    return transposed_;
  }

 private:
  mutable std::once_flag columns_once_;
  mutable ColumnView columns_;
  mutable std::once_flag transposed_once_;
  mutable std::shared_ptr<const Grid> transposed_;
};

Layout::Layout() : Layout(std::make_shared<const Grid>(0, 0, Indices{0}, Indices{})) {}

Layout::Layout(std::shared_ptr<const Grid> grid) : grid_(std::move(grid)) {}

Layout Layout::from_csr(std::int64_t rows, std::int64_t cols, std::span<const std::int32_t> crow,
                        std::span<const std::int32_t> col) {
  check_csr(rows, cols, crow, col);
  return Layout(std::make_shared<const Grid>(static_cast<std::int32_t>(rows), static_cast<std::int32_t>(cols),
                                             Indices(crow.begin(), crow.end()),
                                             Indices(col.begin(), col.end())));
}

Layout Layout::from_csr(std::int64_t rows, std::int64_t cols, std::vector<std::int32_t> crow,
                        std::vector<std::int32_t> col) {
  check_csr(rows, cols, crow, col);
  return Layout(std::make_shared<const Grid>(static_cast<std::int32_t>(rows), static_cast<std::int32_t>(cols),
                                             std::move(crow), std::move(col)));
}

Layout Layout::from_mask(std::int64_t rows, std::int64_t cols, std::span<const std::uint8_t> mask) {
  check_extent("rows", rows);
  check_extent("columns", cols);
  if (std::ssize(mask) != rows * cols)
    refuse(fmt::format("layout: the mask has {} bytes; {} × {} blocks need {}", mask.size(), rows, cols,
                       rows * cols));
  const auto blocks = std::ssize(mask) - std::count(mask.begin(), mask.end(), std::uint8_t{0});
  if (blocks > kMaxBlocks)
    refuse(fmt::format("layout: {} blocks are too many; at most {} are possible", blocks, kMaxBlocks));
  Indices crow{0};
  crow.reserve(rows + 1);
  Indices col;
  col.reserve(blocks);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j)
      if (mask[i * cols + j] != 0) col.push_back(static_cast<std::int32_t>(j));
    crow.push_back(static_cast<std::int32_t>(col.size()));
  }
  return from_csr(rows, cols, std::move(crow), std::move(col));
}

std::int32_t Layout::rows() const noexcept { return grid_->rows; }
std::int32_t Layout::cols() const noexcept { return grid_->cols; }
std::int64_t Layout::blocks() const noexcept { return std::ssize(grid_->col); }
std::span<const std::int32_t> Layout::crow() const noexcept { return grid_->crow; }
std::span<const std::int32_t> Layout::col() const noexcept { return grid_->col; }

std::span<const std::int32_t> Layout::row(std::int32_t row) const noexcept {
  const std::int32_t begin = grid_->crow[row];
  return col().subspan(begin, grid_->crow[row + 1] - begin);
}

std::span<const std::int32_t> Layout::ccol() const { return grid_->columns().ccol; }
std::span<const std::int32_t> Layout::row_of() const { return grid_->columns().row_of; }
std::span<const std::int32_t> Layout::block_of() const { return grid_->columns().block_of; }

Layout Layout::diagonal(std::span<const Layout> parts) {
  if (parts.empty()) refuse("layout: a diagonal of no parts; one or more would work");
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t blocks = 0;
  for (const Layout& part : parts) {
    rows += part.rows();
    cols += part.cols();
    blocks += part.blocks();
  }
  check_extent("rows", rows);
  check_extent("columns", cols);
  if (blocks > kMaxBlocks)
    refuse(fmt::format("layout: {} blocks are too many; at most {} are possible", blocks, kMaxBlocks));
  Indices crow{0};
  crow.reserve(static_cast<std::size_t>(rows + 1));
  Indices col;
  col.reserve(static_cast<std::size_t>(blocks));
  std::int32_t first_col = 0;
  for (const Layout& part : parts) {
    const auto first_block = static_cast<std::int32_t>(col.size());
    for (const std::int32_t end : part.crow().subspan(1)) crow.push_back(first_block + end);
    for (const std::int32_t j : part.col()) col.push_back(first_col + j);
    first_col += part.cols();
  }
  return from_csr(rows, cols, std::move(crow), std::move(col));
}

Layout Layout::transposed() const { return Layout(grid_->transposed()); }

bool Layout::contains(std::int32_t row, std::int32_t col) const noexcept {
  if (row < 0 || row >= rows()) return false;
  const auto present = this->row(row);
  return std::binary_search(present.begin(), present.end(), col);
}

const LayoutStatistics& Layout::statistics() const noexcept { return grid_->statistics; }
const Digest& Layout::digest() const noexcept { return grid_->digest; }

}  // namespace sparsekiln

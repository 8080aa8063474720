#include "compiler/layout_file/sink.h"

#include <cstdint>

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln::layout_file {

void check_dense(const Layout& layout, std::string_view format) {
  constexpr std::int64_t kMostCells = std::int64_t{1} << 32;
  const std::int64_t cells = std::int64_t{layout.rows()} * layout.cols();
  if (cells <= kMostCells) return;
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format(
          "a layout of {} × {} blocks would take {} bytes as {}, more than {}; .mtx and .smtx hold only "
          "the present blocks",
          layout.rows(), layout.cols(), cells, format, kMostCells));
}

}  // namespace sparsekiln::layout_file

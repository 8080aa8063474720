#include "compiler/tap_file.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sparsekiln/error.h>
#include <sparsekiln/layout.h>
#include <sparsekiln/printable.h>

#include "compiler/layout_file/disk.h"
#include "compiler/layout_file/npy.h"
#include "compiler/layout_file/text.h"

namespace sparsekiln {
namespace {

using layout_file::NonZeros;
using Shape = std::vector<std::int64_t>;

NonZeros parse_lines(std::string_view text, std::string_view name) {
  const Layout grid = layout_file::parse_text(text, name);
  NonZeros result{{grid.rows(), grid.cols()}, {}};
  if (grid.rows() == 1) result.shape.erase(result.shape.begin());
  for (std::int32_t row = 0; row < grid.rows(); ++row) {
    const auto begin = static_cast<std::ptrdiff_t>(result.elements.size());
    result.elements.resize(result.elements.size() + static_cast<std::size_t>(grid.cols()));
    for (const std::int32_t col : grid.row(row))
      result.elements[static_cast<std::size_t>(begin + col)] = true;
  }
  return result;
}

/// The readers of layout files call it one.
NonZeros parse(const std::filesystem::path& file, std::string_view content) {
  constexpr std::string_view kLayout = "layout";
  try {
    if (file.extension() == ".npy")
      return layout_file::parse_npy_array(std::as_bytes(std::span(content)), file.string());
    return parse_lines(content, file.string());
  } catch (const Error& error) {
    std::string_view what = error.what();
    if (what.starts_with(kLayout)) what.remove_prefix(kLayout.size());
    throw Error(error.kind(), fmt::format("taps{}", what));
  }
}

/// `shape`, or with another axis in front.
bool is_or_follows(const Shape& wanted, const Shape& shape) {
  return shape == wanted || (!shape.empty() && Shape(shape.begin() + 1, shape.end()) == wanted);
}

}  // namespace

Convolution with_taps_of(const std::filesystem::path& file, Convolution convolution) {
  if (!convolution.tap_mask.empty())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("taps of '{}', and in the text of the convolution; one of them would work",
                            printable(file.string())));
  NonZeros mask = parse(file, layout_file::read_file(file));
  const Shape flat{convolution.taps()};
  const Shape kernel(convolution.kernel.end() - convolution.dimensions, convolution.kernel.end());
  if (!is_or_follows(flat, mask.shape) && !is_or_follows(kernel, mask.shape))
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("taps file '{}': its shape is [{}]; [{}], [{}], or one of them with an axis of blocks "
                    "in front, would work",
                    printable(file.string()), fmt::join(mask.shape, ", "), convolution.taps(),
                    fmt::join(kernel, ", ")));
  convolution.tap_mask = std::move(mask.elements);
  validate(convolution);
  return convolution;
}

}  // namespace sparsekiln

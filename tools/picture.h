#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <sparsekiln/layout.h>

namespace sparsekiln::tools {

/// A greyscale image, row-major from the top; 255 is white.
struct Picture {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::vector<std::uint8_t> pixels;
};

/// Present blocks dark on white. A small grid is enlarged to some 1024 pixels; in one of more than `longest`
/// rows or columns a pixel stands for several blocks, and is the darker the more of them are present.
[[nodiscard]] Picture picture_of(const Layout& layout, std::int32_t longest = 2048);

/// The picture as a PNG file's bytes.
[[nodiscard]] std::vector<std::byte> encode_png(const Picture& picture);

}  // namespace sparsekiln::tools

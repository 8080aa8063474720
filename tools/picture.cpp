#include "tools/picture.h"

#include <algorithm>
#include <cmath>

#include <sparsekiln/error.h>

#include "compiler/layout_picture.h"

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#define STBI_WRITE_NO_STDIO
#include <stb_image_write.h>

namespace sparsekiln::tools {
namespace {

constexpr std::int32_t kPleasantSide = 1024;
constexpr std::int32_t kLargestCell = 32;
constexpr double kInk = 223;  // of 255; the rest is kept apart from black for viewers with a dark background
/// The least darkness of a pixel with a present block: a single block among thousands must stay visible.
constexpr double kFaintest = 0.25;

std::uint8_t shade(float share) {
  if (share <= 0) return 255;
  const double ink = kFaintest + (1 - kFaintest) * std::min(1.0, double{share});
  return static_cast<std::uint8_t>(std::lround(255 - ink * kInk));
}

}  // namespace

Picture picture_of(const Layout& layout, std::int32_t longest) {
  const std::int32_t rows = std::max(layout.rows(), 1);
  const std::int32_t cols = std::max(layout.cols(), 1);
  const std::int32_t side = std::max(rows, cols);
  const std::int32_t cell = std::clamp(kPleasantSide / side, 1, kLargestCell);
  const auto pixels = [&](std::int32_t blocks) {
    if (side <= longest) return blocks * cell;
    return std::max(1, static_cast<std::int32_t>(std::int64_t{blocks} * longest / side));
  };
  const Coverage seen = coverage(layout, pixels(cols), pixels(rows));
  Picture picture{static_cast<std::uint32_t>(seen.width), static_cast<std::uint32_t>(seen.height), {}};
  picture.pixels.reserve(seen.cells.size());
  for (const float share : seen.cells) picture.pixels.push_back(shade(share));
  return picture;
}

std::vector<std::byte> encode_png(const Picture& picture) {
  std::vector<std::byte> file;
  const auto append = [](void* to, void* data, int size) {
    auto& bytes = *static_cast<std::vector<std::byte>*>(to);
    const auto* begin = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), begin, begin + size);
  };
  const auto width = static_cast<int>(picture.width);
  if (stbi_write_png_to_func(append, &file, width, static_cast<int>(picture.height), 1, picture.pixels.data(),
                             width) == 0)
    throw Error(ErrorKind::internal, "the picture cannot be encoded");
  return file;
}

}  // namespace sparsekiln::tools

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace sparsekiln {

/// The geometry of a convolution whose features are sparse by blocks:
///
///   y[n, p, k] = Σ over taps r and features c of  x[n, p·stride + r·dilation - padding_before, c] · W[k, c,
///   r]
///
/// where p and r are positions in 1, 2 or 3 dimensions, and x is 0 outside. Each block of the layout is there
/// for all taps: values are [blocks, taps, block_out, block_in], taps in row-major order of the kernel.
/// Activations are channels-last: the rows of x are the positions of an image, in row-major order, image by
/// image.
///
/// Depth, height and width, in this order; of fewer dimensions the last ones, and the others are 1 wide.
struct Convolution {
  using Extents = std::array<std::int32_t, 3>;

  std::int32_t dimensions = 0;  ///< 1, 2 or 3; 0: no convolution, and nothing else counts
  Extents kernel{1, 1, 1};
  Extents stride{1, 1, 1};
  Extents dilation{1, 1, 1};
  Extents padding_before{0, 0, 0};
  Extents padding_after{0, 0, 0};
  Extents input{1, 1, 1};  ///< of x

  [[nodiscard]] bool present() const { return dimensions != 0; }
  [[nodiscard]] std::int32_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  /// Those of y.
  [[nodiscard]] Extents output() const;
  /// The rows of x, and of y, of one image.
  [[nodiscard]] std::int64_t input_positions() const;
  [[nodiscard]] std::int64_t output_positions() const;
  friend bool operator==(const Convolution&, const Convolution&) = default;
};

/// "none", or words in any order: `kernel=3x3 input=32x32`, and where they are not 1 and 0, `stride=2`,
/// `dilation=2`, and `padding=1`, `padding=0:1x1:2` (before and after), `padding=same` or `padding=valid`.
/// One number is that of all dimensions, of which there are as many as the longest word has. "same" keeps the
/// extents of the input, with one more position after than before where their number is odd; its stride is 1.
/// Throws `invalid_argument` for what is no convolution.
[[nodiscard]] Convolution parse_convolution(std::string_view text);
[[nodiscard]] std::string to_string(const Convolution& convolution);

/// Throws `invalid_argument` unless it makes sense: a kernel and an input of 1 or more, strides and dilations
/// of 1 or more, paddings of 0 or more, at least one output position in each dimension, and at most 2^30
/// positions and 2^15 taps.
void validate(const Convolution& convolution);

}  // namespace sparsekiln

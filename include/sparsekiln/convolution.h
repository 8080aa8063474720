#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparsekiln {

/// The geometry of a convolution whose features are sparse by blocks:
///
///   y[n, p, k] = Σ over taps r and features c of  x[n, p·stride + r·dilation - padding_before, c] · W[k, c,
///   r]
///
/// where p and r are positions in 1, 2 or 3 dimensions, and x is 0 outside. Each block of the layout is there
/// for all taps: values are [blocks, taps, block_out, block_in], taps in row-major order of the kernel. With
/// a mask a block is there for some taps, and values are [such pairs, block_out, block_in] in the same order.
/// Activations are channels-last: the rows of x are the positions of an image, in row-major order, image by
/// image. Feature-major they are channels-first: images are [features, positions], at any distance.
///
/// A transposed convolution is the adjoint of one of the same layout and values: rows of the layout, and of
/// its blocks, are x's features k, and columns are y's features c:
///
///   y[n, q, c] = Σ over features k, and taps r and positions p with q = p·stride + r·dilation -
///   padding_before, of  x[n, p, k] · W[k, c, r]
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
  Extents input{1, 1, 1};  ///< of x, or the most that x has
  /// Launches give x's extents, up to `input` each; only features and taps are baked.
  bool dynamic = false;
  bool transposed = false;
  Extents output_padding{0, 0, 0};  ///< of a transposed one: how many more positions y has at its ends
  /// Which taps there are: of all blocks, [taps], or of each, [blocks, taps]; empty: all.
  std::vector<bool> tap_mask;

  [[nodiscard]] bool present() const { return dimensions != 0; }
  [[nodiscard]] std::int32_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  /// Whether a block of the layout has a tap.
  [[nodiscard]] bool has_tap(std::int64_t block, std::int32_t tap) const;
  /// Whether any block does.
  [[nodiscard]] bool uses_tap(std::int32_t tap) const;
  /// The taps that every block has; 0 where blocks have masks of their own.
  [[nodiscard]] std::int32_t taps_of_block() const;
  /// Pairs of a block and a tap that it has, of so many blocks.
  [[nodiscard]] std::int64_t present_taps(std::int64_t blocks) const;
  /// The extents of y: of `input`, and of an x of other extents.
  [[nodiscard]] Extents output() const { return output(input); }
  [[nodiscard]] Extents output(const Extents& of_input) const;
  /// Whether a launch may have an x of these extents: those of `input`, or up to them where it is dynamic, as
  /// long as each dimension of y has an output.
  [[nodiscard]] bool takes(const Extents& of_input) const;
  /// The same convolution of an x of these extents and no others. Throws `invalid_argument` where it takes no
  /// such x.
  [[nodiscard]] Convolution at(const Extents& of_input) const;
  /// The rows of x, and of y, of one image: of the largest one where it is dynamic.
  [[nodiscard]] std::int64_t input_positions() const;
  [[nodiscard]] std::int64_t output_positions() const;
  friend bool operator==(const Convolution&, const Convolution&) = default;
};

/// "none", or words in any order: `kernel=3x3 input=32x32`, and where they are not 1 and 0, `stride=2`,
/// `dilation=2`, and `padding=1`, `padding=0:1x1:2` (before and after), `padding=same` or `padding=valid`.
/// One number is that of all dimensions, of which there are as many as the longest word has. "same" keeps the
/// extents of the input, with one more position after than before where their number is odd; its stride is 1.
/// A transposed one has the word `transposed`, and may have `output-padding=1`. A dynamic one has
/// `input=up-to:64x64`. A mask is `taps=110100`, with as many digits as taps, or as taps of all blocks.
/// Throws `invalid_argument` for what is no convolution.
[[nodiscard]] Convolution parse_convolution(std::string_view text);
[[nodiscard]] std::string to_string(const Convolution& convolution);
/// Extents such as `24x20`, one number being that of all dimensions. Throws `invalid_argument`.
[[nodiscard]] Convolution::Extents parse_extents(std::string_view text, std::int32_t dimensions);

/// Throws `invalid_argument` unless it makes sense: a kernel and an input of 1 or more, strides and dilations
/// of 1 or more, paddings of 0 or more, at least one output position in each dimension, at most 2^30
/// positions and 2^15 taps, strides that multiplied are at most 4096, at most 2^31 points (2 · (1 + extent)
/// of each dimension, padding included, multiplied), an output padding that is less than the stride or the
/// dilation, and a mask of whole kernels with one tap or more.
void validate(const Convolution& convolution);

/// Which of its taps each output of a convolution finds outside of x, that is in its padding. Outputs with
/// the same set of such taps are in one *situation*; taps that no block has are left out. A tap of a
/// transposed convolution is outside where in some dimension it meets a position before or after x's (not one
/// between two strides, which meets none).
struct EdgeSituations {
  std::int32_t count = 0;  ///< numbered in the order in which they first appear
  /// For each position of an image of y, in row-major order.
  std::vector<std::int32_t> of_position;
};
/// Throws `invalid_argument` for what is no convolution, and where there may be more than 4096 situations.
[[nodiscard]] EdgeSituations edge_situations(const Convolution& convolution);

}  // namespace sparsekiln

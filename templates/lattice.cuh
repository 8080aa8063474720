#pragma once

#include "extents.cuh"
#include "schedule.cuh"

// The points of a convolution (compiler/correlation.h) as the rows of a product: a point of a lattice is a
// row, image by image. Point i reads x at i · in_step, moved by a tap, and y is at i · out_step + class.

namespace sparsekiln {

/// Config names, each with _d, _h and _w for depth, height and width: in_step, out_step, kernel, dilation,
/// padding (in front of x), and, unless they come with the launch, points, input (the extents of an image of
/// x) and output (of y); and mirrored: whether it is the gradient by the input.
template <class Config>
struct Lattice {
  enum : int {
    kTaps = Config::kernel_d * Config::kernel_h * Config::kernel_w,
    kBits = Config::kernel_d + Config::kernel_h + Config::kernel_w,
    kClasses = Config::out_step_d * Config::out_step_h * Config::out_step_w,
  };
  enum : bool {
    kScatters = kClasses > 1,  ///< otherwise the rows of y are the points
  };
  using Extents = Images<Config>;
  /// A bit for each position of the kernel in each dimension, from depth to width.
  using Mask = typename Select<(kBits <= 32), unsigned, unsigned long long>::Type;

  /// A point, a position, or the place of a tap in the kernel.
  struct Place {
    int image, d, h, w;
  };
  /// The facts of a row of a tile that are known before its taps are.
  struct Row {
    int position;  ///< of x, where a tap of displacement 0 reads
    Mask inside;   ///< positions of the kernel that read x and not its padding
  };
  /// What a block column of W means.
  struct Tap {
    int column;        ///< of blocks of features
    int displacement;  ///< positions of x
    Mask needs;        ///< the tap's position in each dimension
  };

  /// Where one tap moves a point, in each dimension.
  struct Shift {
    int d, h, w;
  };

  __device__ static __forceinline__ Row row(int point, bool exists, const Extents& images) {
    if (!exists) return {0, 0};
    const Place at = place(point, images);
    const int d = at.d * Config::in_step_d;
    const int h = at.h * Config::in_step_h;
    const int w = at.w * Config::in_step_w;
    Mask inside = 0;
#pragma unroll
    for (int tap = 0; tap < Config::kernel_d; ++tap) inside |= bit(tap, d + offset_d(tap), images.input_d());
#pragma unroll
    for (int tap = 0; tap < Config::kernel_h; ++tap)
      inside |= bit(Config::kernel_d + tap, h + offset_h(tap), images.input_h());
#pragma unroll
    for (int tap = 0; tap < Config::kernel_w; ++tap)
      inside |= bit(Config::kernel_d + Config::kernel_h + tap, w + offset_w(tap), images.input_w());
    return {position_of_x({at.image, d, h, w}, images), inside};
  }
  __device__ static __forceinline__ Tap tap(int column, const Extents& images) {
    const Place of = in_kernel(column % kTaps);
    const Shift by = shift(column);
    return {column / kTaps, (by.d * images.input_h() + by.h) * images.input_w() + by.w,
            Mask{1} << of.d | Mask{1} << (Config::kernel_d + of.h) |
                Mask{1} << (Config::kernel_d + Config::kernel_h + of.w)};
  }
  __device__ static __forceinline__ Shift shift(int column) {
    const Place of = in_kernel(column % kTaps);
    return {offset_d(of.d), offset_h(of.h), offset_w(of.w)};
  }
  /// The position of x that a point reads, moved so; -1: none.
  __device__ static __forceinline__ int position(int point, const Shift& by, const Extents& images) {
    const Place at = place(point, images);
    const int d = at.d * Config::in_step_d + by.d;
    const int h = at.h * Config::in_step_h + by.h;
    const int w = at.w * Config::in_step_w + by.w;
    const bool inside =
        within(d, images.input_d()) && within(h, images.input_h()) && within(w, images.input_w());
    return inside ? position_of_x({at.image, d, h, w}, images) : -1;
  }
  __device__ static __forceinline__ bool reads(const Row& row, const Tap& tap) {
    return (row.inside & tap.needs) == tap.needs;
  }
  /// The row of y of a point and a class; -1: none.
  __device__ static __forceinline__ int row_of_y(int point, int of_class, const Extents& images) {
    const Place at = place(point, images);
    const int d = at.d * Config::out_step_d + of_class / (Config::out_step_h * Config::out_step_w);
    const int h = at.h * Config::out_step_h + of_class / Config::out_step_w % Config::out_step_h;
    const int w = at.w * Config::out_step_w + of_class % Config::out_step_w;
    if (d >= images.output_d() || h >= images.output_h() || w >= images.output_w()) return -1;
    return ((at.image * images.output_d() + d) * images.output_h() + h) * images.output_w() + w;
  }

 private:
  __device__ static __forceinline__ Place place(int point, const Extents& images) {
    const int w = point % images.points_w();
    const int line = point / images.points_w();
    const int h = line % images.points_h();
    const int plane = line / images.points_h();
    return {plane / images.points_d(), plane % images.points_d(), h, w};
  }
  __device__ static __forceinline__ Place in_kernel(int tap) {
    return {0, tap / (Config::kernel_h * Config::kernel_w), tap / Config::kernel_w % Config::kernel_h,
            tap % Config::kernel_w};
  }
  __device__ static __forceinline__ int position_of_x(const Place& at, const Extents& images) {
    return ((at.image * images.input_d() + at.d) * images.input_h() + at.h) * images.input_w() + at.w;
  }
  __device__ static __forceinline__ Mask bit(int number, int coordinate, int extent) {
    return within(coordinate, extent) ? Mask{1} << number : Mask{0};
  }
  __device__ static __forceinline__ bool within(int coordinate, int extent) {
    return static_cast<unsigned>(coordinate) < static_cast<unsigned>(extent);
  }
  /// Where a tap reads, from i · in_step on. The gradient's is known where the tap belongs to the class:
  /// residue - (tap · dilation - padding) is a multiple of the stride then.
  template <int kDilation, int kPadding, int kStride>
  __device__ static __forceinline__ int offset(int tap) {
    const int back = kPadding - tap * kDilation;
    if (!Config::mirrored) return -back;
    return back > 0 ? (back - 1) / kStride + 1 : -(-back / kStride);  // the quotient, rounded up
  }
  __device__ static __forceinline__ int offset_d(int tap) {
    return offset<Config::dilation_d, Config::padding_d, Config::out_step_d>(tap);
  }
  __device__ static __forceinline__ int offset_h(int tap) {
    return offset<Config::dilation_h, Config::padding_h, Config::out_step_h>(tap);
  }
  __device__ static __forceinline__ int offset_w(int tap) {
    return offset<Config::dilation_w, Config::padding_w, Config::out_step_w>(tap);
  }
};

/// The run of positions of one dimension that has `position`: how many of kCount runs begin up to there.
template <class Edges, int kFirst, int kCount>
__device__ __forceinline__ int run_of(int position) {
  int run = 0;
#pragma unroll 8
  for (int i = 0; i < kCount; ++i) run += position >= Edges::begin(kFirst + i) ? 1 : 0;
  return run;
}

/// The edge situation of a row of y (compiler/edge_runs.h). Edges names output_d, _h and _w, the extents of
/// y; begins_d, _h and _w, how many begins of runs there are; and has begin(i), all of them from depth to
/// width, and situation(i), by runs.
template <class Edges>
__device__ __forceinline__ int edge_situation(int row) {
  enum : int {
    kHeight = Edges::begins_d,
    kWidth = kHeight + Edges::begins_h,
  };
  const int line = row / Edges::output_w;
  const int d = run_of<Edges, 0, Edges::begins_d>(line / Edges::output_h % Edges::output_d);
  const int h = run_of<Edges, kHeight, Edges::begins_h>(line % Edges::output_h);
  const int w = run_of<Edges, kWidth, Edges::begins_w>(row % Edges::output_w);
  return Edges::situation((d * (Edges::begins_h + 1) + h) * (Edges::begins_w + 1) + w);
}

/// Rows of what is computed for a batch of n: points, for a convolution.
template <class Config>
__device__ __forceinline__ int rows_of(int n, const Images<Config>& images) {
  return n * images.rows();
}

}  // namespace sparsekiln

#pragma once

// The extents of a convolution's images: constants of its code, or numbers of the launch.

namespace sparsekiln {

/// What the launch of a dynamic convolution says of its images: depth, height and width of what taps displace
/// and of what they do not (LaunchImages in compiler/launch_operands.h).
struct ImageExtents {
  int input[3];
  int output[3];
};

/// Config names those of a lattice (lattice.cuh) as constants.
template <class Config, bool kDynamic = Config::dynamic_images>
struct Images {
  __device__ __forceinline__ explicit Images(const ImageExtents&) {}
  __device__ static __forceinline__ int input_d() { return Config::input_d; }
  __device__ static __forceinline__ int input_h() { return Config::input_h; }
  __device__ static __forceinline__ int input_w() { return Config::input_w; }
  __device__ static __forceinline__ int output_d() { return Config::output_d; }
  __device__ static __forceinline__ int output_h() { return Config::output_h; }
  __device__ static __forceinline__ int output_w() { return Config::output_w; }
  __device__ static __forceinline__ int points_d() { return Config::points_d; }
  __device__ static __forceinline__ int points_h() { return Config::points_h; }
  __device__ static __forceinline__ int points_w() { return Config::points_w; }
  /// Rows of the product for each of the batch.
  __device__ static __forceinline__ int rows() { return Config::rows_of_one; }
};

template <class Config>
struct Images<Config, true> {
  ImageExtents extents;

  __device__ __forceinline__ explicit Images(const ImageExtents& launched) : extents(launched) {}
  __device__ __forceinline__ int input_d() const { return extents.input[0]; }
  __device__ __forceinline__ int input_h() const { return extents.input[1]; }
  __device__ __forceinline__ int input_w() const { return extents.input[2]; }
  __device__ __forceinline__ int output_d() const { return extents.output[0]; }
  __device__ __forceinline__ int output_h() const { return extents.output[1]; }
  __device__ __forceinline__ int output_w() const { return extents.output[2]; }
  __device__ __forceinline__ int points_d() const { return points<Config::out_step_d>(output_d()); }
  __device__ __forceinline__ int points_h() const { return points<Config::out_step_h>(output_h()); }
  __device__ __forceinline__ int points_w() const { return points<Config::out_step_w>(output_w()); }
  __device__ __forceinline__ int rows() const { return points_d() * points_h() * points_w(); }

 private:
  template <int kStep>
  __device__ static __forceinline__ int points(int output) {
    return (output + kStep - 1) / kStep;
  }
};

}  // namespace sparsekiln

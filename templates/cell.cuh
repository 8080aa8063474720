#pragma once

#include "activation.cuh"
#include "output.cuh"

// The cell of an LSTM as an epilogue: the formulas stand at Epilogue in include/sparsekiln/problem.h.
// Matrices of four gates hold i, f, g and o one after the other, `features` each.

namespace sparsekiln {

/// LaunchCell of compiler/launch_operands.h.
struct CellMatrices {
  struct Matrix {
    void* data;
    long long stride;  ///< elements from a batch row (feature-major: feature) to the next
  };
  Matrix projection;
  Matrix activations;
  Matrix c_before;
  Matrix c;
  Matrix dc;
  Matrix dc_before;
  long long features;
};

/// Moves all matrices to the batch row `rows` further on, the first of a batch tile.
template <class Config>
__device__ __forceinline__ void move_to_tile(CellMatrices& cell, long long rows) {
  using Element = typename Config::Output::Element;
  const auto move = [&](CellMatrices::Matrix& matrix, int element) {
    matrix.data =
        static_cast<char*>(matrix.data) + (Config::feature_major ? rows : rows * matrix.stride) * element;
  };
  if constexpr (Config::weights > 1) move(cell.projection, sizeof(Element));
  if constexpr (Config::weights == 1 || Config::keeps) move(cell.activations, sizeof(Element));
  move(cell.c_before, sizeof(float));
  move(cell.c, sizeof(float));
  if constexpr (Config::weights == 1) {
    move(cell.dc, sizeof(float));
    move(cell.dc_before, sizeof(float));
  }
}

/// The cells of kRun consecutive outputs of one batch row: everything that they read and write besides x and
/// W.
template <class Config, int kRun>
struct Cells {
  using Output = typename Config::Output;
  template <class Type>
  using Pointer = typename Type::Element*;
  const CellMatrices& operands;
  int n;
  long long feature;  ///< the first one

  __device__ __forceinline__ long long place(long long of, long long stride) const {
    return Config::feature_major ? of * stride + n : n * stride + of;
  }
  template <class Type>
  __device__ __forceinline__ Pointer<Type> at(const CellMatrices::Matrix& matrix, int gate = 0) const {
    return static_cast<Pointer<Type>>(matrix.data) + place(gate * operands.features + feature, matrix.stride);
  }
  /// Reads or writes kRun elements, as many at once as the alignment of activations allows.
  template <class Type>
  __device__ static __forceinline__ void read(const typename Type::Element* from, float (&run)[kRun]) {
    enum : int { kPiece = piece<Type>() };
#pragma unroll
    for (int first = 0; first < kRun; first += kPiece) {
      float values[kPiece];
      Type::read(from + first, values);
#pragma unroll
      for (int v = 0; v < kPiece; ++v) run[first + v] = values[v];
    }
  }
  template <class Type>
  __device__ static __forceinline__ void write(Pointer<Type> to, const float (&run)[kRun]) {
    enum : int { kPiece = piece<Type>() };
#pragma unroll
    for (int first = 0; first < kRun; first += kPiece) {
      float values[kPiece];
#pragma unroll
      for (int v = 0; v < kPiece; ++v) values[v] = run[first + v];
      Type::write(to + first, values);
    }
  }
  template <class Type>
  __device__ static constexpr int piece() {
    constexpr int kAligned = Config::alignment / int{sizeof(typename Type::Element)};
    return kRun < kAligned ? kRun : kAligned > 0 ? kAligned : 1;
  }

  /// Makes c and h from the four sums of each output.
  __device__ __forceinline__ void forward(float (&z)[4][kRun], Pointer<Output> y, long long y_stride) const {
    float c[kRun];
    float h[kRun];
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) {
      float projection[kRun];
      read<Output>(at<Output>(operands.projection, gate), projection);
#pragma unroll
      for (int v = 0; v < kRun; ++v) {
        z[gate][v] += projection[v];
        z[gate][v] = gate == 2 ? Tanh::apply(z[gate][v]) : Sigmoid::apply(z[gate][v]);
      }
      if constexpr (Config::keeps) write<Output>(at<Output>(operands.activations, gate), z[gate]);
    }
    read<F32Output>(at<F32Output>(operands.c_before), c);
#pragma unroll
    for (int v = 0; v < kRun; ++v) {
      c[v] = __fmaf_rn(z[1][v], c[v], z[0][v] * z[2][v]);
      h[v] = z[3][v] * Tanh::apply(c[v]);
    }
    write<F32Output>(at<F32Output>(operands.c), c);
    write<Output>(y + place(feature, y_stride), h);
  }

  /// Makes the gradients of z, which it writes to y, from those of h.
  __device__ __forceinline__ void backward(const float (&dh)[kRun], Pointer<Output> y,
                                           long long y_stride) const {
    float gate[4][kRun];
    float c[kRun];
    float c_before[kRun];
    float dc[kRun];
#pragma unroll
    for (int k = 0; k < 4; ++k) read<Output>(at<Output>(operands.activations, k), gate[k]);
    read<F32Output>(at<F32Output>(operands.c), c);
    read<F32Output>(at<F32Output>(operands.c_before), c_before);
    read<F32Output>(at<F32Output>(operands.dc), dc);
#pragma unroll
    for (int v = 0; v < kRun; ++v) {
      const float i = gate[0][v];
      const float f = gate[1][v];
      const float g = gate[2][v];
      const float o = gate[3][v];
      const float t = Tanh::apply(c[v]);
      const float d = __fmaf_rn(dh[v] * o, __fmaf_rn(-t, t, 1.0f), dc[v]);
      gate[0][v] = d * g * (i * (1.0f - i));
      gate[1][v] = d * c_before[v] * (f * (1.0f - f));
      gate[2][v] = d * i * __fmaf_rn(-g, g, 1.0f);
      gate[3][v] = dh[v] * t * (o * (1.0f - o));
      dc[v] = d * f;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) write<Output>(y + place(k * operands.features + feature, y_stride), gate[k]);
    write<F32Output>(at<F32Output>(operands.dc_before), dc);
  }
};

}  // namespace sparsekiln

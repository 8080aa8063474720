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

/// i, f, g and o of a cell, with their activations.
struct CellGates {
  float i;
  float f;
  float g;
  float o;
};
/// The activation of a gate: tanh of g, sigmoid of the others.
__device__ __forceinline__ float activate_gate(int gate, float z) {
  return gate == 2 ? Tanh::apply(z) : Sigmoid::apply(z);
}

struct CellState {
  float c;
  float h;
};
__device__ __forceinline__ CellState state_of_cell(const CellGates& gates, float c_before) {
  const float c = __fmaf_rn(gates.f, c_before, gates.i * gates.g);
  return {c, gates.o * Tanh::apply(c)};
}

/// What the gradient of a cell takes of its state.
struct CellMemory {
  float c_before;
  float c;
  float dc;
};
struct CellGradients {
  float dz[4];
  float dc_before;
};
/// The gradients of the arguments of the activations, and of c_before. `multiplier`: of g.
__device__ __forceinline__ CellGradients gradients_of_cell(const CellGates& gates, float dh,
                                                           const CellMemory& memory,
                                                           float multiplier = 1.0f) {
  const float i = gates.i;
  const float f = gates.f;
  const float g = gates.g;
  const float o = gates.o;
  const float t = Tanh::apply(memory.c);
  const float d = __fmaf_rn(dh * o, __fmaf_rn(-t, t, 1.0f), memory.dc);
  return {{d * (g * multiplier) * (i * (1.0f - i)), d * memory.c_before * (f * (1.0f - f)),
           d * i * multiplier * __fmaf_rn(-g, g, 1.0f), dh * t * (o * (1.0f - o))},
          d * f};
}

/// Moves all matrices to the batch row `rows` further on, the first of a batch tile.
template <class Config>
__device__ __forceinline__ void move_to_tile(CellMatrices& cell, long long rows) {
  using Element = typename Config::Output::Element;
  const auto move = [&](CellMatrices::Matrix& matrix, int element) {
    matrix.data =
        static_cast<char*>(matrix.data) + (Config::feature_major ? rows : rows * matrix.stride) * element;
  };
  if constexpr (Config::weights > 1) move(cell.projection, sizeof(Element));
  if constexpr (Config::weights == 1 || Config::keep) move(cell.activations, sizeof(Element));
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
  template <class Type>
  __device__ static __forceinline__ void read(const typename Type::Element* from, float (&run)[kRun]) {
    read_aligned<Type, Config::alignment>(from, run);
  }
  template <class Type>
  __device__ static __forceinline__ void write(Pointer<Type> to, const float (&run)[kRun]) {
    write_aligned<Type, Config::alignment>(to, run);
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
        z[gate][v] = activate_gate(gate, z[gate][v]);
      }
      if constexpr (Config::keep) write<Output>(at<Output>(operands.activations, gate), z[gate]);
    }
    read<F32Output>(at<F32Output>(operands.c_before), c);
#pragma unroll
    for (int v = 0; v < kRun; ++v) {
      const CellState state = state_of_cell({z[0][v], z[1][v], z[2][v], z[3][v]}, c[v]);
      c[v] = state.c;
      h[v] = state.h;
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
      const CellGradients gradients = gradients_of_cell({gate[0][v], gate[1][v], gate[2][v], gate[3][v]},
                                                        dh[v], {c_before[v], c[v], dc[v]});
#pragma unroll
      for (int k = 0; k < 4; ++k) gate[k][v] = gradients.dz[k];
      dc[v] = gradients.dc_before;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) write<Output>(y + place(k * operands.features + feature, y_stride), gate[k]);
    write<F32Output>(at<F32Output>(operands.dc_before), dc);
  }
};

}  // namespace sparsekiln

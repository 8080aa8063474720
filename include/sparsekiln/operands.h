#pragma once

#include <cstdint>
#include <span>

#include <sparsekiln/tensor_view.h>

namespace sparsekiln {

/// One step of a recurrent network: what grad_weight sums over.
struct ActivationPair {
  TensorView x;   ///< [n, in_features]
  TensorView dy;  ///< [n, out_features]
  TensorView z;   ///< [n, out_features], with Problem::derivative
};

/// The operands of a linear layer; each operation and epilogue reads its own and ignores the others.
///
///   forward      y[n, out] = x[n, in] · W[out, in]ᵀ, and what Problem::epilogue makes of it
///   grad_input   dx[n, in] = dy[n, out] · W[out, in]
///   grad_weight  dw = dy[n, out]ᵀ · x[n, in] on the blocks of the layout
///
/// Activations are [n, features], rows contiguous; feature-major [features, n], rows contiguous too. With
/// three dimensions they are batches of such matrices, of any stride: one product where they are laid out
/// like one matrix of a batch that the kernel takes, else one launch each, in order. The stride of an axis of
/// extent 1 may be any number.
///
/// The activations of a convolution are images, channels-last, [n, height, width, features] or with fewer or
/// more dimensions, or their rows, [n · height · width, features]: all at one distance from the next. With
/// ActivationOrder::feature_major they are channels-first: [n, features, height, width], or with one axis of
/// positions, [n, features, height · width]; each image is dense, at any distance from the next. The images
/// of y have the extents of Convolution::output(). Where Convolution::dynamic, x (for grad_input dx) must
/// have the axes of its extents, from which all others follow. Weights are [blocks, taps, block_out,
/// block_in], or [blocks · taps, block_out, block_in].
///
/// An output must not overlap an operand that is read. Every element of an output is written; it is read only
/// where beta != 0.
struct Operands {
  TensorView x;  ///< [n, in_features]
  /// [blocks, block_out, block_in], dense, row-major over the layout; with Epilogue::lstm, but not with
  /// layer_norm, the four weights one after the other, [4, blocks, block_out, block_in] or [4 · blocks,
  /// block_out, block_in]. Where Kernel::packed_elements() is not 0: what Kernel::pack made, as a dense view
  /// of any rank and shape with that many elements. Where the layout has no blocks it may be left out, as may
  /// v and dw.
  TensorView w;
  TensorView y;  ///< [n, out_features]; with Epilogue::layer_norm and lstm a quarter of them
  /// [n, out_features], of x's type; with Epilogue::lstm, but not with layer_norm, [n, 4 · out_features]
  TensorView dy;
  TensorView dx;        ///< [n, in_features], of y's type; with Epilogue::lstm [n, 4 · in_features]
  TensorView dw;        ///< like w, of the output type
  TensorView v;         ///< Epilogue::glu: like w
  TensorView bias;      ///< [out_features], of the output type; with Epilogue::layer_norm see `gain`
  TensorView v_bias;    ///< Epilogue::glu and bias: like bias
  TensorView residual;  ///< like y; of grad_input [n, in_features]
  /// Epilogue::lstm, of the features of y, or for grad_input of dx. Those with four gates are of the output
  /// type, the others of sum_type(dtype). c may be c_before, and dc_before may be dc.
  /// Neither this nor `activations` with layer_norm. forward: [n, 4 · features]
  TensorView projection;
  TensorView activations;  ///< [n, 4 · features], what `keep` stores and the gradient reads
  TensorView c_before;     ///< [n, features]
  TensorView c;            ///< [n, features], computed by forward, read by grad_input
  TensorView dc;           ///< grad_input: [n, features]
  TensorView dc_before;    ///< grad_input: [n, features], computed
  /// Epilogue::layer_norm, of the features of `sums`: of y, or for grad_input of dx, with `lstm` those of
  /// four gates. `bias` is [features], too. All are of the output type, but statistics and dnorm, which are
  /// of sum_type(dtype).
  TensorView gain;  ///< [features], dense
  TensorView sums;  ///< [n, features], computed by forward, read by grad_input
  /// [n, 2], with `lstm` [n, 8]: the mean and 1/σ of each group; as sums. Not written where there are no
  /// features.
  TensorView statistics;
  TensorView multiplier;   ///< `multiply`: [n, features], with `lstm` a quarter of them
  TensorView addend;       ///< `add`: [n, features]
  TensorView dmultiplier;  ///< grad_input with `multiply`, without `lstm`: as multiplier, computed
  TensorView daddend;      ///< grad_input with `add`: as addend, computed
  /// grad_input: [parts, 2 · features], the gradients of gain and bias, which are added to what is there:
  /// batch row r to part r mod parts. There may be any number of parts from 1 on, which is also how many the
  /// work is divided into; their sum is the gradient. The same number gives the same bits.
  TensorView dnorm;
  /// Epilogue::edge_bias: [situations, out_features], dense, of sum_type(dtype)
  TensorView edge_gain;
  TensorView edge_bias;
  TensorView row_scale;      ///< Epilogue::row_scale: [block rows of the layout], float32
  TensorView v_row_scale;    ///< Epilogue::row_scale and glu: like row_scale
  TensorView z;              ///< Problem::derivative: like dy
  TensorView block_scales;   ///< [blocks of the layout], of sum_type(dtype)
  TensorView dbias;          ///< Problem::bias_gradient: [out_features], of sum_type(dtype)
  TensorView dblock_scales;  ///< Problem::block_scale_gradient: like block_scales
  /// For grad_weight, instead of x, dy and z: up to kMostPairs pairs, each with batch n, summed in this
  /// order.
  std::span<const ActivationPair> pairs = {};
  /// With Epilogue::scale. Kernels with float32 sums take the nearest floats of both numbers, which are
  /// infinite beyond the range of float.
  double alpha = 1;
  double beta = 0;
  double epsilon = 1e-5;  ///< Epilogue::layer_norm, forward: what is added to the variance
  /// At least workspace_bytes(n) bytes, aligned to 64, where n is the batch of what is launched: of all
  /// matrices where they run as one product, else of one. Its first workspace_counter_bytes() must be
  /// zero before the first launch of a kernel, and then it serves that kernel for any n that it is large
  /// enough for. Two launches that may overlap must not share it, and two kernels must not, unless those
  /// bytes are zeroed in between. Null: the kernel keeps one per stream, on the cpu one per calling thread; a
  /// launch that is captured into a graph must be given one, for that graph alone.
  void* workspace = nullptr;
  /// Bytes from `workspace` on that the launch may write. Must be given with a workspace: one of fewer bytes
  /// than workspace_bytes(n) is refused.
  std::int64_t workspace_size = 0;
  /// On the cpu: at most so many threads, the calling one included; 0: threads() of threads.h. The results
  /// have the same bits for any number.
  std::int32_t threads = 0;
  void* stream = nullptr;  ///< a CUstream (cudaStream_t); ignored on the cpu
};

}  // namespace sparsekiln

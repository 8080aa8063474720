#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <sparsekiln/convolution.h>
#include <sparsekiln/layout.h>

namespace sparsekiln {

/// Element types: IEEE 754 binary32, binary16, bfloat16, and binary64, which the cpu target alone computes
/// with; E4M3 and E5M2 (OCP 8-bit Floating Point Specification 1.0; E4M3 has no infinities), and int8, which
/// only forward products take; and int32, which is a result of int8.
enum class DType : std::uint8_t { f32, f16, bf16, f64, e4m3, e5m2, i8, i32 };
inline constexpr DType kLastDType = DType::i32;
[[nodiscard]] std::string_view name(DType type);
[[nodiscard]] std::size_t size_of(DType type);  ///< bytes of one element
/// The type in which elements are multiplied and summed: f64 for f64, f32 for all others. Block scales, dbias
/// and dblock_scales are of this type. Products of i8 are summed in int32, and their sums converted to this
/// type.
[[nodiscard]] DType sum_type(DType type);
/// The type of what is computed from operands of a type, where none is asked for: bf16 for e4m3 and e5m2,
/// i32 for i8, and the type itself for others.
[[nodiscard]] DType result_type(DType type);
[[nodiscard]] DType parse_dtype(std::string_view text);

/// What a linear layer computes. y = x·Wᵀ; dx = dy·W; dW = dyᵀ·x on present blocks.
enum class Operation : std::uint8_t { forward, grad_input, grad_weight };
[[nodiscard]] std::string_view name(Operation operation);
[[nodiscard]] Operation parse_operation(std::string_view text);

/// How float32 products are formed: as IEEE binary32, or with operands rounded to tf32.
enum class Math : std::uint8_t { ieee, tf32 };
[[nodiscard]] std::string_view name(Math math);
[[nodiscard]] Math parse_math(std::string_view text);

/// Memory order of activations: x[batch, in] or x[in, batch].
enum class ActivationOrder : std::uint8_t { batch_major, feature_major };
[[nodiscard]] std::string_view name(ActivationOrder order);
[[nodiscard]] ActivationOrder parse_activation_order(std::string_view text);

/// Activation functions. gelu is x·Φ(x), Φ the normal distribution's; gelu_tanh its approximation by tanh
/// (Hendrycks & Gimpel 2016, arXiv:1606.08415); silu is x·sigmoid(x), also called swish; hardswish is
/// x·relu6(x + 3) / 6 (Howard et al. 2019, arXiv:1905.02244); mish is x·tanh(ln(1 + e^x)) (Misra 2019,
/// arXiv:1908.08681); leaky_relu is x, or 0.01·x below 0 (Maas et al. 2013); tanh is the hyperbolic tangent;
/// sigmoid is 1 / (1 + e^-x).
enum class Activation : std::uint8_t {
  none,
  relu,
  gelu,
  gelu_tanh,
  silu,
  hardswish,
  mish,
  leaky_relu,
  tanh,
  sigmoid
};
[[nodiscard]] std::string_view name(Activation activation);
[[nodiscard]] Activation parse_activation(std::string_view text);

/// What happens to the sums before they are stored, computed in their type and rounded once to the output
/// type:
///
///   z = alpha·(x·Wᵀ) + bias                          edge_bias: alpha·(x·Wᵀ)·edge_gain[s] + edge_bias[s]
///   a = act(z)                                       glu: act(z) · (alpha·(x·Vᵀ) + v_bias)
///   y = a + residual + beta·y
///
/// `row_scale` is of e4m3, e5m2 and i8, what their elements stand for: alpha is multiplied by row_scale[r], a
/// float32 for each block row r of W, and for V by v_row_scale[r]. An i32 y takes no epilogue: it is the
/// sums.
///
/// `edge_bias` is a convolution's, instead of `bias` and not with `glu`: a gain and a bias for each output
/// feature and each situation s of an output position (edge_situations of convolution.h), so that a network
/// can tell what its padding does. `glu` is the gated linear unit and its variants (Shazeer 2020,
/// arXiv:2002.05202): SwiGLU has silu, GeGLU gelu. V is a second weight of the same layout; x is read once.
///
/// `lstm` is the cell of an LSTM (Hochreiter & Schmidhuber 1997, with forget gates; as torch.nn.LSTM has it)
/// in a linear layer with four weights of one layout, W = [W_i, W_f, W_g, W_o]: w holds them in this order,
/// and matrices of four gates, [n, 4·features], do so, too.
///
///   forward:     z = x·Wᵀ + projection;  i, f, o = sigmoid(z_i), sigmoid(z_f), sigmoid(z_o);  g = tanh(z_g)
///                c = f·c_before + i·g;  y = o·tanh(c)
///   grad_input:  dh = dy·W + residual;  d = dc + dh·o·(1 - tanh(c)²);  dc_before = d·f
///                dx = [d·g·i·(1 - i), d·c_before·f·(1 - f), d·i·(1 - g²), dh·tanh(c)·o·(1 - o)]
///   grad_weight: dw of the four weights, from dy[n, 4·features]
///
/// x is h of the step before; projection is what the step's own input gives, with all biases. `keep` also
/// stores i, f, g and o, as `activations`, which the gradient reads. grad_input goes from the gradient of z
/// in one step, dy, to that of the step before, dx, in whose cell c, c_before, activations and the residual,
/// the gradient that reaches its y otherwise, are.
///
/// `layer_norm` is layer normalisation (Ba, Kiros & Hinton 2016, arXiv:1607.06450) of what a linear layer
/// computes, over all features of a batch row, with a gain and a bias for each. `multiply` and `add` say
/// which of multiplier and addend there are; without them they are 1 and 0.
///
///   forward:     z = x·Wᵀ;  u = (z - mean(z)) / σ,  σ² = mean((z - mean(z))²) + epsilon;  v = u·gain + bias
///                y = act(v·multiplier + addend)
///   grad_input:  dh = dy·W + residual;  d = dh·act'(v·multiplier + addend);  e = d·multiplier·gain
///                dx = (e - mean(e) - u·mean(e·u)) / σ;  daddend = d;  dmultiplier = d·v
///                dnorm = dnorm + [Σ d·multiplier·u, Σ d·multiplier], sums over the batch
///
/// forward also stores z as `sums`, and mean(z) and 1/σ as `statistics`. grad_input goes from the gradient of
/// one layer's z, dy, to that of the layer's whose y was its x: sums, statistics, gain, bias, multiplier,
/// addend and activation are that layer's.
///
/// With `layer_norm` and `lstm`, each of the four gates is normalised by itself before its activation. The
/// layout of forward has the rows of all four, i, f, g and o, so w is that of an ordinary layer; y has a
/// quarter of its outputs. For grad_input, dx has the gradients of four gates for each input.
///
///   forward:     i, f, o = sigmoid(v_i), sigmoid(v_f), sigmoid(v_o);  g = tanh(v_g)·multiplier
///                c = f·c_before + i·g;  y = o·tanh(c)
struct Epilogue {
  bool scale = false;  ///< alpha and beta, given at the launch; else 1 and 0. With beta = 0 y is not read
  bool bias = false;
  Activation activation = Activation::none;
  bool glu = false;
  bool residual = false;  ///< of y's shape and type
  bool edge_bias = false;
  bool lstm = false;
  bool keep = false;
  bool layer_norm = false;
  bool multiply = false;
  bool add = false;
  bool row_scale = false;
  friend bool operator==(const Epilogue&, const Epilogue&) = default;
};
/// A part of an epilogue, by the word that names it.
struct EpiloguePart {
  std::string_view name;
  bool Epilogue::* part;
};
/// All but the activation, in the order of the formula. An activation stands before glu.
inline constexpr std::array kEpilogueParts{EpiloguePart{"scale", &Epilogue::scale},
                                           EpiloguePart{"row_scale", &Epilogue::row_scale},
                                           EpiloguePart{"bias", &Epilogue::bias},
                                           EpiloguePart{"edge_bias", &Epilogue::edge_bias},
                                           EpiloguePart{"layer_norm", &Epilogue::layer_norm},
                                           EpiloguePart{"multiply", &Epilogue::multiply},
                                           EpiloguePart{"add", &Epilogue::add},
                                           EpiloguePart{"glu", &Epilogue::glu},
                                           EpiloguePart{"lstm", &Epilogue::lstm},
                                           EpiloguePart{"keep", &Epilogue::keep},
                                           EpiloguePart{"residual", &Epilogue::residual}};
/// "none", or the parts in the order of the formula joined by "+": "scale+bias+silu+glu+residual",
/// "lstm+keep", "layer_norm+multiply+add+relu". An edge bias stands where the bias does.
[[nodiscard]] std::string to_string(const Epilogue& epilogue);
/// Reads it back; parts in any order. Throws `invalid_argument`.
[[nodiscard]] Epilogue parse_epilogue(std::string_view text);

/// Elements in one block: `out` rows (output features) × `in` columns (input features).
struct BlockShape {
  std::int32_t out = 32;
  std::int32_t in = 32;
  friend bool operator==(const BlockShape&, const BlockShape&) = default;
};
/// "32" is 32×32; "8x32" has 8 output and 32 input features. Throws `invalid_argument`.
[[nodiscard]] BlockShape parse_block_shape(std::string_view text);
[[nodiscard]] std::string to_string(BlockShape block);

/// The batch size n: fixed, or any 0 ≤ n ≤ bound.
class Batch {
 public:
  constexpr Batch(std::int64_t n)
      : bound_(n) {}  // NOLINT(google-explicit-constructor): `.batch = 64` reads well
  [[nodiscard]] static constexpr Batch up_to(std::int64_t bound) {
    Batch batch(bound);
    batch.dynamic_ = true;
    return batch;
  }
  /// The n itself where fixed, else the largest n.
  [[nodiscard]] constexpr std::int64_t bound() const noexcept { return bound_; }
  [[nodiscard]] constexpr bool dynamic() const noexcept { return dynamic_; }
  friend bool operator==(const Batch&, const Batch&) = default;

 private:
  std::int64_t bound_;
  bool dynamic_ = false;
};
/// "64", or "up-to:8192", which may be written "..8192". Throws `invalid_argument`.
[[nodiscard]] Batch parse_batch(std::string_view text);
[[nodiscard]] std::string to_string(Batch batch);

/// The most (x, dy) pairs of one launch of grad_weight.
inline constexpr std::size_t kMostPairs = 8;

/// The computation for one batch, whatever the layout.
struct Computation {
  Operation operation = Operation::forward;
  BlockShape block;
  Batch batch = 1;
  DType dtype = DType::f32;      ///< of W and what it is multiplied with (x, dy); sums are of sum_type(dtype)
  DType out_dtype = DType::f32;  ///< of what is computed (y, dx, dw): see result_type
  Math math = Math::ieee;
  ActivationOrder order = ActivationOrder::batch_major;
  bool strict_absent = false;  ///< excludes configs that merge rows by zero fill (an Inf could then spread)
  /// Gradients have `scale` alone; with `lstm` or `layer_norm`, grad_input a residual.
  Epilogue epilogue;
  /// For gradients: as it is loaded, dy is multiplied by the derivative of this function at z, in sum_type(),
  /// and rounded to dy's type. For relu z may also be y, its result.
  Activation derivative = Activation::none;
  /// Every block of W, of a convolution with all its taps, is scaled by a number of its own, in sum_type(),
  /// and rounded to W's type; where that is 0 the block is skipped, whatever it holds. For grad_weight dw is
  /// multiplied by it.
  bool block_scales = false;
  bool bias_gradient = false;  ///< grad_weight also sums dy (after `derivative`) over the batch
  /// grad_weight also sums dw, before block scales, times W over what each block scale multiplies. With
  /// grad_weight, Epilogue::scale scales all that is computed: dbias and dblock_scales too are alpha times
  /// their sums, plus beta times what they were.
  bool block_scale_gradient = false;
  /// Bytes that addresses and strides of activations are multiples of: 16, 8, 4 or 2. Less than 16 is slower.
  std::int32_t alignment = 16;
  /// A CUDA launch may begin before the one before it in its stream has ended, and reads the weight before
  /// that has: the caller promises that nothing writes the weight, bias and block scales meanwhile. sm_90 and
  /// later, not of channels-first images; otherwise launches follow one another, and `compile` clears it.
  bool overlap_launches = false;
  /// The geometry of a convolution; by default there is none. A batch is so many images, with as many rows of
  /// x and y as they have positions.
  Convolution convolution;

  /// The rows of x and of y for a batch of n, of the largest images where a convolution is dynamic.
  [[nodiscard]] std::int64_t input_rows(std::int64_t n) const {
    return convolution.present() ? n * convolution.input_positions() : n;
  }
  [[nodiscard]] std::int64_t output_rows(std::int64_t n) const {
    return convolution.present() ? n * convolution.output_positions() : n;
  }
  /// Rows of an activation that each block of values is multiplied with, for a batch of n: those of y, or of
  /// x where a convolution is transposed.
  [[nodiscard]] std::int64_t product_rows(std::int64_t n) const {
    return convolution.transposed ? input_rows(n) : output_rows(n);
  }
  /// Taps of the kernel of a convolution.
  [[nodiscard]] std::int32_t taps() const { return convolution.present() ? convolution.taps() : 1; }
  /// Weights of the layout that w holds, one after the other: four of an LSTM's cell. One where the gates are
  /// normalised, as the layout has the rows of all four.
  [[nodiscard]] std::int32_t gates_of_cell() const { return epilogue.lstm && !epilogue.layer_norm ? 4 : 1; }
  /// Groups of features that are normalised, each by itself.
  [[nodiscard]] std::int32_t normalised_groups() const {
    return epilogue.layer_norm && epilogue.lstm ? 4 : 1;
  }
  /// Blocks of values of a layout with so many blocks: one for each tap that a block has, and each weight.
  [[nodiscard]] std::int64_t weight_blocks(std::int64_t blocks) const {
    return convolution.present() ? convolution.present_taps(blocks) : blocks * gates_of_cell();
  }
  /// The type of sums of products, and of block scales, dbias and dblock_scales.
  [[nodiscard]] DType sum_type() const { return sparsekiln::sum_type(dtype); }
  /// Whether products are of float32 and must be formed in float32 arithmetic: not by tensor cores.
  [[nodiscard]] bool ieee() const { return dtype == DType::f32 && math == Math::ieee; }
  [[nodiscard]] bool feature_major() const { return order == ActivationOrder::feature_major; }
  /// A convolution whose activations are [n][features][positions], with a stride from image to image.
  [[nodiscard]] bool channels_first() const { return convolution.present() && feature_major(); }
  friend bool operator==(const Computation&, const Computation&) = default;
};

/// What to compute; everything that decides the numbers of the result, nothing that decides only its speed.
/// The rows of the layout are of y's features and its columns of x's; of a transposed convolution the other
/// way round.
struct Problem : Computation {
  Layout layout;
  /// Features where the last block row or column is partial; 0: whole blocks. Weights beyond are not used,
  /// and are zeros in dw.
  std::int64_t cut_in_features = 0;
  std::int64_t cut_out_features = 0;

  [[nodiscard]] std::int64_t in_features() const {
    return cut_in_features != 0 ? cut_in_features : convolution.transposed ? row_features() : col_features();
  }
  [[nodiscard]] std::int64_t out_features() const {
    return cut_out_features != 0    ? cut_out_features
           : convolution.transposed ? col_features()
                                    : row_features();
  }
  /// Multiplications and additions on present blocks for a batch of n; a GLU has two weights.
  [[nodiscard]] double flops(std::int64_t n) const {
    const double weights = epilogue.glu ? 2 : 1;
    return 2.0 * weights * static_cast<double>(weight_blocks(layout.blocks())) * block.out * block.in *
           static_cast<double>(product_rows(n));
  }

 private:
  [[nodiscard]] std::int64_t row_features() const { return std::int64_t{layout.rows()} * block.out; }
  [[nodiscard]] std::int64_t col_features() const { return std::int64_t{layout.cols()} * block.in; }
};

/// Throws `invalid_argument` unless the problem makes sense on any target: block sides in {8, 16, 32, 64,
/// 128}, at most 2^18 + blocks empty rows and columns, a batch within [0, 2^30], features that the last block
/// row and column cut, types that go together, an epilogue that the operation has. Says what would work.
void validate(const Problem& problem);

}  // namespace sparsekiln

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <sparsekiln/layout.h>

namespace sparsekiln {

/// Element types. A new one is a row in the table of compiler/problem.cpp.
enum class DType : std::uint8_t { f32, f16, bf16 };
[[nodiscard]] std::string_view name(DType type);
[[nodiscard]] std::size_t size_of(DType type);  ///< bytes of one element
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
/// "64", or "up-to:8192" ("..8192" likewise). Throws `invalid_argument`.
[[nodiscard]] Batch parse_batch(std::string_view text);
[[nodiscard]] std::string to_string(Batch batch);

/// What to compute; everything that decides the numbers of the result, nothing that decides only its speed.
struct Problem {
  Operation operation = Operation::forward;
  Layout layout;
  BlockShape block;
  Batch batch = 1;
  DType dtype = DType::f32;      ///< of W and what it is multiplied with (x, dy); accumulation is in float32
  DType out_dtype = DType::f32;  ///< of what is computed (y, dx)
  Math math = Math::ieee;
  ActivationOrder order = ActivationOrder::batch_major;
  bool strict_absent = false;  ///< excludes configs that merge rows by zero fill (an Inf could then spread)

  [[nodiscard]] std::int64_t in_features() const { return std::int64_t{layout.cols()} * block.in; }
  [[nodiscard]] std::int64_t out_features() const { return std::int64_t{layout.rows()} * block.out; }
  /// Multiplications and additions on present blocks for a batch of n.
  [[nodiscard]] double flops(std::int64_t n) const {
    return 2.0 * static_cast<double>(layout.blocks()) * block.out * block.in * static_cast<double>(n);
  }
};

/// Throws `invalid_argument` unless the problem makes sense on any target: block sides in {8, 16, 32, 64,
/// 128}, a batch within [0, 2^30], an operation, types and an order that are built. Says what would work.
void validate(const Problem& problem);

}  // namespace sparsekiln

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <sparsekiln/binary.h>
#include <sparsekiln/operands.h>

#include "compiler/launch_operands.h"

namespace sparsekiln {

// The operands of launches. All that checks, passes on, makes or names them iterates over this table: the
// check before a launch, the parameters of CUDA kernels, host inputs, the C interface and, through that,
// Python.

/// How the memory of an operand is arranged.
enum class OperandForm : std::uint8_t {
  activation,  ///< batch rows or images of features, at a stride: OperandRow::features
  weight,      ///< the blocks of the layout: see Operands::w
  dense,       ///< without gaps: OperandRow::per
};

enum class Access : std::uint8_t { read, written, added_to };

/// An element type that follows from a computation.
enum class OperandType : std::uint8_t {
  operand,  ///< Computation::dtype
  result,   ///< Computation::out_dtype
  sums,     ///< Computation::sum_type()
  f32,
};
[[nodiscard]] DType type_of(OperandType type, const Computation& what);

/// What each batch row of an activation has.
enum class Features : std::uint8_t {
  inputs,      ///< the layer's inputs
  gradients,   ///< the outputs of dy: of an LSTM's cell those of four gates
  result,      ///< the main output of a product in memory: of an LSTM's gradient those of four gates
  outputs,     ///< the features of one gate, or of all that there are, of what a product ends with
  gates,       ///< four times `outputs`
  sums,        ///< of all groups that are normalised
  statistics,  ///< two numbers of each such group
};
/// How many there are.
[[nodiscard]] std::int64_t count(Features features, const OperandContract& contract);

/// What an operand without gaps has a number for.
enum class Per : std::uint8_t {
  feature,    ///< of a main output, or of what is normalised
  gradient,   ///< the features of dy
  block_row,  ///< of y's features
  block,      ///< of the layout
  situation,  ///< rows of features, one for each edge situation of a convolution
  part,       ///< rows of what two operands by feature have, any number of them: Operands::dnorm
};

/// The extents of an operand without gaps.
struct DenseExtents {
  std::array<std::int64_t, 2> extents{};
  std::int32_t rank = 1;
  bool any_rows = false;          ///< the first extent is one or more
  std::string_view meaning = "";  ///< of the shape, which follows it in a message
};
[[nodiscard]] DenseExtents extents_of(Per per, const OperandContract& contract);

/// Where the launcher finds an operand: bytes from the beginning of LaunchOperands.
struct LaunchPlace {
  static constexpr std::uint16_t kNone = 0xffff;
  std::uint16_t address = kNone;
  std::uint16_t stride = kNone;  ///< elements from row to row, of activations and matrices
};

struct OperandRow {
  std::string_view name;  ///< of the member of Operands, in the C interface and in Python
  TensorView Operands::* view;
  OperandForm form;
  OperandType type;
  /// Whether a launch of it has this operand.
  bool (*taken)(const Computation& what);
  Access (*access)(const Computation& what);
  LaunchPlace place;                      ///< not of operands in pairs, which are in LaunchOperands::pairs
  std::optional<Argument> argument = {};  ///< none: passed with others by value, or not at all
  Features features = Features::inputs;   ///< of an activation
  Per per = Per::feature;                 ///< of a dense operand
  /// An operand that is read, in whose memory this one may be computed.
  TensorView Operands::* in_place = nullptr;
  bool multiplies = false;      ///< results, as a gain does: inputs for checks then have few zeros
  std::string_view alias = {};  ///< another name that callers may give it by; empty: there is none

  [[nodiscard]] constexpr bool is_called(std::string_view text) const {
    return name == text || (!alias.empty() && alias == text);
  }

  [[nodiscard]] bool computed(const Computation& what) const { return access(what) != Access::read; }
  /// The main output of an operation: y, dx or dw.
  [[nodiscard]] bool is_main() const;
};

/// In the order of the parameters of kernels of products, and of the results of a call.
[[nodiscard]] std::span<const OperandRow> operand_rows();
/// The operand of that name or alias. Throws `invalid_argument` that lists the names.
[[nodiscard]] const OperandRow& operand_row(std::string_view name);

/// The operands that a launch has.
class TakenOperands {
 public:
  static constexpr std::size_t kMost = 18;
  static constexpr std::size_t kMostActivations = 12;

  explicit TakenOperands(const Computation& what);
  [[nodiscard]] const OperandRow* const* begin() const { return rows_.data(); }
  [[nodiscard]] const OperandRow* const* end() const { return rows_.data() + size_; }

 private:
  std::array<const OperandRow*, kMost> rows_{};
  std::size_t size_ = 0;
};

[[nodiscard]] inline bool is_forward(const Computation& what) { return what.operation == Operation::forward; }
[[nodiscard]] inline bool is_grad_input(const Computation& what) {
  return what.operation == Operation::grad_input;
}
[[nodiscard]] inline bool is_grad_weight(const Computation& what) {
  return what.operation == Operation::grad_weight;
}
[[nodiscard]] inline bool has_cell(const Computation& what) { return what.epilogue.lstm; }
[[nodiscard]] inline bool normalises(const Computation& what) { return what.epilogue.layer_norm; }

}  // namespace sparsekiln

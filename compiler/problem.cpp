#include <sparsekiln/problem.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "compiler/activation.h"
#include "compiler/batch_bound.h"
#include "compiler/computation_fields.h"
#include "compiler/edge_runs.h"
#include "compiler/element.h"
#include "compiler/epilogue_parts.h"
#include "compiler/named.h"
#include "compiler/problem_kind.h"

namespace sparsekiln {
namespace {

constexpr std::array kOperations{Named{Operation::forward, "forward"},
                                 Named{Operation::grad_input, "grad_input"},
                                 Named{Operation::grad_weight, "grad_weight"}};

constexpr std::array kMaths{Named{Math::ieee, "ieee"}, Named{Math::tf32, "tf32"}};

constexpr std::array kOrders{Named{ActivationOrder::batch_major, "batch-major"},
                             Named{ActivationOrder::feature_major, "feature-major"}};

constexpr std::array<std::int32_t, 5> kSides{8, 16, 32, 64, 128};
/// What a schedule, its tables and a compiler take grows with the rows of a grid, which a file of a few bytes
/// may have by the million; those that have a block are no more than the blocks.
constexpr std::int64_t kMostEmpty = std::int64_t{1} << 18;
/// Steps of a convolution: blocks times taps.
constexpr std::int64_t kMostSteps = std::int64_t{1} << 30;

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

std::int64_t parse_number(std::string_view text, std::string_view whole, std::string_view expected) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size())
    refuse(fmt::format("'{}' is not {}", printable(whole), expected));
  return value;
}

void validate_side(std::int64_t side, std::string_view which) {
  if (std::none_of(kSides.begin(), kSides.end(), [&](std::int32_t built) { return built == side; }))
    refuse(fmt::format("block with {} {}: a side of a block is one of {}", side, which,
                       fmt::join(kSides, ", ")));
}

}  // namespace

std::string_view name(Operation operation) { return name_in(kOperations, operation); }
Operation parse_operation(std::string_view text) { return parse_in(kOperations, text, "operation"); }

std::string_view name(Math math) { return name_in(kMaths, math); }
Math parse_math(std::string_view text) { return parse_in(kMaths, text, "math"); }
std::string_view name(ActivationOrder order) { return name_in(kOrders, order); }
ActivationOrder parse_activation_order(std::string_view text) {
  return parse_in(kOrders, text, "activation order");
}
std::string_view name(Activation activation) { return name_in(activation_rows(), activation); }
Activation parse_activation(std::string_view text) { return parse_in(activation_rows(), text, "activation"); }

std::string to_string(const Epilogue& epilogue) {
  std::vector<std::string_view> parts;
  for (const EpiloguePart& part : kEpilogueParts) {
    if (part.part == &Epilogue::glu && epilogue.activation != Activation::none)
      parts.push_back(name(epilogue.activation));
    if (epilogue.*part.part) parts.push_back(part.name);
  }
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, "+"));
}

std::uint64_t bits_of(const Epilogue& epilogue) {
  auto bits = static_cast<std::uint64_t>(epilogue.activation);
  for (const EpiloguePart& part : kEpilogueParts)
    bits = bits << 1 | static_cast<std::uint64_t>(epilogue.*part.part);
  return bits;
}

std::string epilogue_choices() {
  std::string parts;
  for (const EpiloguePart& part : kEpilogueParts) parts += fmt::format("{}, ", part.name);
  return fmt::format("some of {}and one activation ({}), joined by +", parts, activation_names());
}

Epilogue parse_epilogue(std::string_view text) {
  Epilogue epilogue;
  if (text == "none") return epilogue;
  for (std::string_view rest = text;;) {
    const std::size_t plus = rest.find('+');
    const std::string_view word = rest.substr(0, plus);
    const auto* const part = std::find_if(kEpilogueParts.begin(), kEpilogueParts.end(),
                                          [&](const EpiloguePart& known) { return known.name == word; });
    if (part != kEpilogueParts.end() && !(epilogue.*part->part)) {
      epilogue.*part->part = true;
    } else {
      const auto activations = activation_rows().subspan(1);
      const auto known = std::find_if(activations.begin(), activations.end(),
                                      [&](const ActivationRow& row) { return row.name == word; });
      if (known == activations.end() || epilogue.activation != Activation::none)
        refuse(fmt::format(
            "epilogue '{}': '{}' is no part of it, or comes twice; write none, or {}, such as bias+gelu, or "
            "lstm or lstm+keep, or layer_norm with multiply, add, an activation or lstm, and residual",
            printable(text), printable(word), epilogue_choices()));
      epilogue.activation = known->value;
    }
    if (plus == std::string_view::npos) return epilogue;
    rest.remove_prefix(plus + 1);
  }
}

BlockShape parse_block_shape(std::string_view text) {
  constexpr std::string_view kExpected = "a block shape: write 32 for 32×32, or 8x32 for out × in";
  const std::size_t cross = text.find('x');
  const std::int64_t out = parse_number(text.substr(0, cross), text, kExpected);
  const std::int64_t in =
      cross == std::string_view::npos ? out : parse_number(text.substr(cross + 1), text, kExpected);
  validate_side(out, "rows");
  validate_side(in, "columns");
  return {.out = static_cast<std::int32_t>(out), .in = static_cast<std::int32_t>(in)};
}

std::string to_string(BlockShape block) { return fmt::format("{}x{}", block.out, block.in); }

Batch parse_batch(std::string_view text) {
  constexpr std::string_view kExpected =
      "a batch: write 64 for exactly 64, or up-to:8192 for any n up to 8192";
  std::string_view number = text;
  bool dynamic = false;
  for (const std::string_view prefix : {"up-to:", ".."}) {
    if (!number.starts_with(prefix)) continue;
    number.remove_prefix(prefix.size());
    dynamic = true;
    break;
  }
  const std::int64_t n = parse_number(number, text, kExpected);
  if (n < 0 || n > kMostBatch) refuse(fmt::format("a batch of {}: a batch is 0 to {}", n, kMostBatch));
  return dynamic ? Batch::up_to(n) : Batch(n);
}

std::string to_string(Batch batch) {
  return batch.dynamic() ? fmt::format("up-to:{}", batch.bound()) : fmt::format("{}", batch.bound());
}

namespace {

/// Checks the features along one axis of the layout.
void validate_cut(std::int64_t cut, std::int32_t blocks, std::int32_t side, std::string_view what) {
  if (cut == 0) return;
  const std::int64_t whole = std::int64_t{blocks} * side;
  if (cut > whole || cut <= whole - side)
    refuse(fmt::format("{} {} features: {} blocks of {} hold {} to {}", cut, what, blocks, side,
                       whole - side + 1, whole));
}

void validate_layout(const Layout& layout) {
  const LayoutStatistics& statistics = layout.statistics();
  const std::int64_t empty = std::int64_t{statistics.empty_rows} + statistics.empty_cols;
  const std::int64_t most = kMostEmpty + layout.blocks();
  if (empty > most)
    refuse(fmt::format(
        "a kernel for a layout of {} x {} blocks, of which {} are present: {} of its rows and "
        "columns are empty, and {} may be; a layout without the empty ones, of smaller matrices, would work",
        layout.rows(), layout.cols(), layout.blocks(), empty, most));
}

/// "f16 or f32", "bf16, f16 or f32".
std::string listed(std::span<const DType> types) {
  std::string text;
  for (std::size_t i = 0; i < types.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == types.size() ? " or " : ", ", name(types[i]));
  return text;
}

void validate_types(const Problem& problem) {
  const std::span<const DType> results = element(problem.dtype).results;
  if (results.empty())
    refuse(fmt::format("operands of type {}: it is a result of i8, which would work", name(problem.dtype)));
  if (std::find(results.begin(), results.end(), problem.out_dtype) == results.end())
    refuse(fmt::format("output type {} of {} operands: it is {}", name(problem.out_dtype),
                       name(problem.dtype), listed(results)));
  if (problem.math != Math::ieee && problem.dtype != DType::f32)
    refuse(fmt::format("math {} with {} operands: it rounds f32 operands; math ieee would work",
                       name(problem.math), name(problem.dtype)));
  constexpr std::array<std::int32_t, 4> kAlignments{16, 8, 4, 2};
  // dw is no activation.
  const DType computed = problem.operation == Operation::grad_weight ? problem.dtype : problem.out_dtype;
  const DType larger = size_of(computed) > size_of(problem.dtype) ? computed : problem.dtype;
  const auto bytes = static_cast<std::int32_t>(size_of(larger));
  if (std::find(kAlignments.begin(), kAlignments.end(), problem.alignment) == kAlignments.end() ||
      problem.alignment < bytes)
    refuse(fmt::format("activations of {} aligned to {} bytes: 16{} would work", name(larger),
                       problem.alignment,
                       bytes >= 8   ? " or 8"
                       : bytes == 4 ? ", 8 or 4"
                                    : ", 8, 4 or 2"));
}

/// What an element of eight bits is an operand of: what is computed in a wider type at once, of operands that
/// are multiplied as they are.
void validate_forward_only(const Problem& problem) {
  const Epilogue& epilogue = problem.epilogue;
  const bool narrow = element(problem.dtype).forward_only;
  if (epilogue.row_scale && !narrow)
    refuse(
        fmt::format("epilogue {} of {}: row_scale is of e4m3, e5m2 and i8; scales in the weight would work",
                    to_string(epilogue), name(problem.dtype)));
  if (!narrow) return;
  const auto refuse_it = [&](std::string_view what, std::string_view instead) {
    refuse(fmt::format("{} of {}: {} would work", what, name(problem.dtype), instead));
  };
  if (problem.operation != Operation::forward) refuse_it(name(problem.operation), "forward, or f16 or bf16,");
  if (problem.feature_major()) refuse_it("feature-major activations", "batch-major ones");
  if (problem.convolution.transposed) refuse_it("a transposed convolution", "f16 or bf16");
  if (problem.block_scales)
    refuse_it("block scales", "f16 or bf16, or epilogue row_scale for whole block rows,");
  if (epilogue.lstm || epilogue.layer_norm)
    refuse_it(fmt::format("epilogue {}", to_string(epilogue)), "f16 or bf16");
  if (problem.out_dtype == DType::i32 && epilogue != Epilogue{})
    refuse(
        fmt::format("epilogue {} to i32: these are the sums; output type f32, f16 or bf16, or epilogue "
                    "none, would work",
                    to_string(epilogue)));
}

void validate_edge_bias(const Problem& problem) {
  const Epilogue& epilogue = problem.epilogue;
  if (!epilogue.edge_bias) return;
  const auto refuse_it = [&](std::string_view why) {
    refuse(fmt::format("epilogue {}: {}", to_string(epilogue), why));
  };
  if (!problem.convolution.present())
    refuse_it("an edge bias is a convolution's, and this is a linear layer; bias would work");
  if (epilogue.bias) refuse_it("an edge bias takes the place of the bias; one of the two would work");
  if (epilogue.glu) refuse_it("a glu pair has no edge bias; bias, or two products, would work");
  if (problem.dtype == DType::f64 || element(problem.dtype).forward_only)
    refuse_it(fmt::format("{} has no edge bias; f32 would work", name(problem.dtype)));
  static_cast<void>(edge_runs(problem.convolution));
}

/// What an LSTM's cell goes with.
void validate_cell(const Problem& problem) {
  const Epilogue& epilogue = problem.epilogue;
  const auto refuse_it = [&](std::string_view why) {
    refuse(fmt::format("epilogue {} of {}: {}", to_string(epilogue), name(problem.operation), why));
  };
  Epilogue of_operation{.lstm = true};
  if (problem.operation == Operation::forward) of_operation.keep = epilogue.keep;
  if (problem.operation == Operation::grad_input) of_operation.residual = epilogue.residual;
  if (problem.operation == Operation::grad_weight) of_operation.scale = epilogue.scale;
  if (epilogue != of_operation)
    refuse_it(
        "an LSTM's is lstm or lstm+keep for forward, whose biases come with the projection, lstm or "
        "lstm+residual for grad_input, and lstm or scale+lstm for grad_weight");
  if (problem.convolution.present()) refuse_it("it is a linear layer's; one without --conv would work");
  if (problem.block_scales) refuse_it("its weights have no block scales; none would work");
  if (problem.derivative != Activation::none) refuse_it("its gradient has the derivatives; none would work");
  if (problem.cut_out_features != 0 ||
      (problem.operation == Operation::grad_input && problem.cut_in_features != 0))
    refuse_it("the features of its gates fill whole blocks");
}

/// What layer normalisation goes with.
void validate_normalisation(const Problem& problem) {
  const Epilogue& epilogue = problem.epilogue;
  const auto refuse_it = [&](std::string_view why) {
    refuse(fmt::format("epilogue {} of {}: {}", to_string(epilogue), name(problem.operation), why));
  };
  if (problem.operation == Operation::grad_weight)
    refuse_it(
        "it multiplies the gradient of the sums, which grad_input with layer_norm computes; none or scale "
        "would "
        "work");
  Epilogue fitting{.lstm = epilogue.lstm, .layer_norm = true, .multiply = epilogue.multiply};
  if (!epilogue.lstm) {
    fitting.activation = epilogue.activation;
    fitting.add = epilogue.add;
  }
  if (problem.operation == Operation::grad_input) fitting.residual = epilogue.residual;
  if (epilogue != fitting)
    refuse_it(
        "layer normalisation goes with multiply, add and one activation, or with multiply and lstm, and for "
        "grad_input with residual as well; its gain and bias are always there");
  if (problem.convolution.present()) refuse_it("it is a linear layer's; one without --conv would work");
  if (problem.feature_major())
    refuse_it("the features of a batch row must be neighbours; batch-major activations would work");
  if (problem.derivative != Activation::none) refuse_it("its gradient has the derivatives; none would work");
  if (!epilogue.lstm || problem.operation != Operation::forward) return;
  if (problem.layout.rows() % problem.normalised_groups() != 0)
    refuse_it(fmt::format("the layout has the rows of four gates, and {} are no multiple of 4",
                          problem.layout.rows()));
  if (problem.cut_out_features != 0) refuse_it("the features of its gates fill whole blocks");
}

/// An epilogue that is no cell.
void validate_epilogue(const Problem& problem) {
  if (problem.epilogue.keep) refuse("epilogue keep: it is a part of lstm; lstm+keep would work");
  if (problem.epilogue.multiply || problem.epilogue.add)
    refuse(fmt::format(
        "epilogue {}: multiply and add are parts of layer_norm; layer_norm+multiply+add would work",
        to_string(problem.epilogue)));
  Epilogue of_gradient;
  of_gradient.scale = problem.epilogue.scale;
  if (is_gradient(problem.operation) && problem.epilogue != of_gradient)
    refuse(
        fmt::format("epilogue {} of {}: a gradient's is scale or none; the derivative of an activation is "
                    "asked for as `derivative`, the gradient of a bias as `bias_gradient` of {}",
                    to_string(problem.epilogue), name(problem.operation), name(Operation::grad_weight)));
  if (problem.epilogue.glu && problem.epilogue.activation == Activation::none)
    refuse(
        "epilogue glu: it multiplies by an activation of the first product; silu+glu or gelu+glu "
        "would work");
  validate_edge_bias(problem);
}

void validate_ends(const Problem& problem) {
  const Epilogue& epilogue = problem.epilogue;
  (epilogue.layer_norm ? validate_normalisation : epilogue.lstm ? validate_cell : validate_epilogue)(problem);
  if (!is_gradient(problem.operation) && problem.derivative != Activation::none)
    refuse(fmt::format("derivative {} of {}: gradients have one; epilogue {} would apply the function",
                       name(problem.derivative), name(problem.operation), name(problem.derivative)));
  const bool weight = problem.operation == Operation::grad_weight;
  if (!weight && (problem.bias_gradient || problem.block_scale_gradient))
    refuse(fmt::format("{} of {}: it is a by-product of {}",
                       problem.bias_gradient ? "bias_gradient" : "block_scale_gradient",
                       name(problem.operation), name(Operation::grad_weight)));
  if (problem.block_scale_gradient && !problem.block_scales)
    refuse("block_scale_gradient without block_scales: they go together");
}

void validate_convolution(const Problem& problem) {
  if (!problem.convolution.present()) return;
  const std::int64_t n = problem.batch.bound();
  if (problem.input_rows(n) > kMostBatch || problem.output_rows(n) > kMostBatch)
    refuse(
        fmt::format("a convolution of {} images: they have more than {} positions together", n, kMostBatch));
  const std::vector<bool>& mask = problem.convolution.tap_mask;
  const std::int64_t of_all = std::int64_t{problem.layout.blocks()} * problem.taps();
  if (!mask.empty() && problem.convolution.taps_of_block() == 0 && std::ssize(mask) != of_all)
    refuse(
        fmt::format("a convolution of {} blocks with a mask of the taps of {}: one of {} digits for all, or "
                    "of {} for each block, would work",
                    problem.layout.blocks(), std::ssize(mask) / problem.taps(), problem.taps(), of_all));
  if (problem.layout.blocks() > kMostSteps / problem.taps())
    refuse(fmt::format("a convolution of {} blocks with {} taps: they are {} together at most",
                       problem.layout.blocks(), problem.taps(), kMostSteps));
  const auto refuse_with = [](std::string_view what, std::string_view instead) {
    refuse(fmt::format("a convolution with {}: {} would work", what, instead));
  };
  if (problem.dtype == DType::f64 && problem.block_scale_gradient && problem.taps() > 1)
    refuse_with("a gradient of the block scales in f64", "f32");
  if (!problem.feature_major()) return;
  const std::string_view order = "batch-major ones, channels-last,";
  if (problem.dtype == DType::f64) refuse_with("feature-major activations in f64", order);
}

}  // namespace

void validate(const Problem& problem) {
  validate_side(problem.block.out, "rows");
  validate_side(problem.block.in, "columns");
  validate_layout(problem.layout);
  const std::int64_t n = problem.batch.bound();
  if (n < 0 || n > kMostBatch) refuse(fmt::format("a batch of {}: a batch is 0 to {}", n, kMostBatch));
  const bool transposed = problem.convolution.transposed;
  validate_cut(transposed ? problem.cut_in_features : problem.cut_out_features, problem.layout.rows(),
               problem.block.out, transposed ? "input" : "output");
  validate_cut(transposed ? problem.cut_out_features : problem.cut_in_features, problem.layout.cols(),
               problem.block.in, transposed ? "output" : "input");
  validate_types(problem);
  validate_forward_only(problem);
  validate(problem.convolution);
  validate_ends(problem);
  validate_convolution(problem);
}

}  // namespace sparsekiln

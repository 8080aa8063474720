#include "compiler/computation_fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <tuple>
#include <type_traits>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "compiler/element.h"
#include "compiler/epilogue_parts.h"

namespace sparsekiln {
namespace {

using Kind = ComputationField::Kind;

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

// What a field needs of the type of its values.

template <typename T>
std::string text_of(const T& value) {
  if constexpr (std::is_same_v<T, bool>)
    return value ? "yes" : "no";
  else if constexpr (std::is_enum_v<T>)
    return std::string(name(value));
  else if constexpr (std::is_integral_v<T>)
    return fmt::format("{}", value);
  else
    return to_string(value);
}

template <typename T>
struct Parse;
template <>
struct Parse<bool> {
  static bool from(std::string_view text, std::string_view field) {
    if (text != "yes" && text != "no")
      refuse(fmt::format("{} '{}': 'yes' or 'no' would work", field, printable(text)));
    return text == "yes";
  }
};
template <>
struct Parse<std::int32_t> {
  static std::int32_t from(std::string_view text, std::string_view field) {
    std::int32_t value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc{} || end != text.data() + text.size())
      refuse(fmt::format("{} {} is not a whole number below 2^31", field, printable(text)));
    return value;
  }
};
/// By a function of problem.h, which says in its own words what is wrong.
template <auto ParseFunction>
struct ParseBy {
  static auto from(std::string_view text, std::string_view) { return ParseFunction(text); }
};
template <>
struct Parse<Operation> : ParseBy<parse_operation> {};
template <>
struct Parse<BlockShape> : ParseBy<parse_block_shape> {};
template <>
struct Parse<Batch> : ParseBy<parse_batch> {};
template <>
struct Parse<DType> : ParseBy<parse_dtype> {};
template <>
struct Parse<Math> : ParseBy<parse_math> {};
template <>
struct Parse<ActivationOrder> : ParseBy<parse_activation_order> {};
template <>
struct Parse<Epilogue> : ParseBy<parse_epilogue> {};
template <>
struct Parse<Activation> : ParseBy<parse_activation> {};
template <>
struct Parse<Convolution> : ParseBy<parse_convolution> {};

template <typename T>
  requires(std::is_enum_v<T> || std::is_integral_v<T>)
std::uint64_t bits_of(T value) {
  return static_cast<std::uint64_t>(value);
}
std::uint64_t bits_of(BlockShape block) { return bits_of(block.out) << 32 | bits_of(block.in); }
std::uint64_t bits_of(Batch batch) { return bits_of(batch.bound()) << 1 | bits_of(batch.dynamic()); }
std::uint64_t bits_of(const Convolution& convolution) {
  return std::hash<std::string>{}(to_string(convolution));
}
template <typename T>
std::uint64_t bits_of(const std::optional<T>& value) {
  return value ? 1 + bits_of(*value) : 0;
}

/// The names of those values of an enumeration, which count up from 0, that are `wanted`.
template <typename T, typename Wanted>
std::string names_of(Wanted wanted) {
  std::string names;
  for (int number = 0; name(static_cast<T>(number)) != "unknown"; ++number)
    if (const auto value = static_cast<T>(number); wanted(value))
      names += fmt::format("{}{}", names.empty() ? "" : ", ", name(value));
  return names;
}

bool is_operand(DType type) { return !element(type).results.empty(); }
bool is_result(DType type) {
  return std::ranges::any_of(elements(), [&](const Element& operand) {
    return std::ranges::find(operand.results, type) != operand.results.end();
  });
}

template <typename T>
constexpr Kind kind_of() {
  if constexpr (std::is_same_v<T, bool>) return Kind::flag;
  if constexpr (std::is_same_v<T, std::int32_t>) return Kind::number;
  if constexpr (std::is_same_v<T, BlockShape> || std::is_same_v<T, Batch>) return Kind::word_or_number;
  if constexpr (std::is_enum_v<T> || std::is_same_v<T, Epilogue> || std::is_same_v<T, Convolution>)
    return Kind::word;
}

template <typename Class, typename T>
T member_type(T Class::*);

/// A member of Computation and the member of Options that decides it: optional where another one, `Follows`,
/// does in its stead, the type of operands that of results.
template <auto Member, auto Option, auto Follows = Option>
struct Access {
  using T = decltype(member_type(Member));
  static constexpr bool kFollows = !std::is_same_v<decltype(Option), decltype(Follows)>;

  static std::string text(const Computation& what) { return text_of(what.*Member); }
  static void read(Computation& what, std::string_view text, std::string_view field) {
    what.*Member = Parse<T>::from(text, field);
  }
  static void read_option(Options& options, std::string_view text, std::string_view field) {
    options.*Option = Parse<T>::from(text, field);
  }
  static void decide(Computation& what, const Options& options) {
    if constexpr (kFollows)
      what.*Member = (options.*Option).value_or(result_type(options.*Follows));
    else
      what.*Member = options.*Option;
  }
  static std::uint64_t bits(const Options& options) { return bits_of(options.*Option); }
  static std::string choices() {
    if constexpr (std::is_same_v<T, DType>) return names_of<T>(kFollows ? is_result : is_operand);
    if constexpr (std::is_same_v<T, Epilogue>) return epilogue_choices();
    if constexpr (std::is_enum_v<T>) return names_of<T>([](T) { return true; });
    return {};
  }
};

template <auto Member, auto Option, auto Follows = Option>
constexpr ComputationField row(FieldNames names) {
  using A = Access<Member, Option, Follows>;
  if (names.argument.empty()) names.argument = names.name;
  return {
      names, kind_of<typename A::T>(), {A::text, A::read, A::read_option, A::decide, A::bits, A::choices}};
}

using C = Computation;
using O = Options;
constexpr std::array kFields{
    row<&C::operation, &O::operation>({.name = "operation",
                                       .argument = "op",
                                       .option = "op",
                                       .axis = "operations",
                                       .example = "forward",
                                       .help = "what is computed"}),
    row<&C::block, &O::block>({.name = "block",
                               .option = "block",
                               .axis = "blocks",
                               .example = "8x32",
                               .help = "block shape: 32, or OUTxIN such as 8x32"}),
    row<&C::batch, &O::batch>({.name = "batch",
                               .option = "batch",
                               .axis = "batches",
                               .example = "up-to:8192",
                               .help = "batch: 64, or up-to:8192 for any n up to 8192"}),
    row<&C::dtype, &O::dtype>({.name = "dtype",
                               .option = "dtype",
                               .axis = "dtypes",
                               .example = "f16",
                               .help = "type of the activations and the weight"}),
    row<&C::out_dtype, &O::out_dtype, &O::dtype>({.name = "out_dtype",
                                                  .option = "out-dtype",
                                                  .follows = "dtype",
                                                  .example = "f32",
                                                  .help =
                                                      "type of the result; where not given --dtype, bf16 for "
                                                      "e4m3 and e5m2, or i32 for i8"}),
    row<&C::math, &O::math>({.name = "math",
                             .option = "math",
                             .example = "tf32",
                             .help = "how f32 products are formed, with tf32 of operands rounded to it"}),
    row<&C::order, &O::order>(
        {.name = "order",
         .option = "activation-order",
         .example = "feature-major",
         .help = "memory order of activations, [n, features] for batch-major and [features, n] for "
                 "feature-major; of images channels-last and channels-first"}),
    row<&C::strict_absent, &O::strict_absent>(
        {.name = "strict_absent",
         .option = "strict-absent",
         .help = "no config that fills absent blocks with zeros: an Inf in x could spread through them"}),
    row<&C::epilogue, &O::epilogue>({.name = "epilogue",
                                     .option = "epilogue",
                                     .axis = "epilogues",
                                     .example = "bias+gelu",
                                     .help = "what is fused with the product, such as bias+gelu; an LSTM's "
                                             "cell is lstm or lstm+keep, for gradients lstm or "
                                             "lstm+residual; layer_norm goes with multiply, add and an "
                                             "activation, or with lstm, for gradients of the input with "
                                             "residual"}),
    row<&C::derivative, &O::derivative>(
        {.name = "derivative",
         .option = "derivative",
         .example = "relu",
         .help = "for gradients, the activation whose derivative dy is multiplied by as it is loaded"}),
    row<&C::block_scales, &O::block_scales>(
        {.name = "gates",
         .argument = "block_scales",
         .option = "block-scales",
         .option_alias = "gate",
         .help = "scale every block by a number of its own; zeros are skipped"}),
    row<&C::bias_gradient, &O::bias_gradient>(
        {.name = "bias_gradient",
         .option = "bias-gradient",
         .help = "with grad_weight, compute the gradient of the bias, too"}),
    row<&C::block_scale_gradient, &O::block_scale_gradient>(
        {.name = "gate_gradient",
         .argument = "block_scale_gradient",
         .option = "block-scale-gradient",
         .option_alias = "gate-gradient",
         .help = "with grad_weight, compute the gradient of the block scales, too"}),
    row<&C::alignment, &O::alignment>(
        {.name = "alignment",
         .option = "alignment",
         .example = "8",
         .help = "bytes that addresses and strides of activations are multiples of: 16, 8, 4 or 2"}),
    row<&C::overlap_launches, &O::overlap_launches>(
        {.name = "overlap_launches",
         .option = "overlap-launches",
         .help = "let a launch begin before the one before it has ended: nothing else may write the weight "
                 "meanwhile"}),
    row<&C::convolution, &O::convolution>(
        {.name = "convolution",
         .option = "conv",
         .example = "kernel=3x3 padding=1 input=32x32",
         .help = "a convolution over images, such as 'kernel=3x3 stride=2 dilation=1 padding=1 input=32x32'; "
                 "'input=up-to:32x32' takes images of any extents up to these",
         .optional = true}),
};

/// A member of Computation without a row does not compile: there are as many names here as members.
[[maybe_unused]] void every_member_has_a_row(const Computation& what) {
  [[maybe_unused]] const auto& [operation, block, batch, dtype, out_dtype, math, order, strict_absent,
                                epilogue, derivative, block_scales, bias_gradient, block_scale_gradient,
                                alignment, overlap_launches, convolution] = what;
  using Members = decltype(std::tie(operation, block, batch, dtype, out_dtype, math, order, strict_absent,
                                    epilogue, derivative, block_scales, bias_gradient, block_scale_gradient,
                                    alignment, overlap_launches, convolution));
  static_assert(std::tuple_size_v<Members> == kFields.size());
}

std::string as_word(std::string_view option) {
  std::string word(option);
  std::replace(word.begin(), word.end(), '-', '_');
  return word;
}

}  // namespace

std::string ComputationField::job_key() const { return as_word(axis.empty() ? option : axis); }
std::string ComputationField::job_key_alias() const { return as_word(option_alias); }

std::span<const ComputationField> computation_fields() { return kFields; }

const ComputationField& computation_field(std::string_view name) {
  std::string known;
  for (const ComputationField& field : kFields) {
    if (field.name == name || field.argument == name) return field;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", field.name);
  }
  refuse(fmt::format("there is no field '{}' of a computation: {}", printable(name), known));
}

Computation computation_of(const Options& options) {
  Computation what;
  for (const ComputationField& field : kFields) field.calls.decide(what, options);
  return what;
}

}  // namespace sparsekiln

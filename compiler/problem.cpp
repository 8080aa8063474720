#include <sparsekiln/problem.h>

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/named.h"

namespace sparsekiln {
namespace {

struct TypeRow {
  DType value;
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array kTypes{TypeRow{DType::f32, "f32", 4}, TypeRow{DType::f16, "f16", 2},
                            TypeRow{DType::bf16, "bf16", 2}};

constexpr std::array kOperations{Named{Operation::forward, "forward"},
                                 Named{Operation::grad_input, "grad_input"},
                                 Named{Operation::grad_weight, "grad_weight"}};

constexpr std::array kMaths{Named{Math::ieee, "ieee"}, Named{Math::tf32, "tf32"}};

constexpr std::array<std::int32_t, 5> kSides{8, 16, 32, 64, 128};
constexpr std::int64_t kMaxBatch = std::int64_t{1} << 30;

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

std::int64_t parse_number(std::string_view text, std::string_view whole, std::string_view expected) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size())
    refuse(fmt::format("'{}' is not {}", whole, expected));
  return value;
}

void validate_side(std::int64_t side, std::string_view which) {
  if (std::none_of(kSides.begin(), kSides.end(), [&](std::int32_t built) { return built == side; }))
    refuse(fmt::format("block with {} {}: a side of a block is one of {}", side, which,
                       fmt::join(kSides, ", ")));
}

}  // namespace

std::string_view name(DType type) { return name_in(kTypes, type); }
DType parse_dtype(std::string_view text) { return parse_in(kTypes, text, "data type"); }
std::size_t size_of(DType type) {
  return std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& row) { return row.value == type; })
      ->bytes;
}

std::string_view name(Operation operation) { return name_in(kOperations, operation); }
Operation parse_operation(std::string_view text) { return parse_in(kOperations, text, "operation"); }

std::string_view name(Math math) { return name_in(kMaths, math); }
Math parse_math(std::string_view text) { return parse_in(kMaths, text, "math"); }
std::string_view name(ActivationOrder order) {
  return order == ActivationOrder::batch_major ? "batch-major" : "feature-major";
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
  if (n < 0 || n > kMaxBatch) refuse(fmt::format("a batch of {}: a batch is 0 to {}", n, kMaxBatch));
  return dynamic ? Batch::up_to(n) : Batch(n);
}

std::string to_string(Batch batch) {
  return batch.dynamic() ? fmt::format("up-to:{}", batch.bound()) : fmt::format("{}", batch.bound());
}

void validate(const Problem& problem) {
  validate_side(problem.block.out, "rows");
  validate_side(problem.block.in, "columns");
  const std::int64_t n = problem.batch.bound();
  if (n < 0 || n > kMaxBatch) refuse(fmt::format("a batch of {}: a batch is 0 to {}", n, kMaxBatch));
  if (problem.operation == Operation::grad_weight)
    refuse(fmt::format("operation {}: forward and {} are built", name(problem.operation),
                       name(Operation::grad_input)));
  if (problem.out_dtype != problem.dtype && problem.out_dtype != DType::f32)
    refuse(fmt::format("output type {} of {} operands: it is {} or f32", name(problem.out_dtype),
                       name(problem.dtype), name(problem.dtype)));
  if (problem.math != Math::ieee && problem.dtype != DType::f32)
    refuse(fmt::format("math {} with {} operands: it rounds f32 operands; math ieee would work",
                       name(problem.math), name(problem.dtype)));
  if (problem.order != ActivationOrder::batch_major)
    refuse("feature-major activations: only batch-major is built");
}

}  // namespace sparsekiln

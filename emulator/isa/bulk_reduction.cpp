#include "emulator/isa/bulk_reduction.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "emulator/isa/combination.h"

namespace sparsekiln::emulator {
namespace {

using namespace combination;

template <class T, T (*F)(T, T)>
void combine(std::byte* to, const std::byte* from) {
  T a;
  T b;
  std::memcpy(&a, to, sizeof a);
  std::memcpy(&b, from, sizeof b);
  const T result = F(a, b);
  std::memcpy(to, &result, sizeof result);
}
template <class T, T (*F)(T, T)>
const Reduction* made() {
  static constexpr Reduction kReduction{.bytes = sizeof(T), .combine = combine<T, F>};
  return &kReduction;
}

/// As min.f16 and max.f16 (9.7.4.7): a number rather than a NaN, and -0 below +0.
template <class Format, bool Least>
std::uint16_t extreme_half(std::uint16_t a, std::uint16_t b) {
  const bool a_is_nan = (a & 0x7fff) > Format::kInfinity;
  const bool b_is_nan = (b & 0x7fff) > Format::kInfinity;
  if (a_is_nan || b_is_nan) return a_is_nan && b_is_nan ? number::kNan16 : a_is_nan ? b : a;
  const auto key = [](std::uint16_t half) {
    return (half & 0x8000) != 0 ? -1 - int{half & 0x7fff} : int{half};
  };
  return (key(a) < key(b)) == Least ? a : b;
}

template <class T>
const Reduction* extreme_of(ReduceOperation operation) {
  if (operation == ReduceOperation::min) return made<T, least<T>>();
  return operation == ReduceOperation::max ? made<T, greatest<T>>() : nullptr;
}

template <class T>
const Reduction* bitwise_of(ReduceOperation operation) {
  switch (operation) {
    case ReduceOperation::bit_and:
      return made<T, bit_and<T>>();
    case ReduceOperation::bit_or:
      return made<T, bit_or<T>>();
    case ReduceOperation::bit_xor:
      return made<T, bit_xor<T>>();
    default:
      return nullptr;
  }
}

/// Addition of signed numbers is that of unsigned ones.
const Reduction* word_of(ReduceOperation operation, bool is_signed) {
  if (operation == ReduceOperation::add) return made<std::uint32_t, add<std::uint32_t>>();
  if (operation == ReduceOperation::inc && !is_signed) return made<std::uint32_t, increment>();
  if (operation == ReduceOperation::dec && !is_signed) return made<std::uint32_t, decrement>();
  const Reduction* const extreme =
      is_signed ? extreme_of<std::int32_t>(operation) : extreme_of<std::uint32_t>(operation);
  return extreme != nullptr ? extreme : bitwise_of<std::uint32_t>(operation);
}

const Reduction* long_of(ReduceOperation operation, bool is_signed) {
  if (operation == ReduceOperation::add && !is_signed) return made<std::uint64_t, add<std::uint64_t>>();
  const Reduction* const extreme =
      is_signed ? extreme_of<std::int64_t>(operation) : extreme_of<std::uint64_t>(operation);
  return extreme != nullptr ? extreme : bitwise_of<std::uint64_t>(operation);
}

template <class Format>
const Reduction* half_of(ReduceOperation operation) {
  switch (operation) {
    case ReduceOperation::add:
      return made<std::uint16_t, add_half<Format>>();
    case ReduceOperation::min:
      return made<std::uint16_t, extreme_half<Format, true>>();
    case ReduceOperation::max:
      return made<std::uint16_t, extreme_half<Format, false>>();
    default:
      return nullptr;
  }
}

}  // namespace

std::optional<ReduceOperation> parse_reduce_operation(std::string_view name) {
  constexpr std::string_view kNames[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};
  const auto* const found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) return std::nullopt;
  return static_cast<ReduceOperation>(found - std::begin(kNames));
}

const Reduction* reduction_of(ReduceOperation operation, TensorElement element) {
  switch (element) {
    case TensorElement::u32:
      return word_of(operation, false);
    case TensorElement::s32:
      return word_of(operation, true);
    case TensorElement::u64:
      return long_of(operation, false);
    case TensorElement::s64:
      return long_of(operation, true);
    case TensorElement::f16:
      return half_of<number::F16>(operation);
    case TensorElement::bf16:
      return half_of<number::Bf16>(operation);
    case TensorElement::f32:
      return operation == ReduceOperation::add ? made<float, add_flushed>() : nullptr;
    case TensorElement::f64:
      return operation == ReduceOperation::add ? made<double, add<double>>() : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace sparsekiln::emulator

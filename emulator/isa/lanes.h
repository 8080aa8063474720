#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "emulator/machine/warp.h"

/// How handlers loop over the 32 lanes of a warp. Everything here inlines into loops that GCC turns into
/// vectors.
///
/// Rows of one instruction are the same row or share no byte, and rows of different width are never the same
/// (see Program): so a lane's result may be stored as soon as its own operands were read. Rows are plain
/// bytes; they may be read as any type of their width (the emulator is compiled without strict aliasing).
namespace sparsekiln::emulator::lanes {

/// Calls `use(lane)` for lanes 0 to 31 in any order. Promises the compiler that no lane needs what another
/// stored.
template <class Use>
[[gnu::always_inline]] inline void each_lane(Use use) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#elif defined(__GNUC__)
#pragma GCC ivdep
#endif
  for (int lane = 0; lane < kLanes; ++lane) use(lane);
}

/// Bit `lane` of element `lane`; a table, so that a mask becomes lane selects by one `and`.
template <class T>
inline constexpr std::array<T, kLanes> kLaneBits = [] {
  std::array<T, kLanes> bits{};
  for (int lane = 0; lane < kLanes; ++lane)
    bits[lane] = static_cast<T>(T{1} << (lane % (8 * int{sizeof(T)})));
  return bits;
}();

template <int Bytes>
struct UnsignedOf;
template <>
struct UnsignedOf<2> {
  using type = std::uint16_t;
};
template <>
struct UnsignedOf<4> {
  using type = std::uint32_t;
};
template <>
struct UnsignedOf<8> {
  using type = std::uint64_t;
};

/// to[lane] = from[lane] for the lanes of `mask`.
template <class T>
inline void blend(T* to, const T* from, Mask mask) {
  using Bits = typename UnsignedOf<sizeof(T)>::type;
  auto* target = reinterpret_cast<Bits*>(to);
  const auto* source = reinterpret_cast<const Bits*>(from);
  if constexpr (sizeof(T) == 2) {  // 16 bits of the mask serve half of the lanes
    for (int half = 0; half < 2; ++half) {
      const auto part = static_cast<Bits>(mask >> (16 * half));
      for (int lane = 16 * half; lane < 16 * half + 16; ++lane) {
        const auto chosen = static_cast<Bits>(0 - ((part & kLaneBits<Bits>[lane]) != 0 ? 1 : 0));
        target[lane] = static_cast<Bits>(target[lane] ^ ((target[lane] ^ source[lane]) & chosen));
      }
    }
  } else {
    const Bits wide = mask;
    each_lane(
        [=](int lane) { target[lane] = (wide & kLaneBits<Bits>[lane]) != 0 ? source[lane] : target[lane]; });
  }
}

/// to[lane] = value(lane) for the lanes of `mask`; `value` is computed for all 32 lanes, so it must not fail
/// on any bits.
template <class T, class Value>
[[gnu::always_inline]] inline void produce(T* to, Mask mask, Value value) {
  if (mask == kAllLanes) {
    each_lane([=](int lane) { to[lane] = value(lane); });
  } else {
    alignas(64) T result[kLanes];
    T* const kept = result;
    each_lane([=](int lane) { kept[lane] = value(lane); });
    blend(to, kept, mask);
  }
}

/// Like `produce`, one active lane after another, for slow operations or those without vectors.
template <class T, class Value>
inline void produce_each(T* to, Mask mask, Value value) {
  each_bit(mask, [&](int lane) { to[lane] = value(lane); });
}

/// Bit `lane` says whether `holds(lane)`, for all 32 lanes.
template <class Holds>
[[gnu::always_inline]] inline Mask collect(Holds holds) {
  Mask result = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    result |= holds(lane) ? kLaneBits<std::uint32_t>[lane] : std::uint32_t{0};
  return result;
}

/// Gives the lanes of `mask` their bits of `value`.
inline void write_predicate(Warp& warp, std::uint32_t row, Mask value, Mask mask) {
  Mask& to = warp.predicate(row);
  to = (to & ~mask) | (value & mask);
}

/// The handler of what has no effect here.
inline void do_nothing(Warp&, const Instruction&, Mask) {}

/// A handler: predicate 0 = not predicate 1.
inline void negate_predicate(Warp& warp, const Instruction& instruction, Mask mask) {
  write_predicate(warp, instruction.operands[0], ~warp.predicate(instruction.operands[1]), mask);
}

/// The row of an operand, written ones first.
template <class T>
[[nodiscard]] inline T* operand(const Warp& warp, const Instruction& instruction, std::size_t index) {
  return warp.row<T>(instruction.operands[index]);
}

namespace detail {

template <class Function>
struct Map;

template <class R, class... A>
struct Map<R (*)(A...)> {
  template <R (*F)(A...), std::size_t... I>
  [[gnu::always_inline]] static void run(Warp& warp, const Instruction& instruction, Mask mask,
                                         std::index_sequence<I...>) {
    auto apply = [&](auto*... from) {
      produce(operand<R>(warp, instruction, 0), mask, [=](int lane) { return F(from[lane]...); });
    };
    apply(static_cast<const A*>(operand<const A>(warp, instruction, I + 1))...);
  }
  template <R (*F)(A...)>
  [[gnu::always_inline]] static void run(Warp& warp, const Instruction& instruction, Mask mask) {
    run<F>(warp, instruction, mask, std::index_sequence_for<A...>{});
  }
};

template <class Function>
struct MapDetail;

template <class R, class D, class... A>
struct MapDetail<R (*)(D, A...)> {
  template <R (*F)(D, A...), std::size_t... I>
  [[gnu::always_inline]] static void run(Warp& warp, const Instruction& instruction, Mask mask,
                                         std::index_sequence<I...>) {
    const auto given = static_cast<D>(instruction.detail);
    auto apply = [&](auto*... from) {
      produce(operand<R>(warp, instruction, 0), mask, [=](int lane) { return F(given, from[lane]...); });
    };
    apply(static_cast<const A*>(operand<const A>(warp, instruction, I + 1))...);
  }
  template <R (*F)(D, A...)>
  [[gnu::always_inline]] static void run(Warp& warp, const Instruction& instruction, Mask mask) {
    run<F>(warp, instruction, mask, std::index_sequence_for<A...>{});
  }
};

template <class Function>
struct Test;

template <class... A>
struct Test<bool (*)(A...)> {
  template <bool (*F)(A...), std::size_t... I>
  [[gnu::always_inline]] static Mask run(const Warp& warp, const Instruction& instruction, std::size_t first,
                                         std::index_sequence<I...>) {
    auto apply = [](auto*... from) { return collect([=](int lane) { return F(from[lane]...); }); };
    return apply(static_cast<const A*>(operand<const A>(warp, instruction, first + I))...);
  }
  template <bool (*F)(A...)>
  [[gnu::always_inline]] static Mask run(const Warp& warp, const Instruction& instruction,
                                         std::size_t first) {
    return run<F>(warp, instruction, first, std::index_sequence_for<A...>{});
  }
};

}  // namespace detail

/// A handler: operand 0 = F(operand 1, operand 2, …), lane by lane. F's types are those of the rows:
/// `instruction.run = map<add<std::uint32_t>>`.
template <auto F>
[[gnu::flatten]] void map(Warp& warp, const Instruction& instruction, Mask mask) {
  detail::Map<decltype(F)>::template run<F>(warp, instruction, mask);
}

/// As `map`, with `instruction.detail` as F's first argument.
template <auto F>
[[gnu::flatten]] void map_detail(Warp& warp, const Instruction& instruction, Mask mask) {
  detail::MapDetail<decltype(F)>::template run<F>(warp, instruction, mask);
}

/// Bit `lane` = F(operand `first`, operand `first` + 1, …), for all 32 lanes.
template <auto F>
[[nodiscard]] inline Mask test(const Warp& warp, const Instruction& instruction, std::size_t first) {
  return detail::Test<decltype(F)>::template run<F>(warp, instruction, first);
}

}  // namespace sparsekiln::emulator::lanes

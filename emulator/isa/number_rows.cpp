#include "emulator/isa/number_rows.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace sparsekiln::emulator::number {
namespace {

/// to[i] = value(from[i]).
template <class From, class To, class Value>
[[gnu::always_inline]] inline void each(const From* __restrict from, To* __restrict to, int count,
                                        Value value) {
  if (count % 16 != 0) __builtin_unreachable();
  for (int i = 0; i < count; ++i) to[i] = value(from[i]);
}

template <class Value>
[[gnu::always_inline]] inline void each_in_place(float* row, int count, Value value) {
  if (count % 16 != 0) __builtin_unreachable();
  for (int i = 0; i < count; ++i) row[i] = value(row[i]);
}

}  // namespace

void widen_row(F16 format, const std::uint16_t* from, float* to, int count) {
#ifdef __F16C__
  (void)format;
  for (int i = 0; i < count; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
#else
  each(from, to, count, [=](std::uint16_t value) { return widen(format, value); });
#endif
}

void widen_row(Bf16 format, const std::uint16_t* from, float* to, int count) {
  each(from, to, count, [=](std::uint16_t value) { return widen(format, value); });
}

template <Rounding R>
void narrow_row(F16 format, const float* from, std::uint16_t* to, int count) {
  each(from, to, count, [=](float value) { return narrow<R>(format, value); });
}

template <Rounding R>
void narrow_row(Bf16 format, const float* from, std::uint16_t* to, int count) {
  each(from, to, count, [=](float value) { return narrow<R>(format, value); });
}

template void narrow_row<Rounding::nearest_even>(F16, const float*, std::uint16_t*, int);
template void narrow_row<Rounding::to_zero>(F16, const float*, std::uint16_t*, int);
template void narrow_row<Rounding::nearest_even>(Bf16, const float*, std::uint16_t*, int);
template void narrow_row<Rounding::to_zero>(Bf16, const float*, std::uint16_t*, int);

void saturate_row(float* row, int count) {
  each_in_place(row, count, [](float value) { return saturated(value); });
}

void cut_negative_row(float* row, int count) {
  each_in_place(row, count, [](float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t negative = (0u - (bits >> 31)) & ~mask_if(is_nan(bits));
    return float_of(bits & ~negative);
  });
}

void limit_row(float* row, float greatest, int count) {
  each_in_place(row, count, [=](float value) {
    const float above = value > greatest ? greatest : value;
    return above < -greatest ? -greatest : above;
  });
}

template <class Format>
void flush_row(const std::uint16_t* from, std::uint16_t* to, int count) {
  each(from, to, count, [](std::uint16_t bits) {
    constexpr std::uint16_t kExponent = Format::kInfinity;
    return static_cast<std::uint16_t>((bits & kExponent) == 0 ? bits & 0x8000 : bits);
  });
}

template void flush_row<F16>(const std::uint16_t*, std::uint16_t*, int);
template void flush_row<Bf16>(const std::uint16_t*, std::uint16_t*, int);

}  // namespace sparsekiln::emulator::number

#pragma once

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#else
#include <cmath>
#include <utility>
#endif

namespace sparsekiln::emulator {

/// Eight f32 side by side: one register of AVX2, where there is one; the results are the same without.
struct Row8 {
#if defined(__AVX2__) && defined(__FMA__)
  __m256 at;
#else
  float at[8];
#endif
};

#if defined(__AVX2__) && defined(__FMA__)

[[nodiscard]] inline Row8 load_row(const float* from) { return {_mm256_loadu_ps(from)}; }
inline void store_row(float* to, Row8 row) { _mm256_storeu_ps(to, row.at); }

/// sum + factor · row, rounded once.
[[nodiscard]] inline Row8 fused_multiply_add(const float* factor, Row8 row, Row8 sum) {
  return {_mm256_fmadd_ps(_mm256_broadcast_ss(factor), row.at, sum.at)};
}

/// Rows become columns.
inline void transpose(Row8 (&rows)[8]) {
  __m256 pairs[8];
  for (int i = 0; i < 4; ++i) {
    pairs[2 * i] = _mm256_unpacklo_ps(rows[2 * i].at, rows[2 * i + 1].at);
    pairs[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i].at, rows[2 * i + 1].at);
  }
  __m256 quads[8];
  for (int i = 0; i < 2; ++i) {
    const __m256* const from = pairs + 4 * i;
    quads[4 * i] = _mm256_shuffle_ps(from[0], from[2], 0x44);
    quads[4 * i + 1] = _mm256_shuffle_ps(from[0], from[2], 0xee);
    quads[4 * i + 2] = _mm256_shuffle_ps(from[1], from[3], 0x44);
    quads[4 * i + 3] = _mm256_shuffle_ps(from[1], from[3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    rows[i].at = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
    rows[i + 4].at = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
  }
}

#else

[[nodiscard]] inline Row8 load_row(const float* from) {
  Row8 row;
  for (int i = 0; i < 8; ++i) row.at[i] = from[i];
  return row;
}
inline void store_row(float* to, Row8 row) {
  for (int i = 0; i < 8; ++i) to[i] = row.at[i];
}
[[nodiscard]] inline Row8 fused_multiply_add(const float* factor, Row8 row, Row8 sum) {
  for (int i = 0; i < 8; ++i) sum.at[i] = std::fma(*factor, row.at[i], sum.at[i]);
  return sum;
}
inline void transpose(Row8 (&rows)[8]) {
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < i; ++j) std::swap(rows[i].at[j], rows[j].at[i]);
}

#endif

}  // namespace sparsekiln::emulator

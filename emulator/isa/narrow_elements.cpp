#include "emulator/isa/narrow_elements.h"

#include <algorithm>

#include "emulator/isa/number_rows.h"

namespace sparsekiln::emulator::number {
namespace {

constexpr int kChunk = 64;

/// Through rows of f16, `half(bits)` of each element.
template <class Half>
void through_f16(const std::uint8_t* from, float* to, int count, Half half) {
  alignas(64) std::uint16_t halves[kChunk];
  for (int done = 0; done < count; done += kChunk) {
    const int chunk = std::min(kChunk, count - done);
    for (int i = 0; i < chunk; ++i) halves[i] = half(from[done + i]);
    widen_row(F16{}, halves, to + done, chunk);
  }
}

}  // namespace

void widen_row(E4m3, const std::uint8_t* from, float* to, int count) {
  // The exponent of an f16 has another bias, 15: that is a factor of 2⁸, for subnormal numbers as well.
  through_f16(from, to, count, [](std::uint8_t bits) {
    const std::uint32_t wide = bits;
    return static_cast<std::uint16_t>((wide & 0x80u) << 8 | (wide & 0x7fu) << 7);
  });
  for (int i = 0; i < count; ++i)
    to[i] = float_of(select(mask_if((from[i] & 0x7fu) == 0x7fu), kNan32, bits_of(to[i] * 256.0f)));
}

void widen_row(E5m2, const std::uint8_t* from, float* to, int count) {
  through_f16(from, to, count, [](std::uint8_t bits) { return static_cast<std::uint16_t>(bits << 8); });
}

}  // namespace sparsekiln::emulator::number

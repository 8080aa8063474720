#include "emulator/isa/narrow_elements.h"

namespace sparsekiln::emulator::number {
namespace {

template <class Format>
[[gnu::always_inline]] inline void each(Format format, const std::uint8_t* __restrict from,
                                        float* __restrict to, int count) {
  if (count % 16 != 0) __builtin_unreachable();
  for (int i = 0; i < count; ++i) to[i] = widen(format, from[i]);
}

}  // namespace

void widen_row(E4m3 format, const std::uint8_t* from, float* to, int count) { each(format, from, to, count); }
void widen_row(E5m2 format, const std::uint8_t* from, float* to, int count) { each(format, from, to, count); }

}  // namespace sparsekiln::emulator::number

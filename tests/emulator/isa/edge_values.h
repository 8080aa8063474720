#pragma once

#include <cstdint>
#include <random>

#include "tests/emulator/one_warp.h"

namespace sparsekiln::emulator {

/// Numbers of `bits` where integer instructions go wrong first, and random ones between them.
inline Given edge_values(std::mt19937_64& random, int bits) {
  const std::uint64_t top = std::uint64_t{1} << (bits - 1);
  const std::uint64_t all = top - 1 + top;
  return lanes_of(bits, [&](int) -> std::uint64_t {
    switch (random() % 8) {
      case 0:
        return random() % 4;
      case 1:
        return all - random() % 4;
      case 2:
        return (top + random() % 3 - 1) & all;
      case 3:
        return random() % 70;
      case 4:
        return (std::uint64_t{1} << random() % static_cast<unsigned>(bits)) & all;
      default:
        return random() & all;
    }
  });
}

/// Shift amounts and the like: mostly in range, some at its end and beyond.
inline Given amounts(std::mt19937_64& random) {
  return lanes_of(32, [&](int) -> std::uint64_t {
    switch (random() % 6) {
      case 0:
        return 28 + random() % 8;
      case 1:
        return 60 + random() % 8;
      case 2:
        return 0xffffffffu - random() % 3;
      case 3:
        return 252 + random() % 8;
      default:
        return random() % 33;
    }
  });
}

}  // namespace sparsekiln::emulator

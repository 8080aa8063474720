#include <array>

#include "tests/emulator/ptx/text.h"

using namespace sparsekiln::ptx;

TEST_SUITE_BEGIN("emulator/ptx types");

TEST_CASE("each type is found by its name, and only by that") {
  for (int i = 0; i <= static_cast<int>(Type::e5m2x2); ++i) {
    const auto type = static_cast<Type>(i);
    CHECK(parse_type(name(type)) == type);
  }
  for (const char* other : {"", "u", "u31", "x", "U32", "f16x4", "global", "u32 "}) CHECK(!parse_type(other));
}

TEST_CASE("a type knows its bits, its sign and whether it is real") {
  struct Expected {
    Type type;
    int bits;
    bool sign;
    bool real;
  };
  constexpr std::array kExpected{
      Expected{Type::pred, 1, false, false},   Expected{Type::b8, 8, false, false},
      Expected{Type::b128, 128, false, false}, Expected{Type::u16, 16, false, false},
      Expected{Type::s64, 64, true, false},    Expected{Type::f16x2, 32, false, true},
      Expected{Type::bf16, 16, false, true},   Expected{Type::tf32, 32, false, true},
      Expected{Type::f64, 64, false, true},    Expected{Type::e4m3x2, 16, false, true},
  };
  for (const Expected& expected : kExpected) {
    CAPTURE(name(expected.type));
    CHECK(bits(expected.type) == expected.bits);
    CHECK(is_signed(expected.type) == expected.sign);
    CHECK(is_float(expected.type) == expected.real);
  }
}

TEST_SUITE_END();

#include "compiler/element.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

using namespace sparsekiln;

namespace {

std::uint16_t rounded(DType type, float value) {
  std::uint16_t bits = 0;
  store(type, value, &bits, 0);
  return bits;
}
float widened(DType type, std::uint16_t bits) { return to_float(type, &bits, 0); }

}  // namespace

TEST_CASE("every 16-bit pattern survives the way to float32 and back") {
  for (const DType type : {DType::f16, DType::bf16})
    for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
      const auto pattern = static_cast<std::uint16_t>(bits);
      const float value = widened(type, pattern);
      if (std::isnan(value))
        REQUIRE(std::isnan(widened(type, rounded(type, value))));
      else
        REQUIRE(rounded(type, value) == pattern);
    }
}

TEST_CASE("a value between two neighbours goes to the nearer one, a tie to the even one") {
  for (const DType type : {DType::f16, DType::bf16}) {
    const std::uint16_t last =
        type == DType::f16 ? 0x7bfe : 0x7f7e;  // of the patterns with a finite neighbour
    for (std::uint16_t low = 0; low <= last; ++low) {
      const auto high = static_cast<std::uint16_t>(low + 1);
      const float a = widened(type, low);
      const float b = widened(type, high);
      const auto tie = static_cast<float>((double{a} + b) / 2);
      REQUIRE(rounded(type, tie) == (low % 2 == 0 ? low : high));
      REQUIRE(rounded(type, -tie) == ((low % 2 == 0 ? low : high) | 0x8000));
      REQUIRE(rounded(type, std::nextafter(tie, 0.0f)) == low);
      REQUIRE(rounded(type, std::nextafter(tie, b)) == high);
    }
  }
}

TEST_CASE("what is too large becomes infinite, and the stated format is the real one") {
  for (const DType type : {DType::f16, DType::bf16}) {
    const ElementFormat& format = element_format(type);
    const auto largest = static_cast<float>(format.largest);
    CHECK(widened(type, rounded(type, largest)) == largest);
    CHECK(std::isinf(widened(type, rounded(type, std::numeric_limits<float>::max()))));
    CHECK(std::isinf(widened(type, static_cast<std::uint16_t>(rounded(type, largest) + 1))));
    CHECK(format.unit_roundoff == std::ldexp(1.0, -format.significand_bits));
    const auto step = static_cast<float>(1 + 2 * format.unit_roundoff);
    CHECK(widened(type, static_cast<std::uint16_t>(rounded(type, 1) + 1)) == step);
  }
}

TEST_CASE("arrays are converted from any element on") {
  const std::vector<float> values = {1, -2, 0.5f};
  std::vector<std::uint16_t> bits(5, 0xffff);
  store(DType::bf16, values, bits.data(), 1);
  CHECK(bits[0] == 0xffff);
  CHECK(bits[4] == 0xffff);
  std::vector<float> back(2);
  to_float(DType::bf16, bits.data(), 2, back);
  CHECK(back == std::vector<float>{-2, 0.5f});
}

TEST_CASE("every type is found by its name, and is summed in a type that is summed in itself") {
  for (const Element& row : elements()) {
    CHECK(parse_dtype(row.name) == row.value);
    CHECK(&element(row.value) == &row);
    CHECK(sum_type(row.arithmetic) == row.arithmetic);
    CHECK(row.format.unit_roundoff == std::ldexp(1.0, -row.format.significand_bits));
  }
  CHECK(elements().size() == static_cast<std::size_t>(kLastDType) + 1);
}

TEST_CASE("the unlikely NaN of every type is a NaN, and not what storing a NaN gives") {
  for (const Element& row : elements()) {
    CAPTURE(row.name);
    if (row.integer) continue;
    CHECK(std::isnan(to_double(row.value, &row.unlikely_nan, 0)));
    std::uint64_t stored = 0;
    store(row.value, std::numeric_limits<double>::quiet_NaN(), &stored, 0);
    CHECK(std::isnan(to_double(row.value, &stored, 0)));
    CHECK(stored != row.unlikely_nan);
  }
}

TEST_CASE("float64 elements are stored and loaded without rounding, others are rounded as float32 first") {
  const double third = 1.0 / 3;
  double f64 = 0;
  store(DType::f64, third, &f64, 0);
  CHECK(f64 == third);
  CHECK(to_double(DType::f64, &f64, 0) == third);
  float f32 = 0;
  store(DType::f32, third, &f32, 0);
  CHECK(to_double(DType::f32, &f32, 0) == static_cast<float>(third));
  const double above_tie = 1 + 0x1p-8 + 0x1p-40;  // as a float32 the tie, which goes to the even one
  std::uint16_t bf16 = 0;
  store(DType::bf16, above_tie, &bf16, 0);
  CHECK(to_double(DType::bf16, &bf16, 0) == 1);
}

namespace {

std::uint8_t rounded8(DType type, double value) {
  std::uint8_t bits = 0;
  store(type, value, &bits, 0);
  return bits;
}
double widened8(DType type, std::uint8_t bits) { return to_double(type, &bits, 0); }

}  // namespace

TEST_CASE("8-bit floats have the values of their specification") {
  // OCP 8-bit Floating Point Specification 1.0, table 2.
  CHECK(widened8(DType::e4m3, 0x7e) == 448);
  CHECK(widened8(DType::e4m3, 0x08) == 0x1p-6);
  CHECK(widened8(DType::e4m3, 0x07) == 0.875 * 0x1p-6);
  CHECK(widened8(DType::e4m3, 0x81) == -0x1p-9);
  CHECK(std::isnan(widened8(DType::e4m3, 0x7f)));
  CHECK(std::isnan(widened8(DType::e4m3, 0xff)));
  CHECK(widened8(DType::e5m2, 0x7b) == 57344);
  CHECK(widened8(DType::e5m2, 0x04) == 0x1p-14);
  CHECK(widened8(DType::e5m2, 0x03) == 0.75 * 0x1p-14);
  CHECK(widened8(DType::e5m2, 0x81) == -0x1p-16);
  CHECK(widened8(DType::e5m2, 0xfc) == -std::numeric_limits<double>::infinity());
  for (const int bits : {0x7d, 0x7e, 0x7f, 0xfd}) {
    CAPTURE(bits);
    CHECK(std::isnan(widened8(DType::e5m2, static_cast<std::uint8_t>(bits))));
  }
}

TEST_CASE(
    "every 8-bit pattern survives the way to a float and back, and what is between goes to the nearest") {
  for (const DType type : {DType::e4m3, DType::e5m2}) {
    const std::uint8_t largest = type == DType::e4m3 ? 0x7e : 0x7b;
    for (std::uint8_t low = 0; low <= largest; ++low) {
      const double a = widened8(type, low);
      REQUIRE(rounded8(type, a) == low);
      REQUIRE(rounded8(type, -a) == (low | 0x80));
      if (low == largest) break;
      const auto high = static_cast<std::uint8_t>(low + 1);
      const auto tie = static_cast<float>((a + widened8(type, high)) / 2);
      REQUIRE(rounded8(type, tie) == (low % 2 == 0 ? low : high));
      REQUIRE(rounded8(type, -tie) == ((low % 2 == 0 ? low : high) | 0x80));
      REQUIRE(rounded8(type, std::nextafter(tie, 0.0f)) == low);
      REQUIRE(rounded8(type, std::nextafter(tie, 1e9f)) == high);
    }
  }
}

TEST_CASE("what is too large for E4M3 becomes its largest, for E5M2 infinite") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const double value : {465.0, 1e4, 1e30, kInf}) {
    CHECK(rounded8(DType::e4m3, value) == 0x7e);
    CHECK(rounded8(DType::e4m3, -value) == 0xfe);
  }
  CHECK(rounded8(DType::e5m2, 61439) == 0x7b);
  for (const double value : {61440.0, 1e30, kInf}) {
    CHECK(rounded8(DType::e5m2, value) == 0x7c);
    CHECK(rounded8(DType::e5m2, -value) == 0xfc);
  }
}

TEST_CASE("integers are rounded to the nearest, ties to even, and kept within their range") {
  CHECK(rounded8(DType::i8, 2.5) == 2);
  CHECK(rounded8(DType::i8, 3.5) == 4);
  CHECK(rounded8(DType::i8, -1.6) == 0xfe);
  CHECK(rounded8(DType::i8, 127.4) == 127);
  CHECK(rounded8(DType::i8, 1e30) == 127);
  CHECK(rounded8(DType::i8, -1e30) == 0x80);
  std::int32_t wide = 0;
  store(DType::i32, 2147483646.0, &wide, 0);
  CHECK(wide == 2147483646);
  CHECK(to_double(DType::i32, &wide, 0) == 2147483646.0);
  store(DType::i32, 1e300, &wide, 0);
  CHECK(wide == std::numeric_limits<std::int32_t>::max());
}

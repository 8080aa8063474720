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

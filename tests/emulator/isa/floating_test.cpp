#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include "emulator/ptx/module.h"
#include "tests/emulator/isa/exact.h"
#include "tests/emulator/one_warp.h"

namespace sparsekiln::emulator {
namespace {

using exact::Format;
using exact::Mode;
using exact::Number;

constexpr std::pair<const char*, Mode> kRoundings[] = {
    {"rn", Mode::nearest_even}, {"rz", Mode::to_zero}, {"rm", Mode::down}, {"rp", Mode::up}};

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float float_of(std::uint64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }

/// Runs "opcode %out0, %in0, …;".
LaneValues compute(const std::string& opcode, int bits, const std::vector<Given>& in) {
  std::string body = opcode + " %out0";
  for (std::size_t i = 0; i < in.size(); ++i) body += ", %in" + std::to_string(i);
  return run_warp(body + ";", in, {bits}).results[0];
}

Given numbers(std::mt19937_64& random, Format format) {
  return lanes_of(format.bits(), [&](int) { return exact::random_number(random, format); });
}

/// Compares with an exact result, where there is one, is not zero (of any sign), and no operand or result is
/// special.
void check_rounded(const std::string& opcode, const std::string& rest, Format format, std::size_t operands,
                   const std::function<std::optional<Number>(const std::vector<Number>&)>& reference) {
  std::mt19937_64 random(11);
  int compared = 0;
  for (const auto& [modifier, mode] : kRoundings) {
    const std::string instruction = opcode + "." + modifier + rest;
    CAPTURE(instruction);
    for (int round = 0; round < 12; ++round) {
      std::vector<Given> in;
      for (std::size_t i = 0; i < operands; ++i) in.push_back(numbers(random, format));
      const LaneValues got = compute(instruction, format.bits(), in);
      for (int lane = 0; lane < 32; ++lane) {
        std::vector<Number> values;
        for (const Given& given : in) values.push_back(exact::value(format, given.values[lane]));
        const auto want = reference(values);
        if (!want || want->units == 0) continue;
        CAPTURE(in[0].values[lane]);
        CAPTURE(in.back().values[lane]);
        CHECK(got[lane] == exact::rounded(format, mode, *want));
        ++compared;
      }
    }
  }
  CHECK(compared > 300);
}

std::optional<Number> plus(const std::vector<Number>& x) { return exact::sum(x[0], x[1]); }
std::optional<Number> minus(const std::vector<Number>& x) {
  return exact::sum(x[0], {-x[1].units, x[1].exponent});
}
std::optional<Number> times(const std::vector<Number>& x) { return exact::product(x[0], x[1]); }
std::optional<Number> times_plus(const std::vector<Number>& x) {
  return exact::sum(exact::product(x[0], x[1]), x[2]);
}
/// A quotient to 64 bits, the last one odd if it is not exact: enough to round it to 53.
std::optional<Number> quotient(const std::vector<Number>& x) {
  if (x[1].units == 0) return std::nullopt;
  exact::Wide dividend = x[0].units < 0 ? -x[0].units : x[0].units;
  const exact::Wide divisor = x[1].units < 0 ? -x[1].units : x[1].units;
  int exponent = x[0].exponent - x[1].exponent;
  for (; dividend != 0 && dividend < exact::Wide{1} << 120; dividend *= 2) --exponent;
  exact::Wide result = dividend / divisor;
  if (dividend % divisor != 0) result |= 1;
  return Number{(x[0].units < 0) != (x[1].units < 0) ? -result : result, exponent};
}
std::optional<Number> reciprocal(const std::vector<Number>& x) { return quotient({{1, 0}, x[0]}); }
/// A root to about 60 bits, the last one odd if it is not exact.
std::optional<Number> root(const std::vector<Number>& x) {
  if (x[0].units <= 0) return std::nullopt;
  exact::Wide square = x[0].units;
  int exponent = x[0].exponent;
  for (; square < exact::Wide{1} << 120 || exponent % 2 != 0; square *= 2) --exponent;
  exact::Wide result = 0;
  for (exact::Wide bit = exact::Wide{1} << 62; bit != 0; bit /= 2)
    if ((result + bit) * (result + bit) <= square) result += bit;
  if (result * result != square) result |= 1;
  return Number{result, exponent / 2};
}

}  // namespace

TEST_CASE("f32 sums, products and fused multiply-adds are rounded exactly in all four directions") {
  check_rounded("add", ".f32", exact::kF32, 2, plus);
  check_rounded("sub", ".f32", exact::kF32, 2, minus);
  check_rounded("mul", ".f32", exact::kF32, 2, times);
  check_rounded("fma", ".f32", exact::kF32, 3, times_plus);
  check_rounded("mad", ".f32", exact::kF32, 3, times_plus);
}

TEST_CASE("f64 sums, products and fused multiply-adds are rounded exactly in all four directions") {
  check_rounded("add", ".f64", exact::kF64, 2, plus);
  check_rounded("sub", ".f64", exact::kF64, 2, minus);
  check_rounded("mul", ".f64", exact::kF64, 2, times);
  check_rounded("fma", ".f64", exact::kF64, 3, times_plus);
}

TEST_CASE("quotients, reciprocals and roots are rounded exactly in all four directions") {
  check_rounded("div", ".f32", exact::kF32, 2, quotient);
  check_rounded("rcp", ".f32", exact::kF32, 1, reciprocal);
  check_rounded("sqrt", ".f32", exact::kF32, 1, root);
  check_rounded("div", ".f64", exact::kF64, 2, quotient);
  check_rounded("rcp", ".f64", exact::kF64, 1, reciprocal);
  check_rounded("sqrt", ".f64", exact::kF64, 1, root);
}

TEST_CASE("a rounding modifier does not outlive its instruction") {
  const Given third = lanes_of(32, [](int) { return bits_of(3.0f); });
  const WarpRun run = run_warp("rcp.rp.f32 %out0, %in0; rcp.rn.f32 %out1, %in0; rcp.rm.f32 %out2, %in0;",
                               {third}, {32, 32, 32});
  CHECK(float_of(run.results[0][0]) > float_of(run.results[2][0]));
  CHECK(float_of(run.results[1][0]) == 1.0f / 3.0f);
  CHECK(1.0f / 3.0f == float_of(bits_of(0x1.555556p-2f)));
}

TEST_CASE("a difference of equal numbers is -0 when rounded down, else +0") {
  const Given one = lanes_of(32, [](int) { return bits_of(1.0f); });
  CHECK(compute("sub.rm.f32", 32, {one, one})[0] == 0x80000000u);
  CHECK(compute("sub.rn.f32", 32, {one, one})[0] == 0);
  CHECK(compute("sub.rp.f32", 32, {one, one})[0] == 0);
}

TEST_CASE(".ftz takes subnormal operands and gives subnormal results as zeros of their sign") {
  const Given subnormal =
      lanes_of(32, [](int lane) { return 0x007fffffu | (lane % 2 != 0 ? 0x80000000u : 0u); });
  const Given zero = lanes_of(32, [](int) { return 0x80000000u; });
  const Given least = lanes_of(32, [](int) { return 0x00800000u; });
  const Given half = lanes_of(32, [](int) { return bits_of(-0.5f); });
  for (int lane = 0; lane < 2; ++lane) {
    CAPTURE(lane);
    CHECK(compute("add.ftz.f32", 32, {subnormal, zero})[lane] == (lane == 0 ? 0u : 0x80000000u));
    CHECK(compute("add.f32", 32, {subnormal, zero})[lane] == subnormal.values[lane]);
    CHECK(compute("mul.ftz.f32", 32, {least, half})[lane] == 0x80000000u);
    CHECK(compute("mul.f32", 32, {least, half})[lane] == 0x80400000u);
    CHECK(compute("abs.ftz.f32", 32, {subnormal})[lane] == 0);
    CHECK(compute("neg.ftz.f32", 32, {subnormal})[lane] == (lane == 0 ? 0x80000000u : 0u));
    CHECK(compute("fma.rn.ftz.f32", 32, {subnormal, half, least})[lane] == 0x00800000u);
  }
}

TEST_CASE(".sat clamps to [0, 1] and makes a NaN zero") {
  const float values[] = {-2.0f,
                          -0.0f,
                          0.25f,
                          1.0f,
                          7.0f,
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()};
  const float wanted[] = {0.0f, 0.0f, 0.25f, 1.0f, 1.0f, 1.0f, 0.0f, 0.0f};
  const Given in = lanes_of(32, [&](int lane) { return bits_of(values[lane % 8]); });
  const Given zero = lanes_of(32, [](int) { return 0x80000000u; });
  const LaneValues got = compute("add.sat.f32", 32, {in, zero});
  for (int lane = 0; lane < 8; ++lane) CHECK(got[lane] == bits_of(wanted[lane]));
}

TEST_CASE("an f32 NaN comes out as the canonical one") {
  const Given nan = lanes_of(32, [](int lane) { return 0x7f800001u + static_cast<std::uint32_t>(lane); });
  const Given one = lanes_of(32, [](int) { return bits_of(1.0f); });
  CHECK(compute("add.f32", 32, {nan, one})[3] == 0x7fffffffu);
  CHECK(compute("fma.rn.f32", 32, {one, one, nan})[3] == 0x7fffffffu);
  CHECK(compute("sqrt.rn.f32", 32, {lanes_of(32, [](int) { return bits_of(-1.0f); })})[0] == 0x7fffffffu);
}

TEST_CASE("min and max prefer a number to a NaN, and order the zeros") {
  const std::uint32_t nan = 0x7fc00001u;
  const std::uint32_t zero = 0;
  const std::uint32_t minus_zero = 0x80000000u;
  const std::uint32_t two = bits_of(2.0f);
  const std::uint32_t minus_three = bits_of(-3.0f);
  struct Case {
    std::uint32_t a, b, min, max, min_nan;
  };
  const Case cases[] = {{nan, two, two, two, 0x7fffffffu},
                        {two, nan, two, two, 0x7fffffffu},
                        {nan, nan, 0x7fffffffu, 0x7fffffffu, 0x7fffffffu},
                        {zero, minus_zero, minus_zero, zero, minus_zero},
                        {minus_zero, zero, minus_zero, zero, minus_zero},
                        {two, minus_three, minus_three, two, minus_three},
                        {minus_three, minus_three, minus_three, minus_three, minus_three}};
  const auto pick = [&](auto member) {
    return lanes_of(32, [&](int lane) { return cases[lane % 7].*member; });
  };
  const std::vector<Given> in = {pick(&Case::a), pick(&Case::b)};
  const LaneValues least = compute("min.f32", 32, in);
  const LaneValues greatest = compute("max.f32", 32, in);
  const LaneValues least_or_nan = compute("min.NaN.f32", 32, in);
  const LaneValues apart = compute("max.xorsign.abs.f32", 32, in);
  for (int lane = 0; lane < 7; ++lane) {
    CAPTURE(lane);
    CHECK(least[lane] == cases[lane].min);
    CHECK(greatest[lane] == cases[lane].max);
    CHECK(least_or_nan[lane] == cases[lane].min_nan);
  }
  CHECK(apart[5] == minus_three);  // 3, with the product's sign
  CHECK(apart[6] == bits_of(3.0f));
}

TEST_CASE("min and max of f64 follow the same rules") {
  const auto bits = [](double value) { return std::bit_cast<std::uint64_t>(value); };
  const Given a = lanes_of(64, [&](int lane) {
    return lane == 0 ? bits(std::nan("")) : lane == 1 ? bits(0.0) : bits(4.0);
  });
  const Given b = lanes_of(64, [&](int lane) { return lane == 1 ? bits(-0.0) : bits(-1.0); });
  const LaneValues least = compute("min.f64", 64, {a, b});
  const LaneValues greatest = compute("max.f64", 64, {a, b});
  CHECK(least[0] == bits(-1.0));
  CHECK(least[1] == bits(-0.0));
  CHECK(greatest[1] == bits(0.0));
  CHECK(greatest[2] == bits(4.0));
}

TEST_CASE("copysign takes the sign of its first operand") {
  const Given a = lanes_of(32, [](int) { return bits_of(-1.0f); });
  const Given b = lanes_of(32, [](int) { return bits_of(5.0f); });
  CHECK(compute("copysign.f32", 32, {a, b})[0] == bits_of(-5.0f));
}

TEST_CASE("approximate functions are within the error bounds of the ISA") {
  struct Function {
    const char* opcode;
    double (*reference)(double);
    double from, to, relative;
  };
  const Function functions[] = {
      {"ex2.approx.f32", [](double x) { return std::exp2(x); }, -100, 100, 0x1p-22},
      {"lg2.approx.f32", [](double x) { return std::log2(x); }, 3, 1e30, 0x1p-22},
      {"rsqrt.approx.f32", [](double x) { return 1 / std::sqrt(x); }, 1e-30, 1e30, 0x1p-22},
      {"rcp.approx.f32", [](double x) { return 1 / x; }, 1e-30, 1e30, 0x1p-23},
      {"sqrt.approx.f32", [](double x) { return std::sqrt(x); }, 0, 1e30, 0x1p-23},
      {"sin.approx.f32", [](double x) { return std::sin(x); }, 0.1, 3, 0x1p-20},
      {"cos.approx.f32", [](double x) { return std::cos(x); }, -1.5, 1.5, 0x1p-20},
      {"tanh.approx.f32", [](double x) { return std::tanh(x); }, -9, 9, 0x1p-11}};
  std::mt19937_64 random(3);
  for (const Function& function : functions) {
    CAPTURE(function.opcode);
    std::uniform_real_distribution<float> any(static_cast<float>(function.from),
                                              static_cast<float>(function.to));
    const Given in = lanes_of(32, [&](int) { return bits_of(any(random)); });
    const LaneValues got = compute(function.opcode, 32, {in});
    for (int lane = 0; lane < 32; ++lane) {
      const double want = function.reference(static_cast<double>(float_of(in.values[lane])));
      CHECK(std::abs(static_cast<double>(float_of(got[lane])) - want) <= function.relative * std::abs(want));
    }
  }
}

TEST_CASE("special values of approximate functions are those of the ISA") {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto of = [](const char* opcode, float x) {
    return float_of(compute(opcode, 32, {lanes_of(32, [&](int) { return bits_of(x); })})[0]);
  };
  CHECK(of("ex2.approx.ftz.f32", -infinity) == 0.0f);
  CHECK(of("ex2.approx.ftz.f32", infinity) == infinity);
  CHECK(of("ex2.approx.ftz.f32", -0.0f) == 1.0f);
  CHECK(of("ex2.approx.f32", -130.0f) == 0x1p-130f);
  CHECK(of("ex2.approx.ftz.f32", -130.0f) == 0.0f);
  CHECK(of("lg2.approx.f32", 0.0f) == -infinity);
  CHECK(bits_of(of("lg2.approx.f32", -1.0f)) == 0x7fffffffu);
  CHECK(of("rsqrt.approx.f32", -0.0f) == -infinity);
  CHECK(of("rsqrt.approx.f32", infinity) == 0.0f);
  CHECK(of("rcp.approx.ftz.f32", 0x1p-127f) == infinity);
  CHECK(of("tanh.approx.f32", -infinity) == -1.0f);
}

TEST_CASE("div.approx of a divisor beyond 2^126 is zero, or NaN for an infinite dividend") {
  const auto divide = [](float a, float b) {
    return bits_of(float_of(compute(
        "div.approx.f32", 32,
        {lanes_of(32, [&](int) { return bits_of(a); }), lanes_of(32, [&](int) { return bits_of(b); })})[0]));
  };
  CHECK(divide(0x1p127f, 0x1.8p126f) == 0);
  CHECK(divide(0x1p127f, -0x1.8p126f) == 0x80000000u);
  CHECK(divide(std::numeric_limits<float>::infinity(), 0x1.8p126f) == 0x7fffffffu);
  CHECK(divide(0x1p126f, 0x1p126f) == bits_of(1.0f));
  CHECK(divide(3.0f, 2.0f) == bits_of(1.5f));
}

TEST_CASE("only the active lanes of a guarded instruction are written") {
  const Given in = lanes_of(32, [](int lane) { return bits_of(static_cast<float>(lane)); });
  const LaneValues got =
      run_warp("mov.b32 %out0, 7; setp.lt.u32 %p1, %lane, 9; @%p1 add.f32 %out0, %in0, %in0;", {in}, {32})
          .results[0];
  for (int lane = 0; lane < 32; ++lane)
    CHECK(got[lane] == (lane < 9 ? bits_of(2.0f * static_cast<float>(lane)) : 7u));
}

TEST_CASE("float instructions that the ISA does not have are refused") {
  const Given in = lanes_of(32, [](int) { return 0; });
  const Given wide = lanes_of(64, [](int) { return 0; });
  CHECK_THROWS_AS(compute("fma.f32", 32, {in, in, in}), ptx::Error);
  CHECK_THROWS_AS(compute("div.f32", 32, {in, in}), ptx::Error);
  CHECK_THROWS_AS(compute("add.ftz.f64", 64, {wide, wide}), ptx::Error);
  CHECK_THROWS_AS(compute("add.rna.f32", 32, {in, in}), ptx::Error);
  CHECK_THROWS_AS(compute("div.rn.sat.f32", 32, {in, in}), ptx::Error);
  CHECK_THROWS_AS(compute("tanh.approx.ftz.f32", 32, {in}), ptx::Error);
  CHECK_THROWS_AS(compute("rcp.approx.ftz.f64", 64, {wide}), ptx::Error);
  CHECK_THROWS_AS(compute("max.f32", 32, {in, in, in}), ptx::Error);
}

}  // namespace sparsekiln::emulator

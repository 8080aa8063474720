#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
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

struct Type {
  const char* name;
  Format format;
};
constexpr Type kTypes[] = {{"f16", exact::kF16}, {"bf16", exact::kBf16}};

/// Runs "opcode %out0, %in0, …;".
LaneValues compute(const std::string& opcode, int bits, const std::vector<Given>& in) {
  std::string body = opcode + " %out0";
  for (std::size_t i = 0; i < in.size(); ++i) body += ", %in" + std::to_string(i);
  return run_warp(body + ";", in, {bits}).results[0];
}

Given all(std::uint16_t bits) {
  return lanes_of(16, [=](int) { return bits; });
}

Given numbers(std::mt19937_64& random, Format format, int bits) {
  return lanes_of(bits, [&](int) {
    const std::uint64_t low = exact::random_number(random, format);
    return bits == 16 ? low : low | exact::random_number(random, format) << 16;
  });
}

using Reference = std::function<std::optional<Number>(const std::vector<Number>&)>;

/// One by one and in pairs, against the exact result rounded once.
void check_rounded(const std::string& opcode, std::size_t operands, const Reference& reference) {
  std::mt19937_64 random(17);
  for (const Type& type : kTypes)
    for (const int bits : {16, 32}) {
      const std::string instruction = opcode + "." + type.name + (bits == 32 ? "x2" : "");
      CAPTURE(instruction);
      int compared = 0;
      for (int round = 0; round < 60; ++round) {
        std::vector<Given> in;
        for (std::size_t i = 0; i < operands; ++i) in.push_back(numbers(random, type.format, bits));
        const LaneValues got = compute(instruction, bits, in);
        for (int element = 0; element < 2 * bits; ++element) {
          const int lane = element % 32;
          const int shift = element / 32 * 16;
          std::vector<Number> values;
          for (const Given& given : in)
            values.push_back(exact::value(type.format, given.values[lane] >> shift & 0xffff));
          const auto want = reference(values);
          if (!want || want->units == 0) continue;
          CAPTURE(in[0].values[lane]);
          CAPTURE(in.back().values[lane]);
          CHECK((got[lane] >> shift & 0xffff) == exact::rounded(type.format, Mode::nearest_even, *want));
          ++compared;
        }
      }
      CHECK(compared > 1000);
    }
}

}  // namespace

TEST_CASE("f16 and bf16 sums, differences and products are rounded once") {
  check_rounded("add", 2, [](const auto& x) { return exact::sum(x[0], x[1]); });
  check_rounded("sub.rn", 2, [](const auto& x) { return exact::sum(x[0], {-x[1].units, x[1].exponent}); });
  check_rounded("mul", 2, [](const auto& x) { return exact::product(x[0], x[1]); });
}

TEST_CASE("f16 and bf16 fused multiply-adds are rounded once") {
  check_rounded("fma.rn", 3, [](const auto& x) { return exact::sum(exact::product(x[0], x[1]), x[2]); });
}

TEST_CASE("a fused multiply-add uses bits that do not fit into f32") {
  // 1025 · 1025 / 2^20 + 2^-24: the product is a tie between two f16, which the addend breaks upwards.
  const std::uint16_t factor = 0x6401;  // 1025
  const std::uint16_t tie = 0x3c01;     // 1 + 2^-10
  const std::uint64_t got = compute("fma.rn.f16", 16, {all(factor), all(tie), all(0x0001)})[0];
  const Number sum =
      *exact::sum(exact::product(exact::value(exact::kF16, factor), exact::value(exact::kF16, tie)),
                  exact::value(exact::kF16, 1));
  CHECK(got == exact::rounded(exact::kF16, Mode::nearest_even, sum));
}

TEST_CASE("half instructions give canonical NaNs and infinities") {
  CHECK(compute("add.f16", 16, {all(0x7c00), all(0xfc00)})[0] == 0x7fff);
  CHECK(compute("add.f16", 16, {all(0x7c01), all(0x3c00)})[0] == 0x7fff);
  CHECK(compute("mul.f16", 16, {all(0x7bff), all(0xc000)})[0] == 0xfc00);
  CHECK(compute("fma.rn.f16", 16, {all(0x7c00), all(0x3c00), all(0x3c00)})[0] == 0x7c00);
  CHECK(compute("fma.rn.bf16", 16, {all(0x7f7f), all(0x7f7f), all(0xff80)})[0] == 0xff80);
  CHECK(compute("fma.rn.bf16", 16, {all(0x7f80), all(0), all(0)})[0] == 0x7fff);
  CHECK(compute("add.bf16", 16, {all(0x7f7f), all(0x7f7f)})[0] == 0x7f80);
}

TEST_CASE("zeros of half instructions have the signs of IEEE 754") {
  CHECK(compute("add.f16", 16, {all(0x8000), all(0x8000)})[0] == 0x8000);
  CHECK(compute("sub.f16", 16, {all(0x3c00), all(0x3c00)})[0] == 0);
  CHECK(compute("mul.f16", 16, {all(0x8000), all(0x3c00)})[0] == 0x8000);
  CHECK(compute("fma.rn.f16", 16, {all(0x8000), all(0x3c00), all(0x8000)})[0] == 0x8000);
  CHECK(compute("fma.rn.f16", 16, {all(0xbc00), all(0x3c00), all(0x3c00)})[0] == 0);
}

TEST_CASE(".ftz of f16 flushes what goes in and what comes out") {
  CHECK(compute("add.ftz.f16", 16, {all(0x83ff), all(0x8000)})[0] == 0x8000);
  CHECK(compute("add.f16", 16, {all(0x83ff), all(0x8000)})[0] == 0x83ff);
  CHECK(compute("mul.ftz.f16", 16, {all(0x0400), all(0xb800)})[0] == 0x8000);  // 2^-14 · -0.5
  CHECK(compute("mul.f16", 16, {all(0x0400), all(0xb800)})[0] == 0x8200);
  // Rounded up to the least normal number first, which is none to flush: 2^-13 · (1 - 2^-11) / 2.
  CHECK(compute("mul.ftz.f16", 16, {all(0x07ff), all(0x3800)})[0] == 0x0400);
}

TEST_CASE(".sat and .relu bound results") {
  CHECK(compute("add.sat.f16", 16, {all(0x3c00), all(0x3c00)})[0] == 0x3c00);
  CHECK(compute("add.sat.f16", 16, {all(0xbc00), all(0x0000)})[0] == 0);
  CHECK(compute("add.sat.f16", 16, {all(0x7e00), all(0x0000)})[0] == 0);
  CHECK(compute("fma.rn.relu.f16", 16, {all(0xbc00), all(0x3c00), all(0x0000)})[0] == 0);
  CHECK(compute("fma.rn.relu.f16", 16, {all(0x3c00), all(0x4000), all(0x0000)})[0] == 0x4000);
  CHECK(compute("fma.rn.relu.bf16", 16, {all(0x7fc1), all(0x3f80), all(0x0000)})[0] == 0x7fff);
}

TEST_CASE("min and max of halves prefer numbers and order zeros, independently of the other half of a pair") {
  CHECK(compute("min.f16", 16, {all(0x7e01), all(0x3c00)})[0] == 0x3c00);
  CHECK(compute("max.f16", 16, {all(0x3c00), all(0xfe01)})[0] == 0x3c00);
  CHECK(compute("max.f16", 16, {all(0x7e01), all(0xfe01)})[0] == 0x7fff);
  CHECK(compute("max.NaN.f16", 16, {all(0x3c00), all(0xfe01)})[0] == 0x7fff);
  CHECK(compute("min.f16", 16, {all(0x0000), all(0x8000)})[0] == 0x8000);
  CHECK(compute("max.f16", 16, {all(0x8000), all(0x0000)})[0] == 0x0000);
  CHECK(compute("min.bf16", 16, {all(0xc000), all(0xbf80)})[0] == 0xc000);
  CHECK(compute("max.bf16", 16, {all(0xff80), all(0xff7f)})[0] == 0xff7f);
  CHECK(compute("min.xorsign.abs.f16", 16, {all(0xc000), all(0x3c00)})[0] == 0xbc00);
  CHECK(compute("max.ftz.f16", 16, {all(0x83ff), all(0xbc00)})[0] == 0x8000);
  const Given a = lanes_of(32, [](int) { return 0x7e013c00u; });
  const Given b = lanes_of(32, [](int) { return 0x40004400u; });
  CHECK(compute("min.f16x2", 32, {a, b})[5] == 0x40003c00u);
}

TEST_CASE("neg and abs of halves change only the sign") {
  CHECK(compute("neg.f16", 16, {all(0x3c00)})[0] == 0xbc00);
  CHECK(compute("abs.bf16", 16, {all(0xc000)})[0] == 0x4000);
  CHECK(compute("neg.ftz.f16", 16, {all(0x03ff)})[0] == 0x8000);
  const Given pair = lanes_of(32, [](int) { return 0xbc004000u; });
  CHECK(compute("abs.f16x2", 32, {pair})[0] == 0x3c004000u);
  CHECK(compute("neg.bf16x2", 32, {pair})[0] == 0x3c00c000u);
}

TEST_CASE("ex2 and tanh of halves are within one unit in the last place") {
  for (int i = -40; i < 40; ++i) {
    const auto in = static_cast<std::uint16_t>(exact::rounded(exact::kF16, Mode::nearest_even, {i, -3}));
    const auto real = [](std::uint64_t bits) {
      const Number number = exact::value(exact::kF16, bits);
      return std::ldexp(static_cast<double>(number.units), number.exponent);
    };
    const double exp2 = real(compute("ex2.approx.f16", 16, {all(in)})[0]);
    const double tanh = real(compute("tanh.approx.f16", 16, {all(in)})[0]);
    CHECK(std::abs(exp2 - std::exp2(i / 8.0)) <= 0x1p-11 * std::exp2(i / 8.0));
    CHECK(std::abs(tanh - std::tanh(i / 8.0)) <= 0x1p-11 * std::abs(std::tanh(i / 8.0)));
  }
}

TEST_CASE("only the active lanes of a guarded half instruction are written") {
  const std::string body =
      "mov.b16 %out0, 7; mov.b32 %out1, 9; setp.gt.u32 %p1, %lane, 20;"
      "@%p1 add.f16 %out0, %in0, %in0; @%p1 add.f16x2 %out1, %in1, %in1;";
  const WarpRun run = run_warp(body, {all(0x3c00), lanes_of(32, [](int) { return 0x3c00bc00u; })}, {16, 32});
  for (int lane = 0; lane < 32; ++lane) {
    CHECK(run.results[0][lane] == (lane > 20 ? 0x4000u : 7u));
    CHECK(run.results[1][lane] == (lane > 20 ? 0x4000c000u : 9u));
  }
}

TEST_CASE("half instructions that the ISA does not have are refused") {
  const Given in = all(0);
  CHECK_THROWS_AS(compute("add.rz.f16", 16, {in, in}), ptx::Error);
  CHECK_THROWS_AS(compute("mul.sat.bf16", 16, {in, in}), ptx::Error);
  CHECK_THROWS_AS(compute("fma.rn.ftz.bf16", 16, {in, in, in}), ptx::Error);
  CHECK_THROWS_AS(compute("fma.f16", 16, {in, in, in}), ptx::Error);
  CHECK_THROWS_AS(compute("ex2.approx.ftz.f16", 16, {in}), ptx::Error);
  CHECK_THROWS_AS(compute("ex2.approx.bf16", 16, {in}), ptx::Error);
  CHECK_THROWS_AS(compute("fma.rn.sat.relu.f16", 16, {in, in, in}), ptx::Error);
  CHECK_THROWS_AS(compute("div.rn.f16", 16, {in, in}), ptx::Error);
}

}  // namespace sparsekiln::emulator

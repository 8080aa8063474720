#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include "emulator/machine/memory.h"
#include "emulator/ptx/module.h"
#include "tests/emulator/isa/edge_values.h"
#include "tests/emulator/isa/exact.h"

namespace sparsekiln::emulator {
namespace {

using exact::Format;
using exact::Mode;
using exact::Number;

struct Integer {
  const char* name;
  int bits;
  bool is_signed;

  [[nodiscard]] exact::Wide value(std::uint64_t of) const {
    const exact::Wide size = exact::Wide{1} << bits;
    const exact::Wide low = of & static_cast<std::uint64_t>(size - 1);
    return is_signed && low >= size / 2 ? low - size : low;
  }
  [[nodiscard]] exact::Wide least() const {
    return is_signed ? -(exact::Wide{1} << (bits - 1)) : exact::Wide{0};
  }
  [[nodiscard]] exact::Wide greatest() const { return (exact::Wide{1} << (is_signed ? bits - 1 : bits)) - 1; }
  [[nodiscard]] int row() const { return std::max(bits, 16); }
};
constexpr Integer kIntegers[] = {{"u8", 8, false},   {"s8", 8, true},    {"u16", 16, false},
                                 {"s16", 16, true},  {"u32", 32, false}, {"s32", 32, true},
                                 {"u64", 64, false}, {"s64", 64, true}};
struct Real {
  const char* name;
  Format format;
};
constexpr Real kReals[] = {
    {"f16", exact::kF16}, {"bf16", exact::kBf16}, {"f32", exact::kF32}, {"f64", exact::kF64}};
constexpr std::pair<const char*, Mode> kRoundings[] = {
    {"rn", Mode::nearest_even}, {"rz", Mode::to_zero}, {"rm", Mode::down}, {"rp", Mode::up}};

std::uint64_t low_bits(exact::Wide value, int bits) {
  return static_cast<std::uint64_t>(value & ((exact::Wide{1} << bits) - 1));
}

LaneValues convert(const std::string& instruction, int to, const Given& from) {
  return run_warp(instruction + " %out0, %in0;", {from}, {to}).results[0];
}
std::uint64_t convert(const std::string& instruction, int to, int from, std::uint64_t value) {
  return convert(instruction, to, lanes_of(from, [=](int) { return value; }))[0];
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

/// All 65536, 512 a run.
void for_all_halves(const std::string& instruction, int to, const auto& check) {
  for (std::uint32_t first = 0; first < 0x10000; first += 512) {
    std::vector<Given> in;
    std::string body;
    for (std::uint32_t i = 0; i < 16; ++i) {
      in.push_back(lanes_of(16, [=](int lane) { return first + 32 * i + static_cast<std::uint32_t>(lane); }));
      const std::string number = std::to_string(i);
      body += instruction + " %out" + number + ", %in" + number + ";";
    }
    const WarpRun run = run_warp(body, in, std::vector<int>(16, to));
    for (std::uint32_t i = 0; i < 16; ++i)
      for (int lane = 0; lane < 32; ++lane) check(in[i].values[lane], run.results[i][lane]);
  }
}

/// Whether every number of `from` is one of `to`.
bool widens(const Real& from, const Real& to) {
  return from.format.fraction <= to.format.fraction && from.format.exponent <= to.format.exponent;
}

/// A number to a whole one.
exact::Wide whole(Mode mode, Number number) {
  if (number.exponent > 66)
    return (number.units < 0 ? -1 : 1) * (exact::Wide{1} << 100);  // beyond every integer
  if (number.exponent >= 0) return number.units * (exact::Wide{1} << number.exponent);
  const int shift = -number.exponent;
  const bool negative = number.units < 0;
  const exact::Wide magnitude = negative ? -number.units : number.units;
  exact::Wide kept = shift > 120 ? 0 : magnitude >> shift;
  const exact::Wide cut = shift > 120 ? magnitude : magnitude - (kept << shift);
  const exact::Wide half = shift > 120 ? exact::Wide{1} << 120 : exact::Wide{1} << (shift - 1);
  const bool up = mode == Mode::nearest_even ? cut > half || (cut == half && kept % 2 != 0)
                  : mode == Mode::up         ? cut != 0 && !negative
                  : mode == Mode::down       ? cut != 0 && negative
                                             : false;
  if (up) ++kept;
  return negative ? -kept : kept;
}

}  // namespace

TEST_CASE(
    "every pair of integer types is truncated and extended as the types say, in registers of any width") {
  std::mt19937_64 random(2);
  for (const Integer& to : kIntegers)
    for (const Integer& from : kIntegers)
      for (const int to_row : {16, 32, 64})
        for (const int from_row : {16, 32, 64}) {
          if (to_row < to.bits || from_row < from.bits) continue;
          const std::string instruction = std::string("cvt.") + to.name + "." + from.name;
          CAPTURE(instruction);
          CAPTURE(to_row);
          CAPTURE(from_row);
          const Given in = edge_values(random, from_row);
          const LaneValues got = convert(instruction, to_row, in);
          for (int lane = 0; lane < 32; ++lane) {
            CAPTURE(in.values[lane]);
            const std::uint64_t cut = low_bits(from.value(in.values[lane]), to.bits);
            CHECK(got[lane] == low_bits(to.value(cut), to_row));
          }
        }
}

TEST_CASE(".sat of integers clamps to the range of the result") {
  std::mt19937_64 random(3);
  for (const Integer& to : kIntegers)
    for (const Integer& from : kIntegers) {
      const std::string instruction = std::string("cvt.sat.") + to.name + "." + from.name;
      CAPTURE(instruction);
      if (from.least() >= to.least() && from.greatest() <= to.greatest()) continue;
      const Given in = edge_values(random, from.row());
      const LaneValues got = convert(instruction, to.row(), in);
      for (int lane = 0; lane < 32; ++lane) {
        CAPTURE(in.values[lane]);
        CHECK(got[lane] ==
              low_bits(std::clamp(from.value(in.values[lane]), to.least(), to.greatest()), to.row()));
      }
    }
}

TEST_CASE("integers become floating point rounded in all four directions") {
  std::mt19937_64 random(4);
  for (const Real& to : kReals)
    for (const Integer& from : kIntegers)
      for (const auto& [modifier, mode] : kRoundings) {
        const std::string instruction = std::string("cvt.") + modifier + "." + to.name + "." + from.name;
        CAPTURE(instruction);
        const Given in = edge_values(random, from.row());
        const LaneValues got = convert(instruction, to.format.bits(), in);
        for (int lane = 0; lane < 32; ++lane) {
          CAPTURE(in.values[lane]);
          CHECK(got[lane] == exact::rounded(to.format, mode, {from.value(in.values[lane]), 0}));
        }
      }
}

TEST_CASE("floating point becomes integers rounded in all four directions and clamped") {
  std::mt19937_64 random(5);
  for (const Real& from : kReals)
    for (const Integer& to : kIntegers)
      for (const auto& [modifier, mode] : kRoundings) {
        const std::string instruction = std::string("cvt.") + modifier + "i." + to.name + "." + from.name;
        CAPTURE(instruction);
        const Given in = lanes_of(from.format.bits(), [&](int lane) -> std::uint64_t {
          if (lane < 24) return exact::random_number(random, from.format);
          if (lane < 28)
            return exact::rounded(from.format, Mode::nearest_even, {to.greatest() + lane - 26, 0});
          return exact::rounded(from.format, Mode::nearest_even, {to.least() * 2 + lane - 29, -1});
        });
        const LaneValues got = convert(instruction, to.row(), in);
        for (int lane = 0; lane < 32; ++lane) {
          CAPTURE(in.values[lane]);
          if (!from.format.is_finite(in.values[lane])) continue;
          const exact::Wide number = whole(mode, exact::value(from.format, in.values[lane]));
          CHECK(got[lane] == low_bits(std::clamp(number, to.least(), to.greatest()), to.row()));
        }
      }
}

TEST_CASE("NaNs and infinities become the integers that the ISA names") {
  const std::uint64_t nan64 = 0x7ff8000000000000;
  CHECK(convert("cvt.rzi.s32.f32", 32, 32, 0x7fc00000) == 0);
  CHECK(convert("cvt.rzi.u32.f32", 32, 32, 0x7fc00000) == 0);
  CHECK(convert("cvt.rzi.s16.f16", 16, 16, 0x7e00) == 0);
  CHECK(convert("cvt.rzi.s64.f32", 64, 32, 0x7fc00000) == 0x8000000000000000);
  CHECK(convert("cvt.rzi.u64.f32", 64, 32, 0x7fc00000) == 0x8000000000000000);
  CHECK(convert("cvt.rzi.s32.f64", 32, 64, nan64) == 0x80000000);
  CHECK(convert("cvt.rzi.u64.f64", 64, 64, nan64) == 0x8000000000000000);
  CHECK(convert("cvt.rzi.s32.f32", 32, 32, 0x7f800000) == 0x7fffffff);
  CHECK(convert("cvt.rzi.s32.f32", 32, 32, 0xff800000) == 0x80000000);
  CHECK(convert("cvt.rzi.u32.f32", 32, 32, 0xff800000) == 0);
  CHECK(convert("cvt.rzi.u64.f64", 64, 64, 0x7ff0000000000000) == 0xffffffffffffffff);
}

TEST_CASE(".ftz takes subnormal numbers as zero before they are rounded to integers") {
  CHECK(convert("cvt.rpi.s32.f32", 32, 32, 1) == 1);
  CHECK(convert("cvt.rpi.ftz.s32.f32", 32, 32, 1) == 0);
  CHECK(convert("cvt.rmi.ftz.s32.f32", 32, 32, 0x80000001) == 0);
  CHECK(convert("cvt.rmi.s32.f32", 32, 32, 0x80000001) == 0xffffffff);
}

TEST_CASE("every f16 is the same number as f32 and as f64") {
  for_all_halves("cvt.f32.f16", 32, [](std::uint64_t in, std::uint64_t got) {
    if (!exact::kF16.is_finite(in)) {
      CHECK(got == (exact::kF16.is_nan(in) ? 0x7fffffffu : (in & 0x8000) << 16 | 0x7f800000u));
    } else {
      const std::uint64_t sign = (in & 0x8000) << 16;  // of a zero as well
      CHECK(got == (exact::rounded(exact::kF32, Mode::to_zero, exact::value(exact::kF16, in)) | sign));
    }
  });
}

TEST_CASE("every bf16 is the same number as f32") {
  for_all_halves("cvt.f32.bf16", 32, [](std::uint64_t in, std::uint64_t got) {
    CHECK(got == (exact::kBf16.is_nan(in) ? 0x7fffffffu : in << 16));
  });
}

TEST_CASE("every f16 comes back from f32 unchanged, and a NaN as the canonical one") {
  for (std::uint32_t first = 0; first < 0x10000; first += 512) {
    std::vector<Given> in;
    std::string body;
    for (std::uint32_t i = 0; i < 16; ++i) {
      in.push_back(lanes_of(16, [=](int lane) { return first + 32 * i + static_cast<std::uint32_t>(lane); }));
      const std::string number = std::to_string(i);
      body += "cvt.f32.f16 %r1, %in" + number + "; cvt.rn.f16.f32 %out" + number + ", %r1;";
    }
    const WarpRun run = run_warp(body, in, std::vector<int>(16, 16));
    for (std::uint32_t i = 0; i < 16; ++i)
      for (int lane = 0; lane < 32; ++lane)
        CHECK(run.results[i][lane] ==
              (exact::kF16.is_nan(in[i].values[lane]) ? 0x7fffu : in[i].values[lane]));
  }
}

TEST_CASE("floating point becomes narrower rounded in all four directions") {
  std::mt19937_64 random(6);
  for (const Real& to : kReals)
    for (const Real& from : kReals) {
      if (widens(from, to)) continue;
      for (const auto& [modifier, mode] : kRoundings) {
        const std::string instruction = std::string("cvt.") + modifier + "." + to.name + "." + from.name;
        CAPTURE(instruction);
        for (int round = 0; round < 20; ++round) {
          const Given in = lanes_of(from.format.bits(), [&](int lane) -> std::uint64_t {
            if (lane % 2 != 0) return exact::random_number(random, from.format);
            // Near a number of the narrow format, or half-way between two.
            Number number = exact::value(to.format, exact::random_number(random, to.format));
            number = {number.units * 4096 + (lane % 4 == 0 ? 2048 : 0) + static_cast<int>(random() % 3) - 1,
                      number.exponent - 12};
            return exact::rounded(from.format, Mode::nearest_even, number);
          });
          const LaneValues got = convert(instruction, to.format.bits(), in);
          for (int lane = 0; lane < 32; ++lane) {
            if (!from.format.is_finite(in.values[lane])) continue;
            CAPTURE(in.values[lane]);
            const bool negative = (in.values[lane] & from.format.sign()) != 0;
            const Number number = exact::value(from.format, in.values[lane]);
            CHECK(got[lane] == (exact::rounded(to.format, mode, number) | (negative ? to.format.sign() : 0)));
          }
        }
      }
    }
}

TEST_CASE("tf32 has 10 bits of fraction, rounded to nearest, away from zero or towards it") {
  std::mt19937_64 random(7);
  const std::pair<const char*, Mode> roundings[] = {
      {"rn", Mode::nearest_even}, {"rz", Mode::to_zero}, {"rna", Mode::nearest_away}};
  for (const auto& [modifier, mode] : roundings) {
    const Given in = lanes_of(32, [&](int lane) {
      const std::uint64_t number = exact::random_number(random, exact::kF32);
      return lane % 2 == 0 ? (number & ~std::uint64_t{0x1fff}) | 0x1000 : number;
    });
    const LaneValues got = convert(std::string("cvt.") + modifier + ".tf32.f32", 32, in);
    for (int lane = 0; lane < 32; ++lane) {
      const Number number = exact::value(exact::kF32, in.values[lane]);
      const std::uint64_t sign = in.values[lane] & 0x80000000u;
      CHECK(got[lane] == ((exact::rounded(exact::kTf32, mode, number) & 0x3ffff) << 13 | sign));
    }
  }
  CHECK(convert("cvt.rna.satfinite.tf32.f32", 32, 32, 0x7f800000) == 0x7f7fe000);
  CHECK(convert("cvt.rn.relu.tf32.f32", 32, 32, 0xc0000000) == 0);
}

TEST_CASE("a pair takes its upper half from the first operand") {
  const Given one = lanes_of(32, [](int) { return bits_of(1.0f); });
  const Given minus_two = lanes_of(32, [](int) { return bits_of(-2.0f); });
  const auto pack = [&](const std::string& instruction) {
    return run_warp(instruction + " %out0, %in0, %in1;", {one, minus_two}, {32}).results[0][31];
  };
  CHECK(pack("cvt.rn.f16x2.f32") == 0x3c00c000u);
  CHECK(pack("cvt.rz.bf16x2.f32") == 0x3f80c000u);
  CHECK(pack("cvt.rn.relu.f16x2.f32") == 0x3c000000u);
}

TEST_CASE(".satfinite, .relu and .sat bound floating-point results") {
  CHECK(convert("cvt.rn.f16.f32", 16, 32, bits_of(1e6f)) == 0x7c00);
  CHECK(convert("cvt.rn.satfinite.f16.f32", 16, 32, bits_of(-1e6f)) == 0xfbff);
  CHECK(convert("cvt.rn.satfinite.bf16.f32", 16, 32, 0x7f800000) == 0x7f7f);
  CHECK(convert("cvt.rn.satfinite.f16.f32", 16, 32, 0x7fc00000) == 0x7fff);
  CHECK(convert("cvt.rz.f16.f32", 16, 32, bits_of(1e6f)) == 0x7bff);
  CHECK(convert("cvt.rn.relu.f16.f32", 16, 32, bits_of(-3.0f)) == 0);
  CHECK(convert("cvt.rn.relu.f16.f32", 16, 32, 0xffc00000) == 0x7fff);
  CHECK(convert("cvt.rn.sat.f16.f32", 16, 32, bits_of(3.0f)) == 0x3c00);
  CHECK(convert("cvt.sat.f32.f32", 32, 32, 0x7fc00000) == 0);
  CHECK(convert("cvt.rn.sat.f32.s32", 32, 32, 7) == bits_of(1.0f));
}

TEST_CASE("integer rounding within a format keeps the format and the sign of zero") {
  CHECK(convert("cvt.rni.f32.f32", 32, 32, bits_of(2.5f)) == bits_of(2.0f));
  CHECK(convert("cvt.rpi.f32.f32", 32, 32, bits_of(2.5f)) == bits_of(3.0f));
  CHECK(convert("cvt.rzi.f32.f32", 32, 32, bits_of(-0.5f)) == 0x80000000u);
  CHECK(convert("cvt.rmi.f16.f16", 16, 16, 0xb800) == 0xbc00);
  CHECK(convert("cvt.rni.f64.f64", 64, 64, std::bit_cast<std::uint64_t>(1e300)) ==
        std::bit_cast<std::uint64_t>(1e300));
}

TEST_CASE("floating point in wider registers uses the low bits, and the others become zero") {
  CHECK(convert("cvt.f32.f16", 32, 32, 0xffff3c00) == bits_of(1.0f));
  CHECK(convert("cvt.rn.f16.f32", 32, 32, bits_of(-1.0f)) == 0xbc00);
}

TEST_CASE("only the active lanes of a guarded conversion are written") {
  const Given in = lanes_of(32, [](int lane) { return bits_of(static_cast<float>(lane)); });
  const WarpRun run = run_warp(
      "mov.b16 %out0, 7; mov.b32 %out1, 7; setp.lt.u32 %p1, %lane, 3;"
      "@%p1 cvt.rn.f16.f32 %out0, %in0; @%p1 cvt.rzi.s32.f32 %out1, %in0;",
      {in}, {16, 32});
  CHECK(run.results[0][2] == 0x4000);
  CHECK(run.results[0][3] == 7);
  CHECK(run.results[1][2] == 2);
  CHECK(run.results[1][31] == 7);
}

TEST_CASE("generic addresses are global ones, or are in a window") {
  const Given in = lanes_of(64, [](int lane) { return 4096 + static_cast<std::uint64_t>(lane); });
  const WarpRun run = run_warp(
      "cvta.shared.u64 %out0, %in0; cvta.to.shared.u64 %out1, %out0; cvta.to.global.u64 %out2, %in0;"
      "cvta.local.u64 %out3, %in0; isspacep.shared %p1, %out0; isspacep.global %p2, %out0;"
      "isspacep.global %p3, %in0; isspacep.local %p4, %out3;"
      "selp.u32 %out4, 1, 0, %p1; selp.u32 %out5, 1, 0, %p2; selp.u32 %out6, 1, 0, %p3; selp.u32 %out7, 1, "
      "0, %p4;",
      {in}, {64, 64, 64, 64, 32, 32, 32, 32});
  CHECK(run.results[0][5] == kSharedWindow + 4101);
  CHECK(run.results[1][5] == 4101);
  CHECK(run.results[2][5] == 4101);
  CHECK(run.results[3][5] == kLocalWindow + 4101);
  CHECK(run.results[4][5] == 1);
  CHECK(run.results[5][5] == 0);
  CHECK(run.results[6][5] == 1);
  CHECK(run.results[7][5] == 1);
}

TEST_CASE("conversions that the ISA does not have are refused") {
  const auto refused = [](const char* instruction, int to, int from) {
    CAPTURE(std::string(instruction));
    CHECK_THROWS_AS(convert(instruction, to, from, 0), ptx::Error);
  };
  refused("cvt.f32.s32", 32, 32);
  refused("cvt.s32.f32", 32, 32);
  refused("cvt.rn.s32.f32", 32, 32);
  refused("cvt.rn.f32.f16", 32, 16);
  refused("cvt.rn.f32.f32", 32, 32);
  refused("cvt.f16.f32", 16, 32);
  refused("cvt.rzi.f16.f32", 16, 32);
  refused("cvt.rn.u32.u16", 32, 16);
  refused("cvt.rzi.ftz.s32.f64", 32, 64);
  refused("cvt.rn.sat.bf16.f32", 16, 32);
  refused("cvt.rna.f16.f32", 16, 32);
  refused("cvt.rn.satfinite.e4m3x2.f32", 16, 32);
  refused("cvt.u32.u64", 16, 64);
}

}  // namespace sparsekiln::emulator

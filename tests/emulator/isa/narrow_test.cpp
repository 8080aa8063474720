#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "emulator/ptx/module.h"
#include "tests/emulator/isa/exact.h"
#include "tests/emulator/one_warp.h"

namespace sparsekiln::emulator {
namespace {

/// A format of 8 bits (PTX ISA 5.2.3).
struct Narrow {
  const char* name;
  int exponent, fraction, bias;
  std::uint32_t greatest;

  [[nodiscard]] bool is_nan(std::uint32_t bits) const {
    return exponent == 4 ? (bits & 0x7f) == 0x7f : (bits & 0x7f) > 0x7c;
  }
  /// Infinities as well.
  [[nodiscard]] double number(std::uint32_t bits) const {
    const int field = static_cast<int>(bits >> fraction) & ((1 << exponent) - 1);
    const int rest = static_cast<int>(bits) & ((1 << fraction) - 1);
    double value =
        std::ldexp(field == 0 ? rest : rest + (1 << fraction), (field == 0 ? 1 : field) - bias - fraction);
    if (exponent == 5 && field == 31) value = INFINITY;
    return (bits & 0x80) != 0 ? -value : value;
  }
  /// The nearest finite number's bits; of two that are equally near, those that are even.
  [[nodiscard]] std::uint32_t nearest(double value) const {
    std::uint32_t best = 0;
    for (std::uint32_t bits = 0; bits <= greatest; ++bits) {
      const double distance = std::abs(std::abs(value) - number(bits));
      const double least = std::abs(std::abs(value) - number(best));
      if (distance < least || (distance == least && bits % 2 == 0)) best = bits;
    }
    return best | (std::signbit(value) ? 0x80 : 0);
  }
};
constexpr Narrow kNarrow[] = {{"e4m3", 4, 3, 7, 0x7e}, {"e5m2", 5, 2, 15, 0x7b}};

double number_of(exact::Format format, std::uint64_t bits) {
  const exact::Number number = exact::value(format, bits);
  const double value = std::ldexp(static_cast<double>(number.units), number.exponent);
  return (bits & format.sign()) != 0 ? -std::abs(value) : value;
}

/// What bits of a wider format become; `relu` as the modifier.
std::uint32_t narrowed(const Narrow& to, exact::Format from, std::uint64_t bits, bool relu) {
  if (from.is_nan(bits)) return 0x7f;
  const bool negative = (bits & from.sign()) != 0;
  if (relu && negative) return 0;
  if (!from.is_finite(bits)) return to.greatest | (negative ? 0x80 : 0);
  return to.nearest(number_of(from, bits));
}

LaneValues convert(const std::string& instruction, int to, const std::vector<Given>& from) {
  return run_warp(instruction + " %out0, %in0" + (from.size() == 2 ? ", %in1;" : ";"), from, {to}).results[0];
}

std::string list(const char* name, int first, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i == 0 ? "%" : ", %") + (name + std::to_string(first + i));
  return text + "}";
}

}  // namespace

TEST_CASE("every number of 8 bits is the same number as f16") {
  for (const Narrow& format : kNarrow)
    for (const bool relu : {false, true})
      for (std::uint32_t first = 0; first < 256; first += 32) {
        const auto lower = [&](int lane) { return first + static_cast<std::uint32_t>(lane); };
        const LaneValues got =
            convert(std::string("cvt.rn.") + (relu ? "relu." : "") + "f16x2." + format.name + "x2", 32,
                    {lanes_of(16, [&](int lane) { return lower(lane) | 0x3800; })});
        for (int lane = 0; lane < 32; ++lane) {
          CAPTURE(lower(lane));
          const std::uint64_t half = got[lane] & 0xffff;
          if (format.is_nan(lower(lane))) {
            CHECK(half == 0x7fff);
          } else if (relu && (lower(lane) & 0x80) != 0) {
            CHECK(half == 0);
          } else if (std::isinf(format.number(lower(lane)))) {
            CHECK(half == (format.number(lower(lane)) < 0 ? 0xfc00 : 0x7c00));
          } else {
            CHECK(number_of(exact::kF16, half) == format.number(lower(lane)));
            CHECK((half >> 15) == (lower(lane) >> 7));
          }
          CHECK(number_of(exact::kF16, got[lane] >> 16) == format.number(0x38));
        }
      }
}

TEST_CASE("f32 becomes the nearest number of 8 bits, or the greatest") {
  std::mt19937_64 random(11);
  for (const Narrow& format : kNarrow)
    for (const bool relu : {false, true})
      for (int round = 0; round < 200; ++round) {
        const auto draw = [&](int lane) -> std::uint64_t {
          const std::uint64_t sign = random() % 2 << 31;
          if (round == 0 && lane < 8) return sign | 0x7f800000u | static_cast<unsigned>(lane % 2);
          // From below the least subnormal number to above the greatest, with ties.
          const std::uint64_t field = 127 - 20 + random() % 40;
          const std::uint64_t fraction = random() % 3 == 0 ? random() % 32 << 18 : random() % (1 << 23);
          return sign | field << 23 | fraction;
        };
        const Given a = lanes_of(32, draw);
        const Given b = lanes_of(32, draw);
        const LaneValues got = convert(
            std::string("cvt.rn.satfinite.") + (relu ? "relu." : "") + format.name + "x2.f32", 16, {a, b});
        for (int lane = 0; lane < 32; ++lane) {
          CAPTURE(a.values[lane]);
          CHECK((got[lane] >> 8) == narrowed(format, exact::kF32, a.values[lane], relu));
          CHECK((got[lane] & 0xff) == narrowed(format, exact::kF32, b.values[lane], relu));
        }
      }
}

TEST_CASE("f16 becomes the nearest number of 8 bits, or the greatest") {
  for (const Narrow& format : kNarrow)
    for (std::uint32_t first = 0; first < 65536; first += 32 * 7) {
      const auto lower = [&](int lane) { return (first + 7 * static_cast<std::uint32_t>(lane)) & 0xffff; };
      const LaneValues got =
          convert(std::string("cvt.rn.satfinite.") + format.name + "x2.f16x2", 16,
                  {lanes_of(32, [&](int lane) { return lower(lane) | (lower(lane) ^ 0x8000) << 16; })});
      for (int lane = 0; lane < 32; ++lane) {
        CAPTURE(lower(lane));
        CHECK((got[lane] & 0xff) == narrowed(format, exact::kF16, lower(lane), false));
        CHECK((got[lane] >> 8) == narrowed(format, exact::kF16, lower(lane) ^ 0x8000, false));
      }
    }
}

TEST_CASE("conversions of 8 bits that the ISA does not have are refused") {
  const auto refused = [](const char* instruction, int to, std::vector<Given> from) {
    const std::string text = instruction;
    CAPTURE(text);
    CHECK_THROWS_AS(static_cast<void>(convert(text, to, from)), ptx::Error);
  };
  const Given wide = lanes_of(32, [](int) { return 0; });
  const Given narrow = lanes_of(16, [](int) { return 0; });
  refused("cvt.rn.e4m3x2.f32", 16, {wide, wide});
  refused("cvt.rz.satfinite.e4m3x2.f32", 16, {wide, wide});
  refused("cvt.rn.satfinite.e4m3x2.bf16x2", 16, {wide});
  refused("cvt.rn.bf16x2.e4m3x2", 32, {narrow});
  refused("cvt.rn.satfinite.f16x2.e4m3x2", 32, {narrow});
}

TEST_CASE("mma of 8-bit floating point multiplies small integers exactly") {
  std::mt19937_64 random(5);
  for (const int k : {16, 32})
    for (const Narrow& a_type : kNarrow)
      for (const Narrow& b_type : kNarrow)
        for (const bool half : {false, true}) {
          const auto registers = [&](const Narrow& type, int count) {
            std::vector<Given> result;
            for (int i = 0; i < count; ++i)
              result.push_back(lanes_of(32, [&](int) {
                std::uint64_t word = 0;
                for (int byte = 0; byte < 4; ++byte)
                  word |= std::uint64_t{type.nearest(static_cast<int>(random() % 9) - 4)} << (8 * byte);
                return word;
              }));
            return result;
          };
          const std::vector<Given> a = registers(a_type, k / 8);
          const std::vector<Given> b = registers(b_type, k / 16);
          const exact::Format format = half ? exact::kF16 : exact::kF32;
          const int sum_registers = half ? 2 : 4;
          std::vector<Given> in = a;
          in.insert(in.end(), b.begin(), b.end());
          // 3 and -5, in every sum.
          const std::uint64_t sum = half ? 0xc5004200u : std::bit_cast<std::uint32_t>(3.0f);
          in.push_back(lanes_of(32, [&](int) { return sum; }));
          const int c = static_cast<int>(in.size()) - 1;
          std::string sums = "{";
          for (int i = 0; i < sum_registers; ++i) sums += (i == 0 ? "%in" : ", %in") + std::to_string(c);
          const std::string d_type = half ? "f16" : "f32";
          const std::string instruction = "mma.sync.aligned.m16n8k" + std::to_string(k) + ".row.col." +
                                          d_type + "." + a_type.name + "." + b_type.name + "." + d_type + " ";
          CAPTURE(instruction);
          const WarpRun run =
              run_warp(instruction + list("out", 0, sum_registers) + ", " + list("in", 0, k / 8) + ", " +
                           list("in", k / 8, k / 16) + ", " + sums + "};",
                       in, std::vector<int>(static_cast<std::size_t>(sum_registers), 32));
          // "Matrix Fragments for mma.m16n8k16" and "… m16n8k32" of 8 bits.
          double a_at[16][32] = {};
          double b_at[32][8] = {};
          const auto number = [](const Narrow& type, const std::vector<Given>& from, int lane, int i) {
            return type.number(from[static_cast<std::size_t>(i / 4)].values[lane] >> (i % 4 * 8) & 0xff);
          };
          for (int lane = 0; lane < 32; ++lane) {
            for (int i = 0; i < k / 2; ++i)
              a_at[lane / 4 + (i / 4 % 2 == 1 ? 8 : 0)][lane % 4 * 4 + i % 4 + (i < 8 ? 0 : 16)] =
                  number(a_type, a, lane, i);
            for (int i = 0; i < k / 4; ++i)
              b_at[lane % 4 * 4 + i % 4 + (i < 4 ? 0 : 16)][lane / 4] = number(b_type, b, lane, i);
          }
          for (int lane = 0; lane < 32; ++lane)
            for (int i = 0; i < 4; ++i) {
              double want = half && i % 2 == 1 ? -5 : 3;
              for (int j = 0; j < k; ++j)
                want += a_at[lane / 4 + (i < 2 ? 0 : 8)][j] * b_at[j][lane % 4 * 2 + i % 2];
              const std::uint64_t word = run.results[static_cast<std::size_t>(half ? i / 2 : i)][lane];
              CHECK(number_of(format, half ? word >> (i % 2 * 16) & 0xffff : word) == want);
            }
        }
}

}  // namespace sparsekiln::emulator

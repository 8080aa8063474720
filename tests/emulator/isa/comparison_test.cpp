#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include "emulator/ptx/module.h"
#include "tests/emulator/one_warp.h"

namespace sparsekiln::emulator {
namespace {

/// What a comparison says when a < b, a = b, a > b, and when one is NaN.
struct Row {
  const char* name;
  bool less, equal, greater, unordered;
};
constexpr Row kIntegers[] = {
    {"eq", false, true, false, false}, {"ne", true, false, true, false},  {"lt", true, false, false, false},
    {"le", true, true, false, false},  {"gt", false, false, true, false}, {"ge", false, true, true, false},
};
constexpr Row kUnsigned[] = {
    {"lo", true, false, false, false},
    {"ls", true, true, false, false},
    {"hi", false, false, true, false},
    {"hs", false, true, true, false},
};
constexpr Row kFloats[] = {
    {"eq", false, true, false, false}, {"ne", true, false, true, false},   {"lt", true, false, false, false},
    {"le", true, true, false, false},  {"gt", false, false, true, false},  {"ge", false, true, true, false},
    {"equ", false, true, false, true}, {"neu", true, false, true, true},   {"ltu", true, false, false, true},
    {"leu", true, true, false, true},  {"gtu", false, false, true, true},  {"geu", false, true, true, true},
    {"num", true, true, true, false},  {"nan", false, false, false, true},
};

bool expected(const Row& row, double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return row.unordered;
  return a < b ? row.less : a == b ? row.equal : row.greater;
}

/// Compares each of `values` with each other one, 32 at a time; `number` says what a value is.
template <class Number>
void check(const Row& row, const std::string& modifiers, int bits, const std::vector<std::uint64_t>& values,
           Number number) {
  const std::string body =
      std::string("setp.") + row.name + modifiers + " %p1, %in0, %in1; selp.u32 %out0, 1, 0, %p1;";
  CAPTURE(body);
  const std::size_t n = values.size();
  for (std::size_t first = 0; first < n * n; first += 32) {
    const auto pair = [&](int lane) { return (first + static_cast<std::size_t>(lane)) % (n * n); };
    const Given a = lanes_of(bits, [&](int lane) { return values[pair(lane) / n]; });
    const Given b = lanes_of(bits, [&](int lane) { return values[pair(lane) % n]; });
    const LaneValues got = run_warp(body, {a, b}, {32}).results[0];
    for (int lane = 0; lane < 32; ++lane) {
      CAPTURE(a.values[lane]);
      CAPTURE(b.values[lane]);
      CHECK(got[lane] == expected(row, number(a.values[lane]), number(b.values[lane])));
    }
  }
}

double f32_of(std::uint64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }
double f64_of(std::uint64_t bits) { return std::bit_cast<double>(bits); }
/// A number of `exponent` and `fraction` bits with a sign above them.
double small_float(std::uint64_t bits, int exponent, int fraction) {
  const auto field = static_cast<int>(bits >> fraction & ((1u << exponent) - 1));
  const auto rest = static_cast<double>(bits & ((1u << fraction) - 1));
  const int bias = (1 << (exponent - 1)) - 1;
  double value = field == 0 ? std::ldexp(rest, 1 - bias - fraction)
                            : std::ldexp(rest + (1 << fraction), field - bias - fraction);
  if (field == (1 << exponent) - 1)
    value = rest == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  return (bits >> (exponent + fraction) & 1) != 0 ? -value : value;
}

const std::vector<std::uint64_t> kF32 = {
    0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x807fffff, 0x00800000, 0x3f800000,
    0xbf800000, 0x3f800001, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001};
const std::vector<std::uint64_t> kF16 = {0,      0x8000, 1,      0x8001, 0x03ff, 0x83ff,
                                         0x0400, 0x8400, 0x3c00, 0x3c01, 0xbc00, 0x7bff,
                                         0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xfe00};
const std::vector<std::uint64_t> kBf16 = {0,      0x8000, 1,      0x8001, 0x007f, 0x0080, 0x3f80, 0x3f81,
                                          0xbf80, 0x7f7f, 0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81};
const std::vector<std::uint64_t> kF64 = {0,
                                         0x8000000000000000,
                                         1,
                                         0x8000000000000001,
                                         0x000fffffffffffff,
                                         0x3ff0000000000000,
                                         0xbff0000000000000,
                                         0x3ff0000000000001,
                                         0x7fefffffffffffff,
                                         0x7ff0000000000000,
                                         0xfff0000000000000,
                                         0x7ff8000000000000,
                                         0x7ff0000000000001};

TEST_CASE("setp orders integers of every type") {
  for (const int bits : {16, 32, 64}) {
    const std::uint64_t top = std::uint64_t{1} << (bits - 1);
    const std::uint64_t all = top - 1 + top;
    const std::vector<std::uint64_t> values{0, 1, 2, top - 1, top, top + 1, all - 1, all};
    // In doubles only the order counts: of 64 bits, the neighbors at the ends would fall together.
    const auto place = [=](std::uint64_t value, bool is_signed) {
      std::uint64_t rank = 0;
      for (const std::uint64_t other : values)
        if (is_signed ? (other ^ top) < (value ^ top) : other < value) ++rank;
      return static_cast<double>(rank);
    };
    const std::string width = std::to_string(bits);
    for (const Row& row : kIntegers) {
      check(row, ".s" + width, bits, values, [=](std::uint64_t v) { return place(v, true); });
      check(row, ".u" + width, bits, values, [=](std::uint64_t v) { return place(v, false); });
    }
    for (const Row& row : kUnsigned)
      check(row, ".u" + width, bits, values, [=](std::uint64_t v) { return place(v, false); });
    check(kIntegers[0], ".b" + width, bits, values, [=](std::uint64_t v) { return place(v, false); });
    check(kIntegers[1], ".b" + width, bits, values, [=](std::uint64_t v) { return place(v, false); });
  }
}

TEST_CASE("setp orders floating-point numbers, and says where NaN stands") {
  for (const Row& row : kFloats) {
    check(row, ".f32", 32, kF32, f32_of);
    check(row, ".f64", 64, kF64, f64_of);
    check(row, ".f16", 16, kF16, [](std::uint64_t v) { return small_float(v, 5, 10); });
    check(row, ".bf16", 16, kBf16, [](std::uint64_t v) { return small_float(v, 8, 7); });
  }
}

TEST_CASE("setp.ftz treats subnormal numbers as zeros") {
  const auto flush = [](double value, double least) { return std::abs(value) < least ? 0 : value; };
  for (const Row& row : kFloats) {
    check(row, ".ftz.f32", 32, kF32, [=](std::uint64_t v) { return flush(f32_of(v), 0x1p-126); });
    check(row, ".ftz.f16", 16, kF16, [=](std::uint64_t v) { return flush(small_float(v, 5, 10), 0x1p-14); });
  }
}

TEST_CASE("setp of a pair answers for each half") {
  const auto run =
      run_warp("setp.lt.f16x2 %p1|%p2, %in0, %in1; selp.u32 %out0, 1, 0, %p1; selp.u32 %out1, 1, 0, %p2;",
               {lanes_of(32, [](int lane) { return lane % 2 == 0 ? 0x3c00'0000u : 0x0000'3c00u; }),
                lanes_of(32, [](int) { return 0x3800'3800u; })},
               {32, 32});
  for (int lane = 0; lane < 32; ++lane) {
    CHECK(run.results[0][lane] == (lane % 2 == 0));
    CHECK(run.results[1][lane] == (lane % 2 != 0));
  }
}

TEST_CASE("setp combines its result with a predicate, and its negation as well") {
  for (const std::string join : {"and", "or", "xor"})
    for (const std::string negation : {"", "!"}) {
      CAPTURE(join);
      CAPTURE(negation);
      const auto run = run_warp("and.b32 %r1, %lane, 1; setp.ne.u32 %p1, %r1, 0; setp.lt." + join +
                                    ".u32 %p2|%p3, %lane, 10, " + negation +
                                    "%p1; selp.u32 %out0, 1, 0, %p2; selp.u32 %out1, 1, 0, %p3;",
                                {}, {32, 32});
      for (int lane = 0; lane < 32; ++lane) {
        const bool other = (lane % 2 != 0) != (negation == "!");
        const auto joined = [&](bool t) {
          return join == "and" ? t && other : join == "or" ? t || other : t != other;
        };
        CHECK(run.results[0][lane] == joined(lane < 10));
        CHECK(run.results[1][lane] == joined(!(lane < 10)));
      }
    }
}

TEST_CASE("one of setp's results may be left out") {
  const auto run = run_warp("setp.lt.u32 _|%p1, %lane, 10; selp.u32 %out0, 1, 0, %p1;", {}, {32});
  for (int lane = 0; lane < 32; ++lane) CHECK(run.results[0][lane] == (lane >= 10));
}

TEST_CASE("set gives all ones, or 1.0") {
  const auto run = run_warp(
      "set.lt.u32.u32 %out0, %lane, 10; set.ge.f32.s32 %out1, %lane, 10; setp.eq.u32 %p1, %lane, 3; "
      "set.lt.and.s32.u32 %out2, %lane, 10, !%p1;",
      {}, {32, 32, 32});
  for (int lane = 0; lane < 32; ++lane) {
    CHECK(run.results[0][lane] == (lane < 10 ? 0xffffffffu : 0));
    CHECK(run.results[1][lane] == (lane >= 10 ? 0x3f800000u : 0));
    CHECK(run.results[2][lane] == (lane < 10 && lane != 3 ? 0xffffffffu : 0));
  }
}

TEST_CASE("a comparison that a type does not have is refused") {
  for (const char* body :
       {"setp.lo.s32 %p1, %r1, %r2;", "setp.ltu.s32 %p1, %r1, %r2;", "setp.lt.b32 %p1, %r1, %r2;",
        "setp.lo.f32 %p1, %r1, %r2;", "setp.lt.ftz.f64 %p1, %d1, %d2;", "setp.lt.ftz.s32 %p1, %r1, %r2;",
        "setp.lt.f16x2 %p1, %r1, %r2;"}) {
    CAPTURE(body);
    CHECK_THROWS_AS(static_cast<void>(run_warp(body, {}, {})), ptx::Error);
  }
}

TEST_CASE("selp selects in every width") {
  for (const int bits : {16, 32, 64}) {
    const std::string type = std::to_string(bits);
    const Given a = lanes_of(bits, [](int lane) { return lane + 1; });
    const Given b = lanes_of(bits, [](int lane) { return lane + 1001; });
    const auto run = run_warp("setp.lt.u32 %p1, %lane, 19; selp.b" + type +
                                  " %out0, %in0, %in1, %p1; selp.b" + type + " %out1, %in0, %in1, !%p1;",
                              {a, b}, {bits, bits});
    for (std::uint64_t lane = 0; lane < 32; ++lane) {
      CHECK(run.results[0][lane] == lane + (lane < 19 ? 1 : 1001));
      CHECK(run.results[1][lane] == lane + (lane < 19 ? 1001 : 1));
    }
  }
}

TEST_CASE("slct selects by a sign; NaN selects the second, and minus zero the first") {
  const std::uint32_t numbers[] = {0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x7fc00000, 0x80000001};
  const Given c = lanes_of(32, [&](int lane) { return numbers[lane % 6]; });
  const auto run = run_warp(
      "slct.u32.f32 %out0, 1, 2, %in0; slct.ftz.u32.f32 %out1, 1, 2, %in0; slct.u64.s32 %out2, 1, 2, %in0;",
      {c}, {32, 32, 64});
  const std::uint64_t by_float[] = {1, 1, 1, 2, 2, 2}, flushed[] = {1, 1, 1, 2, 2, 1},
                      by_integer[] = {1, 2, 1, 2, 1, 2};
  for (int lane = 0; lane < 32; ++lane) {
    CHECK(run.results[0][lane] == by_float[lane % 6]);
    CHECK(run.results[1][lane] == flushed[lane % 6]);
    CHECK(run.results[2][lane] == by_integer[lane % 6]);
  }
}

TEST_CASE("testp knows the classes of numbers, zeros among the normal ones") {
  const auto check_class = [](const std::string& name, int bits, const std::vector<std::uint64_t>& values,
                              auto holds) {
    const Given given =
        lanes_of(bits, [&](int lane) { return values[static_cast<std::size_t>(lane) % values.size()]; });
    const auto run =
        run_warp("testp." + name + ".f" + std::to_string(bits) + " %p1, %in0; selp.u32 %out0, 1, 0, %p1;",
                 {given}, {32});
    CAPTURE(name);
    for (int lane = 0; lane < 32; ++lane) {
      CAPTURE(given.values[lane]);
      const int sort =
          bits == 32 ? std::fpclassify(std::bit_cast<float>(static_cast<std::uint32_t>(given.values[lane])))
                     : std::fpclassify(std::bit_cast<double>(given.values[lane]));
      CHECK(run.results[0][lane] == holds(sort));
    }
  };
  for (const int bits : {32, 64}) {
    const auto& values = bits == 32 ? kF32 : kF64;
    check_class("finite", bits, values, [](int sort) { return sort != FP_INFINITE && sort != FP_NAN; });
    check_class("infinite", bits, values, [](int sort) { return sort == FP_INFINITE; });
    check_class("number", bits, values, [](int sort) { return sort != FP_NAN; });
    check_class("notanumber", bits, values, [](int sort) { return sort == FP_NAN; });
    check_class("normal", bits, values, [](int sort) { return sort == FP_NORMAL || sort == FP_ZERO; });
    check_class("subnormal", bits, values, [](int sort) { return sort == FP_SUBNORMAL; });
  }
}

}  // namespace
}  // namespace sparsekiln::emulator

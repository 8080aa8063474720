#include <algorithm>
#include <functional>
#include <string>
#include <type_traits>

#include <doctest/doctest.h>

#include "emulator/machine/report.h"
#include "emulator/ptx/module.h"
#include "tests/emulator/isa/edge_values.h"

namespace sparsekiln::emulator {
namespace {

__extension__ using Exact =
    __int128;  // holds every result here but those of 64 × 64 bits, which wrap in it as well

/// A number of a type: the low `bits` of a register, with its sign.
struct Type {
  const char* name;
  int bits;
  bool is_signed;

  [[nodiscard]] Exact value(std::uint64_t of) const {
    const Exact size = Exact{1} << bits;
    const Exact number = of;
    return is_signed && number >= size / 2 ? number - size : number;
  }
  [[nodiscard]] std::uint64_t wrap(Exact value) const {
    return static_cast<std::uint64_t>(value & ((Exact{1} << bits) - 1));
  }
};
constexpr Type kTypes[] = {{"u16", 16, false}, {"s16", 16, true},  {"u32", 32, false},
                           {"s32", 32, true},  {"u64", 64, false}, {"s64", 64, true}};

using Reference = std::function<Exact(const Exact* in)>;

/// Runs `opcode` on numbers of `type`, and compares with `reference` modulo the result's width. `widths` are
/// those of the inputs.
void check(const std::string& opcode, const Type& type, const Type& result, const std::vector<Type>& inputs,
           const Reference& reference) {
  std::mt19937_64 random(5);
  std::string body = opcode + " %out0";
  for (std::size_t i = 0; i < inputs.size(); ++i) body += ", %in" + std::to_string(i);
  body += ";";
  CAPTURE(body);
  CAPTURE(type.name);
  for (int round = 0; round < 8; ++round) {
    std::vector<Given> given;
    for (const Type& input : inputs) given.push_back(edge_values(random, input.bits));
    const LaneValues got = run_warp(body, given, {result.bits}).results[0];
    for (int lane = 0; lane < 32; ++lane) {
      Exact in[3] = {};
      for (std::size_t i = 0; i < inputs.size(); ++i) in[i] = inputs[i].value(given[i].values[lane]);
      CAPTURE(given[0].values[lane]);
      CAPTURE(given.back().values[lane]);
      CHECK(got[lane] == result.wrap(reference(in)));
    }
  }
}

void check_all(const std::string& opcode, std::size_t inputs, const Reference& reference) {
  for (const Type& type : kTypes)
    check(opcode + "." + type.name, type, type, std::vector<Type>(inputs, type), reference);
}

void check_signed(const std::string& opcode, const Reference& reference) {
  for (const Type& type : kTypes)
    if (type.is_signed) check(opcode + "." + type.name, type, type, {type}, reference);
}

TEST_CASE("add, sub, min, max and sad are right in every integer type") {
  check_all("add", 2, [](const Exact* in) { return in[0] + in[1]; });
  check_all("sub", 2, [](const Exact* in) { return in[0] - in[1]; });
  check_all("min", 2, [](const Exact* in) { return in[0] < in[1] ? in[0] : in[1]; });
  check_all("max", 2, [](const Exact* in) { return in[0] < in[1] ? in[1] : in[0]; });
  check_all("sad", 3,
            [](const Exact* in) { return in[2] + (in[0] < in[1] ? in[1] - in[0] : in[0] - in[1]); });
}

TEST_CASE("neg and abs are right in every signed type") {
  check_signed("neg", [](const Exact* in) { return -in[0]; });
  check_signed("abs", [](const Exact* in) { return in[0] < 0 ? -in[0] : in[0]; });
}

TEST_CASE("mul and mad keep the low half, the high half or all") {
  for (const Type& type : kTypes) {
    const std::string name = type.name;
    const int bits = type.bits;
    check("mul.lo." + name, type, type, {type, type}, [](const Exact* in) { return in[0] * in[1]; });
    check("mad.lo." + name, type, type, {type, type, type},
          [](const Exact* in) { return in[0] * in[1] + in[2]; });
    // Unsigned 64 × 64 bits may pass the top of a signed 128: the shift then needs no sign.
    const auto high = [bits, &type](const Exact* in) {
      __extension__ using Bits = unsigned __int128;
      return type.is_signed ? in[0] * in[1] >> bits
                            : static_cast<Exact>(static_cast<Bits>(in[0]) * static_cast<Bits>(in[1]) >> bits);
    };
    check("mul.hi." + name, type, type, {type, type}, high);
    check("mad.hi." + name, type, type, {type, type, type},
          [=](const Exact* in) { return high(in) + in[2]; });
    if (bits == 64) continue;
    const Type& wide = *std::find_if(std::begin(kTypes), std::end(kTypes), [&](const Type& other) {
      return other.bits == 2 * bits && other.is_signed == type.is_signed;
    });
    check("mul.wide." + name, type, wide, {type, type}, [](const Exact* in) { return in[0] * in[1]; });
    check("mad.wide." + name, type, wide, {type, type, wide},
          [](const Exact* in) { return in[0] * in[1] + in[2]; });
  }
}

TEST_CASE("mul24 and mad24 take 24 bits of each factor") {
  const auto low24 = [](Exact value, bool is_signed) {
    const Exact low = value & 0xffffff;
    return is_signed && low >= 0x800000 ? low - 0x1000000 : low;
  };
  for (const Type& type : {kTypes[2], kTypes[3]}) {
    const std::string name = type.name;
    const bool sign = type.is_signed;
    const auto product = [=](const Exact* in) { return low24(in[0], sign) * low24(in[1], sign); };
    check("mul24.lo." + name, type, type, {type, type}, product);
    check("mul24.hi." + name, type, type, {type, type}, [=](const Exact* in) { return product(in) >> 16; });
    check("mad24.lo." + name, type, type, {type, type, type},
          [=](const Exact* in) { return product(in) + in[2]; });
  }
}

TEST_CASE("saturated sums stop at the ends of the type") {
  const auto clamp = [](Exact value) {
    const Exact top = 0x7fffffff;
    return value > top ? top : value < -top - 1 ? -top - 1 : value;
  };
  const Type& s32 = kTypes[3];
  check("add.sat.s32", s32, s32, {s32, s32}, [=](const Exact* in) { return clamp(in[0] + in[1]); });
  check("sub.sat.s32", s32, s32, {s32, s32}, [=](const Exact* in) { return clamp(in[0] - in[1]); });
  check("mad.hi.sat.s32", s32, s32, {s32, s32, s32},
        [=](const Exact* in) { return clamp((in[0] * in[1] >> 32) + in[2]); });
}

TEST_CASE("relu of min and max is zero below zero") {
  const Type& s32 = kTypes[3];
  check("min.relu.s32", s32, s32, {s32, s32},
        [](const Exact* in) { return std::max<Exact>(std::min(in[0], in[1]), 0); });
  check("max.relu.s32", s32, s32, {s32, s32},
        [](const Exact* in) { return std::max<Exact>(std::max(in[0], in[1]), 0); });
}

TEST_CASE("div and rem round to zero in every integer type") {
  for (const Type& type : kTypes) {
    const std::string name = type.name;
    const std::string nonzero = type.bits == 64   ? "or.b64 %in1, %in1, 2; "
                                : type.bits == 32 ? "or.b32 %in1, %in1, 2; "
                                                  : "or.b16 %in1, %in1, 2; ";
    const auto divisor = [&type](const Exact* in) { return type.value(type.wrap(in[1]) | 2); };
    check(nonzero + "div." + name, type, type, {type, type},
          [=](const Exact* in) { return in[0] / divisor(in); });
    check(nonzero + "rem." + name, type, type, {type, type},
          [=](const Exact* in) { return in[0] % divisor(in); });
  }
}

TEST_CASE("the least number divided by minus one wraps around") {
  const Given least = lanes_of(32, [](int) { return 0x80000000u; });
  const Given minus_one = lanes_of(32, [](int) { return 0xffffffffu; });
  const auto run =
      run_warp("div.s32 %out0, %in0, %in1; rem.s32 %out1, %in0, %in1;", {least, minus_one}, {32, 32});
  CHECK(run.results[0][0] == 0x80000000u);
  CHECK(run.results[1][0] == 0);
}

TEST_CASE("division by zero is a fault, but not in a lane that does not divide") {
  const Given lane = lanes_of(32, [](int number) { return number; });
  CHECK_THROWS_AS(static_cast<void>(run_warp("div.u32 %out0, %in0, %in0;", {lane}, {32})), Fault);
  const auto run =
      run_warp("setp.ne.u32 %p1, %in0, 0; mov.u32 %out0, 9; @%p1 div.u32 %out0, %in0, %in0;", {lane}, {32});
  CHECK(run.results[0][0] == 9);
  CHECK(run.results[0][31] == 1);
}

TEST_CASE("dot products of bytes and halves add to the third operand") {
  const Type& u32 = kTypes[2];
  const auto part = [](Exact of, int bits, int i, bool sign) {
    const Exact value = of >> (bits * i) & ((1 << bits) - 1);
    return sign && value >= 1 << (bits - 1) ? value - (1 << bits) : value;
  };
  for (const bool a : {false, true})
    for (const bool b : {false, true}) {
      const std::string types = std::string(a ? ".s32" : ".u32") + (b ? ".s32" : ".u32");
      check("dp4a" + types, u32, u32, {u32, u32, u32}, [=](const Exact* in) {
        Exact sum = in[2];
        for (int i = 0; i < 4; ++i) sum += part(in[0], 8, i, a) * part(in[1], 8, i, b);
        return sum;
      });
      for (const bool high : {false, true})
        check(std::string(high ? "dp2a.hi" : "dp2a.lo") + types, u32, u32, {u32, u32, u32},
              [=](const Exact* in) {
                Exact sum = in[2];
                for (int i = 0; i < 2; ++i)
                  sum += part(in[0], 16, i, a) * part(in[1], 8, i + (high ? 2 : 0), b);
                return sum;
              });
    }
}

TEST_CASE("a guarded instruction leaves the other lanes alone in every width") {
  for (const int bits : {16, 32, 64}) {
    const std::string b = std::to_string(bits);
    const Given values = lanes_of(bits, [](int lane) { return 100 + lane; });
    const auto run = run_warp("and.b32 %r1, %lane, 4; setp.ne.u32 %p1, %r1, 0; mov.b" + b +
                                  " %out0, 7; @!%p1 add.u" + b + " %out0, %in0, %in0;",
                              {values}, {bits});
    for (std::uint64_t lane = 0; lane < 32; ++lane)
      CHECK(run.results[0][lane] == ((lane & 4) != 0 ? 7 : 2 * (100 + lane)));
  }
}

}  // namespace
}  // namespace sparsekiln::emulator

#include <algorithm>
#include <functional>
#include <string>

#include <doctest/doctest.h>

#include "tests/emulator/isa/edge_values.h"

namespace sparsekiln::emulator {
namespace {

using Reference = std::function<std::uint64_t(const std::uint64_t* in)>;

std::uint64_t ones(int bits) { return bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1; }

/// Inputs of `widths` (0: an amount, in 32 bits) against a reference of which `bits` count.
void check(const std::string& opcode, int bits, const std::vector<int>& widths, const Reference& reference) {
  std::mt19937_64 random(6);
  std::string body = opcode + " %out0";
  for (std::size_t i = 0; i < widths.size(); ++i) body += ", %in" + std::to_string(i);
  body += ";";
  CAPTURE(body);
  for (int round = 0; round < 8; ++round) {
    std::vector<Given> given;
    for (const int width : widths) given.push_back(width == 0 ? amounts(random) : edge_values(random, width));
    const LaneValues got = run_warp(body, given, {bits}).results[0];
    for (int lane = 0; lane < 32; ++lane) {
      std::uint64_t in[4] = {};
      for (std::size_t i = 0; i < widths.size(); ++i) in[i] = given[i].values[lane];
      CAPTURE(in[0]);
      CAPTURE(in[1]);
      CAPTURE(in[2]);
      CHECK(got[lane] == (reference(in) & ones(bits)));
    }
  }
}

TEST_CASE("bitwise operations are right in every width") {
  for (const int bits : {16, 32, 64}) {
    const std::string type = ".b" + std::to_string(bits);
    check("and" + type, bits, {bits, bits}, [](const std::uint64_t* in) { return in[0] & in[1]; });
    check("or" + type, bits, {bits, bits}, [](const std::uint64_t* in) { return in[0] | in[1]; });
    check("xor" + type, bits, {bits, bits}, [](const std::uint64_t* in) { return in[0] ^ in[1]; });
    check("not" + type, bits, {bits}, [](const std::uint64_t* in) { return ~in[0]; });
    check("cnot" + type, bits, {bits}, [](const std::uint64_t* in) { return in[0] == 0 ? 1 : 0; });
  }
}

TEST_CASE("shifts by the width and more shift everything out") {
  for (const int bits : {16, 32, 64}) {
    const std::string width = std::to_string(bits);
    const auto one_by_one = [bits](const std::uint64_t* in, auto step) {
      std::uint64_t value = in[0];
      for (std::uint64_t i = 0; i < std::min<std::uint64_t>(in[1], 70); ++i) value = step(value) & ones(bits);
      return value;
    };
    check("shl.b" + width, bits, {bits, 0},
          [=](const std::uint64_t* in) { return one_by_one(in, [](std::uint64_t v) { return v << 1; }); });
    for (const char* type : {"b", "u"})
      check(std::string("shr.") + type + width, bits, {bits, 0},
            [=](const std::uint64_t* in) { return one_by_one(in, [](std::uint64_t v) { return v >> 1; }); });
    const std::uint64_t sign = std::uint64_t{1} << (bits - 1);
    check("shr.s" + width, bits, {bits, 0}, [=](const std::uint64_t* in) {
      return one_by_one(in, [=](std::uint64_t v) { return v >> 1 | (v & sign); });
    });
  }
}

TEST_CASE("funnel shifts clamp or wrap their amount") {
  const auto both = [](const std::uint64_t* in) { return in[1] << 32 | in[0]; };
  const auto clamped = [](const std::uint64_t* in) { return std::min<std::uint64_t>(in[2], 32); };
  check("shf.l.clamp.b32", 32, {32, 32, 0},
        [=](const std::uint64_t* in) { return both(in) << clamped(in) >> 32; });
  check("shf.r.clamp.b32", 32, {32, 32, 0}, [=](const std::uint64_t* in) { return both(in) >> clamped(in); });
  check("shf.l.wrap.b32", 32, {32, 32, 0},
        [=](const std::uint64_t* in) { return both(in) << in[2] % 32 >> 32; });
  check("shf.r.wrap.b32", 32, {32, 32, 0}, [=](const std::uint64_t* in) { return both(in) >> in[2] % 32; });
}

TEST_CASE("lop3 looks every bit up in its table") {
  std::mt19937_64 random(61);
  for (int table = 0; table < 256; ++table) {
    const std::vector<Given> in{edge_values(random, 32), edge_values(random, 32), edge_values(random, 32)};
    const std::string body = "lop3.b32 %out0, %in0, %in1, %in2, " + std::to_string(table) + ";";
    const LaneValues got = run_warp(body, in, {32}).results[0];
    for (int lane = 0; lane < 32; ++lane) {
      std::uint64_t expected = 0;
      for (int bit = 0; bit < 32; ++bit) {
        const auto row = (in[0].values[lane] >> bit & 1) << 2 | (in[1].values[lane] >> bit & 1) << 1 |
                         (in[2].values[lane] >> bit & 1);
        expected |= static_cast<std::uint64_t>(table >> row & 1) << bit;
      }
      CAPTURE(table);
      CHECK(got[lane] == expected);
    }
  }
}

TEST_CASE("prmt picks bytes of two registers, or their signs") {
  check("prmt.b32", 32, {32, 32, 32}, [](const std::uint64_t* in) {
    std::uint64_t result = 0;
    for (int i = 0; i < 4; ++i) {
      const auto selector = in[2] >> (4 * i) & 15;
      const std::uint64_t from = (selector & 4) != 0 ? in[1] : in[0];
      std::uint64_t byte = from >> (8 * (selector & 3)) & 0xff;
      if (selector >= 8) byte = byte >= 128 ? 0xff : 0;
      result |= byte << (8 * i);
    }
    return result;
  });
}

TEST_CASE("prmt's modes pick as the ISA's table says") {
  const Given a = lanes_of(32, [](int) { return 0x33221100u; });
  const Given b = lanes_of(32, [](int) { return 0x77665544u; });
  const Given selector = lanes_of(32, [](int lane) { return lane; });
  const struct {
    const char* mode;
    std::uint32_t results[4];
  } rows[] = {
      {"f4e", {0x33221100, 0x44332211, 0x55443322, 0x66554433}},
      {"b4e", {0x55667700, 0x66770011, 0x77001122, 0x00112233}},
      {"rc8", {0x00000000, 0x11111111, 0x22222222, 0x33333333}},
      {"ecl", {0x33221100, 0x33221111, 0x33222222, 0x33333333}},
      {"ecr", {0x00000000, 0x11111100, 0x22221100, 0x33221100}},
      {"rc16", {0x11001100, 0x33223322, 0x11001100, 0x33223322}},
  };
  for (const auto& row : rows) {
    CAPTURE(row.mode);
    const std::string body = std::string("prmt.b32.") + row.mode + " %out0, %in0, %in1, %in2;";
    const LaneValues got = run_warp(body, {a, b, selector}, {32}).results[0];
    for (int lane = 0; lane < 32; ++lane) CHECK(got[lane] == row.results[lane % 4]);
  }
}

/// What counts of a position or a length: the low 8 bits, as the ISA says; of 64-bit types all, as an H100
/// takes them.
int counted(std::uint64_t number, int bits) {
  return static_cast<int>(bits == 64 ? std::min<std::uint64_t>(number, 1000) : number & 0xff);
}

/// The algorithm of 9.7.1.19, word for word.
std::uint64_t extracted(std::uint64_t a, std::uint64_t b, std::uint64_t c, int bits, bool is_signed) {
  const int msb = bits - 1;
  const int pos = counted(b, bits);
  const int len = counted(c, bits);
  const bool sbit = is_signed && len != 0 && (a >> std::min(pos + len - 1, msb) & 1) != 0;
  std::uint64_t d = 0;
  for (int i = 0; i <= msb; ++i) {
    const bool bit = i < len && pos + i <= msb ? (a >> (pos + i) & 1) != 0 : sbit;
    d |= static_cast<std::uint64_t>(bit) << i;
  }
  return d;
}

TEST_CASE("bfe extracts fields, also those that reach beyond the register") {
  for (const int bits : {32, 64})
    for (const bool is_signed : {false, true})
      check(std::string("bfe.") + (is_signed ? "s" : "u") + std::to_string(bits), bits, {bits, 0, 0},
            [=](const std::uint64_t* in) { return extracted(in[0], in[1], in[2], bits, is_signed); });
}

TEST_CASE("bfi inserts fields, and drops bits beyond the register") {
  for (const int bits : {32, 64})
    check("bfi.b" + std::to_string(bits), bits, {bits, bits, 0, 0}, [=](const std::uint64_t* in) {
      std::uint64_t f = in[1];
      const int pos = counted(in[2], bits);
      for (int i = 0; i < counted(in[3], bits) && pos + i < bits; ++i) {
        const std::uint64_t place = std::uint64_t{1} << (pos + i);
        f = (in[0] >> i & 1) != 0 ? f | place : f & ~place;
      }
      return f;
    });
}

TEST_CASE("bits are counted, reversed and found") {
  for (const int bits : {32, 64}) {
    const std::string width = std::to_string(bits);
    check("popc.b" + width, 32, {bits}, [=](const std::uint64_t* in) {
      std::uint64_t count = 0;
      for (int i = 0; i < bits; ++i) count += in[0] >> i & 1;
      return count;
    });
    check("clz.b" + width, 32, {bits}, [=](const std::uint64_t* in) {
      std::uint64_t count = 0;
      while (count < static_cast<std::uint64_t>(bits) &&
             (in[0] >> (static_cast<std::uint64_t>(bits) - 1 - count) & 1) == 0)
        ++count;
      return count;
    });
    check("brev.b" + width, bits, {bits}, [=](const std::uint64_t* in) {
      std::uint64_t result = 0;
      for (int i = 0; i < bits; ++i) result |= (in[0] >> i & 1) << (bits - 1 - i);
      return result;
    });
    for (const bool is_signed : {false, true})
      for (const bool amount : {false, true})
        check(std::string("bfind.") + (amount ? "shiftamt." : "") + (is_signed ? "s" : "u") + width, 32,
              {bits}, [=](const std::uint64_t* in) -> std::uint64_t {
                const bool negative = is_signed && (in[0] >> (bits - 1) & 1) != 0;
                const std::uint64_t value = negative ? ~in[0] & ones(bits) : in[0];
                for (int i = bits - 1; i >= 0; --i)
                  if ((value >> i & 1) != 0) return static_cast<std::uint64_t>(amount ? bits - 1 - i : i);
                return 0xffffffffu;
              });
  }
}

TEST_CASE("bmsk makes runs of ones, its operands clamped or wrapped") {
  // The algorithm of 9.7.1.22, word for word.
  const auto mask = [](std::uint64_t a, std::uint64_t b, bool clamp) {
    const std::uint64_t sum = (a & 31) + (b & 31);
    std::uint64_t mask0 = ones(32) << (a & 31) & ones(32);
    std::uint64_t mask1 = ones(32) << (sum & 31) & ones(32);
    const bool far = clamp && a >= 32, wide = clamp && b >= 32;
    if (far) mask0 = 0;
    if (sum >= 32 || far || wide)
      mask1 = 0;
    else if ((b & 31) == 0)
      mask1 = ones(32);
    return mask0 & ~mask1;
  };
  check("bmsk.clamp.b32", 32, {0, 0}, [=](const std::uint64_t* in) { return mask(in[0], in[1], true); });
  check("bmsk.wrap.b32", 32, {0, 0}, [=](const std::uint64_t* in) { return mask(in[0], in[1], false); });
}

TEST_CASE("fns finds the n-th set bit upwards, downwards or right here") {
  const Given bits = lanes_of(32, [](int) { return 0x90000105u; });  // 0, 2, 8, 28, 31
  const Given base = lanes_of(32, [](int lane) { return lane; });
  const auto run = run_warp(
      "fns.b32 %out0, %in0, %in1, 0; fns.b32 %out1, %in0, %in1, 1; fns.b32 %out2, %in0, %in1, 2; fns.b32 "
      "%out3, %in0, "
      "%in1, -2;",
      {bits, base}, {32, 32, 32, 32});
  const std::uint64_t none = 0xffffffffu;
  CHECK(run.results[0][2] == 2);
  CHECK(run.results[0][3] == none);
  CHECK(run.results[1][2] == 2);
  CHECK(run.results[1][3] == 8);
  CHECK(run.results[2][2] == 8);
  CHECK(run.results[2][31] == none);
  CHECK(run.results[3][31] == 28);
  CHECK(run.results[3][1] == none);
  CHECK(run.results[3][2] == 0);
}

TEST_CASE("predicates are combined and negated") {
  const auto run = run_warp(R"(
      and.b32 %r1, %lane, 1; setp.ne.u32 %p1, %r1, 0;
      and.b32 %r2, %lane, 2; setp.ne.u32 %p2, %r2, 0;
      and.pred %p3, %p1, %p2; selp.u32 %out0, 1, 0, %p3;
      or.pred %p3, %p1, !%p2; selp.u32 %out1, 1, 0, %p3;
      xor.pred %p3, %p1, %p2; selp.u32 %out2, 1, 0, %p3;
      not.pred %p3, %p1; selp.u32 %out3, 1, 0, %p3;)",
                            {}, {32, 32, 32, 32});
  for (std::uint64_t lane = 0; lane < 32; ++lane) {
    const bool p = (lane & 1) != 0, q = (lane & 2) != 0;
    CHECK(run.results[0][lane] == (p && q));
    CHECK(run.results[1][lane] == (p || !q));
    CHECK(run.results[2][lane] == (p != q));
    CHECK(run.results[3][lane] == !p);
  }
}

}  // namespace
}  // namespace sparsekiln::emulator

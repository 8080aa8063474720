#include <bit>
#include <cmath>
#include <string>

#include <doctest/doctest.h>

#include "emulator/machine/report.h"
#include "emulator/ptx/module.h"
#include "tests/emulator/isa/exact.h"
#include "tests/emulator/one_warp.h"

namespace sparsekiln::emulator {
namespace {

/// A place in a matrix.
struct Place {
  int row;
  int column;
};

/// An instruction, and where lane `lane` holds its i-th element of each matrix: the formulas that the PTX ISA
/// gives in "Matrix Fragments for mma.m16n8k4", "… m16n8k8" and "… m16n8k16".
struct Shape {
  const char* instruction;
  int k;
  exact::Format elements;
  exact::Format sums;
  int a_count, b_count;  ///< elements of a lane
  Place (*a)(int lane, int i);
  Place (*b)(int lane, int i);
};

constexpr int group(int lane) { return lane >> 2; }
constexpr int in_group(int lane) { return lane % 4; }

Place c(int lane, int i) { return {i < 2 ? group(lane) : group(lane) + 8, in_group(lane) * 2 + (i & 1)}; }

Place half_a16(int lane, int i) {
  const bool upper = (0 <= i && i < 2) || (4 <= i && i < 6);
  const int column = in_group(lane) * 2 + (i & 1);
  return {upper ? group(lane) : group(lane) + 8, i < 4 ? column : column + 8};
}
Place half_b16(int lane, int i) {
  const int row = in_group(lane) * 2 + (i & 1);
  return {i < 2 ? row : row + 8, group(lane)};
}
Place half_a8(int lane, int i) {
  return {i < 2 ? group(lane) : group(lane) + 8, in_group(lane) * 2 + (i & 1)};
}
Place half_b8(int lane, int i) { return {in_group(lane) * 2 + i, group(lane)}; }
Place tf32_a4(int lane, int i) { return {i == 0 ? group(lane) : group(lane) + 8, in_group(lane)}; }
Place tf32_b4(int lane, int) { return {in_group(lane), group(lane)}; }
Place tf32_a8(int lane, int i) {
  return {i == 0 || i == 2 ? group(lane) : group(lane) + 8, i < 2 ? in_group(lane) : in_group(lane) + 4};
}
Place tf32_b8(int lane, int i) { return {i == 0 ? in_group(lane) : in_group(lane) + 4, group(lane)}; }

using exact::kBf16;
using exact::kF16;
using exact::kF32;
const Shape kShapes[] = {
    {"m16n8k16.row.col.f32.f16.f16.f32", 16, kF16, kF32, 8, 4, half_a16, half_b16},
    {"m16n8k16.row.col.f32.bf16.bf16.f32", 16, kBf16, kF32, 8, 4, half_a16, half_b16},
    {"m16n8k16.row.col.f16.f16.f16.f16", 16, kF16, kF16, 8, 4, half_a16, half_b16},
    {"m16n8k8.row.col.f32.f16.f16.f32", 8, kF16, kF32, 4, 2, half_a8, half_b8},
    {"m16n8k8.row.col.f32.bf16.bf16.f32", 8, kBf16, kF32, 4, 2, half_a8, half_b8},
    {"m16n8k8.row.col.f16.f16.f16.f16", 8, kF16, kF16, 4, 2, half_a8, half_b8},
    {"m16n8k4.row.col.f32.tf32.tf32.f32", 4, kF32, kF32, 2, 1, tf32_a4, tf32_b4},
    {"m16n8k8.row.col.f32.tf32.tf32.f32", 8, kF32, kF32, 4, 2, tf32_a8, tf32_b8},
};

constexpr int kM = 16;
constexpr int kN = 8;

struct Matrix {
  double at[16][16] = {};
};

std::uint64_t bits_of(exact::Format format, double number) {
  int exponent = 0;
  const double units = std::ldexp(std::frexp(number, &exponent), 53);
  return exact::rounded(format, exact::Mode::nearest_even, {static_cast<std::int64_t>(units), exponent - 53});
}
double number_of(exact::Format format, std::uint64_t bits) {
  const exact::Number number = exact::value(format, bits);
  return std::ldexp(static_cast<double>(number.units), number.exponent);
}

/// The registers of a fragment of `count` elements a lane, packed from the low bits up.
std::vector<Given> pack(const Matrix& matrix, exact::Format format, int count, Place (*place)(int, int)) {
  const int in_register = 32 / format.bits();
  std::vector<Given> registers(static_cast<std::size_t>(count / in_register));
  for (int i = 0; i < count; ++i)
    for (int lane = 0; lane < 32; ++lane) {
      const Place at = place(lane, i);
      registers[static_cast<std::size_t>(i / in_register)].values[lane] |=
          bits_of(format, matrix.at[at.row][at.column]) << (i % in_register * format.bits());
    }
  return registers;
}

std::string list(const char* name, std::size_t first, std::size_t count) {
  std::string text = "{";
  for (std::size_t i = 0; i < count; ++i) text += (i == 0 ? "%" : ", %") + (name + std::to_string(first + i));
  return text + "}";
}

struct Result {
  Matrix matrix;
  std::uint64_t operations = 0;
};

Result multiply(const Shape& shape, const std::vector<Given>& a, const std::vector<Given>& b,
                const std::vector<Given>& sums) {
  std::vector<Given> in = a;
  in.insert(in.end(), b.begin(), b.end());
  in.insert(in.end(), sums.begin(), sums.end());
  const std::string body = std::string("mma.sync.aligned.") + shape.instruction + " " +
                           list("out", 0, sums.size()) + ", " + list("in", 0, a.size()) + ", " +
                           list("in", a.size(), b.size()) + ", " +
                           list("in", a.size() + b.size(), sums.size()) + ";";
  const WarpRun run = run_warp(body, in, std::vector<int>(sums.size(), 32));
  Result result;
  const int in_register = 32 / shape.sums.bits();
  for (int i = 0; i < 4; ++i)
    for (int lane = 0; lane < 32; ++lane) {
      const std::uint64_t bits = run.results[static_cast<std::size_t>(i / in_register)][lane];
      const std::uint64_t element = bits >> (i % in_register * shape.sums.bits());
      const Place at = c(lane, i);
      result.matrix.at[at.row][at.column] =
          number_of(shape.sums, element & ((std::uint64_t{1} << shape.sums.bits()) - 1));
    }
  for (const LineCounters& line : run.counters) result.operations += line.tensor_operations;
  return result;
}

Matrix random_matrix(std::mt19937_64& random, int rows, int columns, int bound) {
  Matrix matrix;
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column)
      matrix.at[row][column] = static_cast<double>(static_cast<int>(random() % (2 * bound + 1)) - bound);
  return matrix;
}

Given all(std::uint32_t bits) {
  return lanes_of(32, [=](int) { return bits; });
}

}  // namespace

TEST_CASE("mma multiplies small integers exactly, whatever the shape and the types") {
  std::mt19937_64 random(1);
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.instruction);
    for (int round = 0; round < 4; ++round) {
      const Matrix a = random_matrix(random, kM, shape.k, 9);
      const Matrix b = random_matrix(random, shape.k, kN, 9);
      const Matrix sums = random_matrix(random, kM, kN, 500);
      const Result got =
          multiply(shape, pack(a, shape.elements, shape.a_count, shape.a),
                   pack(b, shape.elements, shape.b_count, shape.b), pack(sums, shape.sums, 4, c));
      for (int m = 0; m < kM; ++m)
        for (int n = 0; n < kN; ++n) {
          double want = sums.at[m][n];
          for (int k = 0; k < shape.k; ++k) want += a.at[m][k] * b.at[k][n];
          CAPTURE(m);
          CAPTURE(n);
          CHECK(got.matrix.at[m][n] == want);
        }
      CHECK(got.operations == 2u * kM * kN * static_cast<unsigned>(shape.k));
    }
  }
}

TEST_CASE("mma of fractions is within the rounding of its sums") {
  std::mt19937_64 random(2);
  std::normal_distribution<double> normal;
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.instruction);
    const exact::Format kept = shape.elements.fraction == 23 ? exact::kTf32 : shape.elements;
    const auto draw = [&](int rows, int columns) {
      Matrix matrix;
      for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column)
          matrix.at[row][column] = number_of(kept, bits_of(kept, normal(random)));
      return matrix;
    };
    const Matrix a = draw(kM, shape.k);
    const Matrix b = draw(shape.k, kN);
    const Result got = multiply(shape, pack(a, shape.elements, shape.a_count, shape.a),
                                pack(b, shape.elements, shape.b_count, shape.b), pack({}, shape.sums, 4, c));
    const double unit = std::ldexp(1.0, -shape.sums.fraction - 1);
    for (int m = 0; m < kM; ++m)
      for (int n = 0; n < kN; ++n) {
        double want = 0;
        double magnitude = 0;
        for (int k = 0; k < shape.k; ++k) {
          want += a.at[m][k] * b.at[k][n];
          magnitude += std::abs(a.at[m][k] * b.at[k][n]);
        }
        CHECK(std::abs(got.matrix.at[m][n] - want) <= unit * shape.k * magnitude);
      }
  }
}

TEST_CASE("mma of bytes is exact for every mix of signs") {
  std::mt19937_64 random(3);
  for (const int k : {16, 32})
    for (const bool a_signed : {false, true})
      for (const bool b_signed : {false, true}) {
        const auto registers = [&](int count) {
          std::vector<Given> result;
          for (int i = 0; i < count; ++i)
            result.push_back(lanes_of(32, [&](int) { return random() & 0xffffffff; }));
          return result;
        };
        const std::vector<Given> a = registers(k / 8);
        const std::vector<Given> b = registers(k / 16);
        const std::vector<Given> sums = registers(4);
        std::vector<Given> in = a;
        in.insert(in.end(), b.begin(), b.end());
        in.insert(in.end(), sums.begin(), sums.end());
        const std::string instruction = "mma.sync.aligned.m16n8k" + std::to_string(k) + ".row.col.s32." +
                                        (a_signed ? "s8." : "u8.") + (b_signed ? "s8" : "u8") + ".s32 ";
        CAPTURE(instruction);
        const WarpRun run =
            run_warp(instruction + list("out", 0, 4) + ", " + list("in", 0, a.size()) + ", " +
                         list("in", a.size(), b.size()) + ", " + list("in", a.size() + b.size(), 4) + ";",
                     in, {32, 32, 32, 32});
        const auto byte = [](const std::vector<Given>& from, int lane, int i, bool is_signed) {
          const std::uint64_t bits = from[static_cast<std::size_t>(i / 4)].values[lane] >> (i % 4 * 8) & 0xff;
          return is_signed && bits >= 128 ? static_cast<std::int64_t>(bits) - 256
                                          : static_cast<std::int64_t>(bits);
        };
        // "Matrix Fragments for mma.m16n8k16" and "… m16n8k32" of 8 bits.
        std::int64_t a_at[16][32] = {};
        std::int64_t b_at[32][8] = {};
        for (int lane = 0; lane < 32; ++lane) {
          for (int i = 0; i < k / 2; ++i) {
            const bool upper = (0 <= i && i < 4) || (8 <= i && i < 12);
            const int column = in_group(lane) * 4 + (i & 3);
            a_at[upper ? group(lane) : group(lane) + 8][i < 8 ? column : column + 16] =
                byte(a, lane, i, a_signed);
          }
          for (int i = 0; i < k / 4; ++i) {
            const int row = in_group(lane) * 4 + (i & 3);
            b_at[i < 4 ? row : row + 16][group(lane)] = byte(b, lane, i, b_signed);
          }
        }
        for (int lane = 0; lane < 32; ++lane)
          for (int i = 0; i < 4; ++i) {
            const Place at = c(lane, i);
            std::uint64_t want = sums[static_cast<std::size_t>(i)].values[lane];
            for (int j = 0; j < k; ++j)
              want += static_cast<std::uint64_t>(a_at[at.row][j] * b_at[j][at.column]);
            CHECK(run.results[static_cast<std::size_t>(i)][lane] == (want & 0xffffffff));
          }
      }
}

TEST_CASE("mma of bytes clamps its sums with .satfinite and wraps them without") {
  const auto sum = [](const std::string& modifier) {
    return run_warp("mma.sync.aligned.m16n8k16.row.col" + modifier +
                        ".s32.s8.s8.s32 {%out0, %out1, %out2, %out3}, {%in0, %in0}, {%in0}, {%in1, %in1, "
                        "%in1, %in1};",
                    {all(0x01010101), all(0x7ffffffe)}, {32, 32, 32, 32})
        .results[2][7];
  };
  CHECK(sum(".satfinite") == 0x7fffffff);
  CHECK(sum("") == 0x8000000e);
}

TEST_CASE("tf32 operands are truncated to 10 bits of fraction") {
  const Given cut = all(0x3f801fff);  // 1, and bits that take no part
  const WarpRun run = run_warp(
      "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%out0, %out1, %out2, %out3}, {%in0, %in0}, {%in0},"
      "{%in1, %in1, %in1, %in1};",
      {cut, all(0)}, {32, 32, 32, 32});
  CHECK(run.results[0][0] == std::bit_cast<std::uint32_t>(4.0f));
  CHECK(run.results[3][31] == std::bit_cast<std::uint32_t>(4.0f));
}

TEST_CASE("mma adds to its own registers in place") {
  const Given ones = all(0x3c003c00);
  const std::string accumulate =
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%out0, %out1, %out2, %out3}, {%in0, %in0, %in0, "
      "%in0},"
      "{%in0, %in0}, {%out0, %out1, %out2, %out3};";
  const WarpRun run = run_warp(
      "mov.b32 %out0, 0; mov.b32 %out1, 0; mov.b32 %out2, 0; mov.b32 %out3, 0;" + accumulate + accumulate,
      {ones}, {32, 32, 32, 32});
  for (const LaneValues& out : run.results) CHECK(out[17] == std::bit_cast<std::uint32_t>(32.0f));
}

TEST_CASE("mma faults unless all lanes of the warp take part") {
  const std::string body =
      "setp.lt.u32 %p1, %lane, 31; @%p1 mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
      " {%out0, %out1, %out2, %out3}, {%in0, %in0}, {%in0}, {%in0, %in0, %in0, %in0};";
  CHECK_THROWS_AS((void)run_warp(body, {all(0)}, {32, 32, 32, 32}), Fault);
}

TEST_CASE("mma of other shapes and types is refused by name") {
  const auto refused = [](const std::string& instruction) {
    CAPTURE(instruction);
    CHECK_THROWS_AS((void)run_warp("mma.sync.aligned." + instruction +
                                       " {%out0, %out1, %out2, %out3},"
                                       "{%in0, %in0, %in0, %in0}, {%in0, %in0}, {%in0, %in0, %in0, %in0};",
                                   {all(0)}, {32, 32, 32, 32}),
                    ptx::Error);
  };
  refused("m16n8k16.col.row.f32.f16.f16.f32");
  refused("m16n8k16.row.col.f32.f16.bf16.f32");
  refused("m16n8k16.row.col.f16.bf16.bf16.f16");
  refused("m16n8k32.row.col.s32.s4.s4.s32");
  refused("m16n8k16.row.col.f16.f16.f16.f16");  // too many registers
  refused("m8n8k4.row.col.f64.f64.f64.f64");
}

}  // namespace sparsekiln::emulator

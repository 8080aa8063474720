#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "emulator/isa/matrix_descriptor.h"
#include "tests/emulator/isa/exact.h"
#include "tests/emulator/isa/matrix_kernel.h"

namespace sparsekiln::emulator::matrix {
namespace {

Matrices random_matrices(const Product& product, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto fill = [&](std::vector<int>& numbers, int count, int least, int greatest) {
    for (int i = 0; i < count; ++i)
      numbers.push_back(least + static_cast<int>(random() % static_cast<unsigned>(greatest - least + 1)));
  };
  Matrices matrices;
  fill(matrices.a, kM * product.k(), product.a->least, product.a->greatest);
  fill(matrices.b, product.n * product.k(), product.b->least, product.b->greatest);
  fill(matrices.c, kM * product.n, -100, 100);
  return matrices;
}

/// The number of the bits of a sum; all are whole.
int number_of(const Product& product, std::uint32_t bits) {
  if (std::string(product.sums) == "s32") return static_cast<int>(bits);
  const exact::Number number = exact::value(product.half_sums() ? exact::kF16 : exact::kF32, bits);
  return static_cast<int>(std::ldexp(static_cast<double>(number.units), number.exponent));
}

/// Where the emulator's result is not C + A · B; empty where it is.
std::string difference(const Product& product, std::uint64_t seed) {
  const Matrices matrices = random_matrices(product, seed);
  const std::vector<std::uint32_t> result = run(product, matrices, seed);
  const int k = product.k();
  for (int row = 0; row < kM; ++row)
    for (int column = 0; column < product.n; ++column) {
      const auto at = static_cast<std::size_t>(row * product.n + column);
      int sum = 0;
      for (int i = 0; i < k; ++i)
        sum += matrices.a[static_cast<std::size_t>(row * k + i)] *
               matrices.b[static_cast<std::size_t>(column * k + i)];
      if (product.negate_a != product.negate_b) sum = -sum;
      if (product.accumulates) sum += matrices.c[at];
      const int got = number_of(product, result[at]);
      if (got != sum)
        return "row " + std::to_string(row) + ", column " + std::to_string(column) + ": " +
               std::to_string(got) + " instead of " + std::to_string(sum);
    }
  return {};
}

void check(Product product, bool a_mn, int swizzle_a, bool b_mn, int swizzle_b, std::uint64_t seed) {
  product.place_a = place_of(a_mn, swizzle_a, 1024, product.a->bytes);
  const std::uint32_t end = product.a_in_registers ? 0 : bytes_of(product.place_a, product.a->bytes, kM);
  product.place_b = place_of(b_mn, swizzle_b, (end + 1023) / 1024 * 1024, product.b->bytes);
  CAPTURE(product.instruction());
  CAPTURE(swizzle_a);
  CAPTURE(swizzle_b);
  CHECK(difference(product, seed) == "");
}

struct Types {
  const Element* a;
  const Element* b;
  const char* sums;
};
const Types kTypes[] = {
    {&kF16, &kF16, "f32"},   {&kF16, &kF16, "f16"},   {&kBf16, &kBf16, "f32"}, {&kTf32, &kTf32, "f32"},
    {&kE4m3, &kE4m3, "f32"}, {&kE4m3, &kE5m2, "f32"}, {&kE5m2, &kE4m3, "f32"}, {&kE5m2, &kE5m2, "f32"},
    {&kE4m3, &kE4m3, "f16"}, {&kE4m3, &kE5m2, "f16"}, {&kE5m2, &kE4m3, "f16"}, {&kE5m2, &kE5m2, "f16"},
    {&kS8, &kS8, "s32"},     {&kS8, &kU8, "s32"},     {&kU8, &kS8, "s32"},     {&kU8, &kU8, "s32"},
};

constexpr int kSwizzles[] = {0, 32, 64, 128};

TEST_CASE("a wgmma of each type multiplies matrices of each swizzle") {
  std::uint64_t seed = 0;
  for (const Types& types : kTypes)
    for (const int swizzle : kSwizzles)
      for (const bool in_registers : {false, true}) {
        Product product{
            .a = types.a, .b = types.b, .sums = types.sums, .n = 32, .a_in_registers = in_registers};
        ++seed;
        check(product, false, swizzle, false, kSwizzles[seed % 4], seed);
      }
}

TEST_CASE("operands of 16 bits may be transposed") {
  std::uint64_t seed = 100;
  for (const Types& types : {kTypes[0], kTypes[1], kTypes[2]})
    for (const int swizzle : kSwizzles)
      for (const int which : {1, 2, 3}) {
        Product product{.a = types.a, .b = types.b, .sums = types.sums, .n = 144};
        ++seed;
        product.a_in_registers = which == 2 && seed % 2 == 0;
        check(product, (which & 1) != 0, swizzle, (which & 2) != 0, kSwizzles[seed % 4], seed);
      }
}

TEST_CASE("a wgmma has every N") {
  for (int n = 8; n <= 256; n += 8) {
    const bool integers = n % 16 == 0 && n % 32 != 0;
    Product product{.n = n};
    if (integers) product.a = product.b = &kS8;
    if (integers) product.sums = "s32";
    check(product, false, 128, !integers && n % 64 == 0, 64, static_cast<std::uint64_t>(n));
  }
}

TEST_CASE("a wgmma starts with zero where scale-d is false, and negates products") {
  for (const Types& types : kTypes)
    for (int which = 0; which < 8; ++which) {
      Product product{.a = types.a, .b = types.b, .sums = types.sums, .n = 16};
      product.accumulates = (which & 1) == 0;
      const bool floats = std::string(types.sums) != "s32";
      product.negate_a = floats && (which & 2) != 0;
      product.negate_b = floats && (which & 4) != 0;
      if (!floats && which >= 2) continue;
      check(product, false, 128, false, 32, static_cast<std::uint64_t>(which));
    }
}

TEST_CASE("the base offset says where a pattern starts that is not aligned") {
  for (const int swizzle : {32, 64, 128})
    for (std::uint32_t base = 0; base < 8; ++base) {
      Product product{.n = 24};
      product.place_a = place_of(false, swizzle, 1024 + 128 * base, 2);
      product.place_a.base = base;
      product.place_b = place_of(false, swizzle, 16384 + 128 * base, 2);
      product.place_b.base = base;
      CAPTURE(swizzle);
      CAPTURE(base);
      CHECK(difference(product, base) == "");
    }
}

TEST_CASE("a swizzled matrix of 64 k is read 16 k at a time, from 32 bytes further on") {
  // All of A is stored in patterns of 128 bytes; the wgmma reads k = 32 to 47.
  const Place whole = place_of(false, 128, 1024, 2);
  const MatrixDescriptor third = parse_descriptor(whole.descriptor() + 4);
  for (std::uint32_t row = 0; row < 64; ++row)
    for (std::uint32_t k = 0; k < 16; ++k)
      CHECK(matrix_address(third, MatrixMajor::k, 2, row, k) ==
            1024 + whole.offset(2, static_cast<int>(row), static_cast<int>(k) + 32));
}

/// Offsets in elements that the examples of the PTX ISA ("Canonical Layouts") give before the swizzle.
TEST_CASE("addresses are those of the examples of the ISA") {
  const auto flip = [](std::uint32_t bytes, std::uint32_t bits) {
    return bytes ^ (bytes >> 7 & ((1u << bits) - 1)) << 4;
  };
  MatrixDescriptor tf32{.leading = 64 * 4, .stride = 32 * 4};
  MatrixDescriptor tf32_32{.stride = 64 * 4, .swizzle = MatrixSwizzle::bytes32};
  MatrixDescriptor bf16{.leading = 128 * 2, .stride = 64 * 2};
  MatrixDescriptor bf16_32{.leading = 128 * 2, .stride = 256 * 2, .swizzle = MatrixSwizzle::bytes32};
  MatrixDescriptor bf16_64{.leading = 256 * 2, .stride = 512 * 2, .swizzle = MatrixSwizzle::bytes64};
  for (std::uint32_t row = 0; row < 16; ++row)
    for (std::uint32_t k = 0; k < 8; ++k) {
      // ((8,2),(4,4)):((4,32),(1,64)) and ((8,2),(4,4)):((8,64),(1,4))
      CHECK(matrix_address(tf32, MatrixMajor::k, 4, row, k) ==
            4 * (row % 8 * 4 + row / 8 * 32 + k % 4 + k / 4 * 64));
      CHECK(matrix_address(tf32_32, MatrixMajor::k, 4, row, k) ==
            flip(4 * (row % 8 * 8 + row / 8 * 64 + k % 4 + k / 4 * 4), 1));
    }
  for (std::uint32_t k = 0; k < 16; ++k)
    for (std::uint32_t row = 0; row < 64; ++row) {
      // ((8,1,2),(8,2)):((1,8,64),(8,128)), ((8,2,2),(8,2)):((1,8,128),(16,256)),
      // ((8,4,2),(8,2)):((1,8,256),(32,512))
      if (row < 16)
        CHECK(matrix_address(bf16, MatrixMajor::mn, 2, row, k) ==
              2 * (row % 8 + row / 8 * 64 + k % 8 * 8 + k / 8 * 128));
      if (row < 32)
        CHECK(matrix_address(bf16_32, MatrixMajor::mn, 2, row, k) ==
              flip(2 * (row % 8 + row / 8 % 2 * 8 + row / 16 * 128 + k % 8 * 16 + k / 8 * 256), 1));
      CHECK(matrix_address(bf16_64, MatrixMajor::mn, 2, row, k) ==
            flip(2 * (row % 8 + row / 8 % 4 * 8 + row / 32 * 256 + k % 8 * 32 + k / 8 * 512), 2));
    }
}

/// The f32 of a number of 8 bits with a bias, or a canonical NaN.
std::uint32_t f32_of(std::uint32_t bits, int exponent_bits) {
  const int fraction_bits = 7 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto field = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const auto fraction = static_cast<int>(bits & ((1u << fraction_bits) - 1));
  const bool greatest_field = field == (1 << exponent_bits) - 1;
  float value = std::ldexp(static_cast<float>(field == 0 ? fraction : fraction + (1 << fraction_bits)),
                           (field == 0 ? 1 : field) - bias - fraction_bits);
  if (exponent_bits == 5 && greatest_field) value = fraction == 0 ? INFINITY : NAN;
  if (exponent_bits == 4 && (bits & 0x7f) == 0x7f) value = NAN;
  if (std::isnan(value)) return 0x7fffffff;
  if ((bits & 0x80) != 0) value = -value;
  std::uint32_t result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

TEST_CASE("every number of 8 bits is the right f32") {
  for (const Element* element : {&kE4m3, &kE5m2}) {
    // Column 0 of B is 1 at k = 0; the elements of A beside k = 0 are zero.
    Product product{.a = element, .b = element, .n = 8, .accumulates = false};
    product.place_a = place_of(false, 0, 1024, 1);
    product.place_b = place_of(false, 128, 8192, 1);
    std::vector<std::uint32_t> b(8 * 32);
    b[0] = element->bits(1);
    const std::vector<std::uint32_t> c(kM * 8);
    for (std::uint32_t first = 0; first < 256; first += kM) {
      std::vector<std::uint32_t> a(kM * 32);
      for (std::uint32_t row = 0; row < kM; ++row) a[row * 32] = first + row;
      const std::vector<std::uint32_t> d = run_bits(product, a, b, c, first);
      for (std::uint32_t row = 0; row < kM; ++row) {
        CAPTURE(first + row);
        const std::uint32_t expected = f32_of(first + row, element == &kE4m3 ? 4 : 5);
        CHECK(d[row * 8] == (expected == 0x80000000 ? 0 : expected));  // +0 and -0 make +0
      }
    }
  }
}

TEST_CASE("sums of integers saturate where .satfinite says so, and wrap otherwise") {
  for (const bool saturates : {false, true}) {
    Product product{.a = &kU8, .b = &kS8, .sums = "s32", .n = 8};
    product.saturates = saturates;
    product.place_a = place_of(false, 64, 1024, 1);
    product.place_b = place_of(false, 0, 16384, 1);
    Matrices matrices;
    matrices.a.assign(kM * 32, 255);
    for (int i = 0; i < 8 * 32; ++i) matrices.b.push_back(i < 128 ? 127 : -128);
    for (int i = 0; i < kM * 8; ++i) matrices.c.push_back(i % 8 < 4 ? 0x7fffff00 : -0x7fffff00);
    const std::vector<std::uint32_t> d = run(product, matrices, 1);
    const std::uint32_t above = saturates ? 0x7fffffffu : 0x7fffff00u + 32u * 255 * 127;
    const std::uint32_t below = saturates ? 0x80000000u : 0x80000100u - 32u * 255 * 128;
    CHECK(d[0] == above);
    CHECK(d[7] == below);
  }
}

TEST_CASE("sums in f16 are rounded once, at the end") {
  // 2048 + 1 + 1 is 2050 in f32; in f16, 2048 + 1 would stay 2048.
  Product product{.sums = "f16", .n = 8};
  product.place_a = place_of(false, 128, 1024, 2);
  product.place_b = place_of(false, 128, 16384, 2);
  Matrices matrices;
  for (int i = 0; i < kM * 16; ++i) matrices.a.push_back(i % 16 < 2 ? 1 : 0);
  matrices.b.assign(8 * 16, 1);
  matrices.c.assign(kM * 8, 2048);
  CHECK(number_of(product, run(product, matrices, 1)[0]) == 2050);
}

}  // namespace
}  // namespace sparsekiln::emulator::matrix

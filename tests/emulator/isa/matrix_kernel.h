#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// Kernels of one warpgroup with a wgmma, and matrices laid out for it as the PTX ISA's figures and canonical
/// layouts say.
namespace sparsekiln::emulator::matrix {

inline constexpr int kM = 64;

/// How a type spells small integers in its bits, and how wide it is.
struct Element {
  const char* name;
  int bytes;
  std::uint32_t (*bits)(int number);
  int least, greatest;  ///< numbers that the tests use
};
extern const Element kF16, kBf16, kTf32, kE4m3, kE5m2, kS8, kU8;

/// How a matrix lies in shared memory.
struct Place {
  bool mn_major = false;
  int swizzle = 0;             ///< bytes: 0, 32, 64, 128
  std::uint32_t start = 1024;  ///< offset in shared memory
  std::uint32_t leading = 0, stride = 0;
  std::uint32_t base = 0;  ///< matrix base offset

  /// The offset of an element in shared memory.
  [[nodiscard]] std::uint32_t offset(int element_bytes, int row, int k) const;
  /// The descriptor.
  [[nodiscard]] std::uint64_t descriptor() const;
};
/// A place with strides that leave gaps, and the bytes that `rows` rows of 32 bytes take there.
[[nodiscard]] Place place_of(bool mn_major, int swizzle, std::uint32_t start, int element_bytes);
[[nodiscard]] std::uint32_t bytes_of(const Place& place, int element_bytes, int rows);

struct Product {
  const Element* a = &kF16;
  const Element* b = &kF16;
  const char* sums = "f32";
  int n = 8;
  bool a_in_registers = false;
  Place place_a, place_b;
  bool accumulates = true;
  bool negate_a = false, negate_b = false;
  bool saturates = false;

  [[nodiscard]] int k() const { return 32 / a->bytes; }
  [[nodiscard]] bool half_sums() const { return std::string(sums) == "f16"; }
  /// Registers of D.
  [[nodiscard]] int registers() const { return half_sums() ? n / 4 : n / 2; }
  /// The mma_async with registers %d0 …, %a0 … %a3, %descA, %descB and %scale.
  [[nodiscard]] std::string instruction() const;
};

/// Row by row: A [64][k], B by columns [n][k], C [64][n], as numbers.
struct Matrices {
  std::vector<int> a, b, c;
};

/// The bits of D, [64][n], of C + A · B that the emulator computes under a seed. Where the sums are in f16,
/// C has numbers that are exact.
[[nodiscard]] std::vector<std::uint32_t> run(const Product& product, const Matrices& matrices,
                                             std::uint64_t seed);
/// The same, of bits: A and B as bytes of their rows.
[[nodiscard]] std::vector<std::uint32_t> run_bits(const Product& product, const std::vector<std::uint32_t>& a,
                                                  const std::vector<std::uint32_t>& b,
                                                  const std::vector<std::uint32_t>& c, std::uint64_t seed);

}  // namespace sparsekiln::emulator::matrix

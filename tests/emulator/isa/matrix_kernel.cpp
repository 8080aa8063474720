#include "tests/emulator/isa/matrix_kernel.h"

#include <algorithm>
#include <cstring>

#include "tests/emulator/machine/kernel.h"

namespace sparsekiln::emulator::matrix {
namespace {

constexpr std::uint32_t kSharedStart = 1024;  // the emulator's shared addresses begin there

std::uint32_t f32_bits(int number) {
  const auto value = static_cast<float>(number);
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// An IEEE format, cut from f32: the numbers are exact in it.
std::uint32_t cut(int number, int exponent_bits, int fraction_bits) {
  if (number == 0) return 0;
  const std::uint32_t wide = f32_bits(number);
  const int exponent = static_cast<int>(wide >> 23 & 0xff) - 127 + (1 << (exponent_bits - 1)) - 1;
  return (wide >> 31) << (exponent_bits + fraction_bits) |
         static_cast<std::uint32_t>(exponent) << fraction_bits | (wide & 0x7fffff) >> (23 - fraction_bits);
}

std::uint32_t f16_bits(int number) { return cut(number, 5, 10); }
std::uint32_t bf16_bits(int number) { return cut(number, 8, 7); }
/// The low 13 bits mean nothing.
std::uint32_t tf32_bits(int number) { return f32_bits(number) | 0x1a5b; }
std::uint32_t e4m3_bits(int number) { return cut(number, 4, 3); }
std::uint32_t e5m2_bits(int number) { return cut(number, 5, 2); }
std::uint32_t byte_bits(int number) { return static_cast<std::uint32_t>(number) & 0xff; }

std::string list(const char* name, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i == 0 ? "%" : ", %") + (name + std::to_string(i));
  return text + "}";
}

std::string number(std::uint64_t value) { return std::to_string(value); }

/// PTX ISA, figures "WGMMA .m64nNk16 register fragment layout for matrix A" and those of k8 and k32: the row
/// and the byte of the row where register r of a thread begins.
struct FragmentPlace {
  int row, byte;
};
FragmentPlace fragment_of_a(int thread, int r) {
  const int warp = thread / 32;
  const int lane = thread % 32;
  return {16 * warp + lane / 4 + (r % 2 == 1 ? 8 : 0), 4 * (lane % 4) + (r >= 2 ? 16 : 0)};
}
/// "… for accumulator matrix D": the element i of a thread.
struct SumPlace {
  int row, column;
};
SumPlace sum_of(int thread, int i) {
  const int warp = thread / 32;
  const int lane = thread % 32;
  return {16 * warp + lane / 4 + (i / 2 % 2 == 1 ? 8 : 0), 8 * (i / 4) + 2 * (lane % 4) + i % 2};
}

/// Copies `bytes` of global memory at %rd0 to shared memory, and makes them visible to the async proxy.
std::string copy_in(std::uint32_t bytes) {
  std::string text =
      "cvt.u64.u32 %rd3, %r0;\nshl.b64 %rd3, %rd3, 4;\nadd.s64 %rd4, %rd0, %rd3;\n"
      "mov.u32 %r2, s;\nshl.b32 %r3, %r0, 4;\nadd.u32 %r2, %r2, %r3;\n";
  for (std::uint32_t at = 0; at < bytes; at += 2048)
    text += "ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd4+" + number(at) + "];\nst.shared.v4.b32 [%r2+" +
            number(at) + "], {%r4, %r5, %r6, %r7};\n";
  return text + "fence.proxy.async;\nbar.sync 0;\n";
}

/// Registers of the threads in global memory at `base`, [register][thread].
std::string move_registers(bool loads, const char* base, const char* name, int count) {
  std::string text =
      "cvt.u64.u32 %rd3, %r0;\nshl.b64 %rd3, %rd3, 2;\nadd.s64 %rd4, " + std::string(base) + ", %rd3;\n";
  for (int i = 0; i < count; ++i) {
    const std::string at = "[%rd4+" + number(static_cast<std::uint64_t>(i) * 512) + "]";
    const std::string one = "%" + std::string(name) + std::to_string(i);
    text += loads ? "ld.global.b32 " + one + ", " + at + ";\n" : "st.global.b32 " + at + ", " + one + ";\n";
  }
  return text;
}

std::string body_of(const Product& product, std::uint32_t shared_bytes) {
  std::string text = ".reg .b32 %d<128>;\n.reg .b32 %a<4>;\n.reg .b64 %descA, %descB;\n.reg .pred %scale;\n";
  text += copy_in(shared_bytes);
  text += move_registers(true, "%rd1", "d", product.registers());
  if (product.a_in_registers) text += move_registers(true, "%rd2", "a", 4);
  text += "mov.b64 %descA, " + number(product.place_a.descriptor()) + ";\nmov.b64 %descB, " +
          number(product.place_b.descriptor()) + ";\nmov.pred %scale, " + (product.accumulates ? "1" : "0") +
          ";\nwgmma.fence.sync.aligned;\n" + product.instruction() +
          "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
  return text + move_registers(false, "%rd1", "d", product.registers());
}

void put(std::vector<std::uint8_t>& memory, const Place& place, int element_bytes, int rows,
         const std::vector<std::uint32_t>& bits) {
  const int k = 32 / element_bytes;
  for (int row = 0; row < rows; ++row)
    for (int i = 0; i < k; ++i)
      std::memcpy(memory.data() + place.offset(element_bytes, row, i),
                  &bits[static_cast<std::size_t>(row * k + i)], static_cast<std::size_t>(element_bytes));
}

}  // namespace

const Element kF16{"f16", 2, f16_bits, -3, 3};
const Element kBf16{"bf16", 2, bf16_bits, -3, 3};
const Element kTf32{"tf32", 4, tf32_bits, -3, 3};
const Element kE4m3{"e4m3", 1, e4m3_bits, -3, 3};
const Element kE5m2{"e5m2", 1, e5m2_bits, -3, 3};
const Element kS8{"s8", 1, byte_bits, -128, 127};
const Element kU8{"u8", 1, byte_bits, 0, 255};

std::uint32_t Place::offset(int element_bytes, int row, int k) const {
  // The canonical layouts as CuTe has them, in units of 16 bytes: ((8, m), (1, 2)) of rows and units of k,
  // and
  // ((W, m), (8, 2)) of units of rows and k, W being 1, 2, 4 or 8 units.
  const std::uint32_t wide = swizzle == 0 ? 1 : static_cast<std::uint32_t>(swizzle) / 16;
  const int unit = 16 / element_bytes;
  const auto in_units = [&](std::uint32_t bytes) { return bytes / 16; };
  std::uint32_t at;
  int within;
  if (!mn_major) {
    at = static_cast<std::uint32_t>(row % 8) * wide + static_cast<std::uint32_t>(row / 8) * in_units(stride) +
         static_cast<std::uint32_t>(k / unit) * (swizzle == 0 ? in_units(leading) : 1);
    within = k % unit;
  } else {
    const std::uint32_t units = static_cast<std::uint32_t>(row / unit);
    const std::uint32_t next_rows = in_units(swizzle == 0 ? stride : leading);
    const std::uint32_t next_k = in_units(swizzle == 0 ? leading : stride);
    at = units % wide + units / wide * next_rows + static_cast<std::uint32_t>(k % 8) * wide +
         static_cast<std::uint32_t>(k / 8) * next_k;
    within = row % unit;
  }
  // Swizzle<B, 4, 3> of bytes: bits 4 … of the place in the pattern, which begins at a multiple of 1024, 512
  // or 256 plus 128 times the base offset, are flipped by bits 7 ….
  const std::uint32_t pattern = base * 128;
  const std::uint32_t bytes = start - pattern + at * 16;
  const std::uint32_t flips = bytes >> 7 & (wide - 1);
  return pattern + (bytes ^ flips << 4) + static_cast<std::uint32_t>(within * element_bytes);
}

std::uint64_t Place::descriptor() const {
  const auto encoded = [](std::uint32_t bytes) { return std::uint64_t{(bytes & 0x3ffff) >> 4}; };
  const std::uint64_t mode = swizzle == 0 ? 0 : swizzle == 128 ? 1 : swizzle == 64 ? 2 : 3;
  return encoded(kSharedStart + start) | encoded(leading) << 16 | encoded(stride) << 32 |
         std::uint64_t{base} << 49 | mode << 62;
}

Place place_of(bool mn_major, int swizzle, std::uint32_t start, int element_bytes) {
  Place place{.mn_major = mn_major, .swizzle = swizzle, .start = start};
  static_cast<void>(element_bytes);
  const std::uint32_t pattern = swizzle == 0 ? 128 : static_cast<std::uint32_t>(swizzle) * 8;
  // The dimension that is walked first has no gap to the next pattern but this one.
  place.stride = pattern + (swizzle == 0 ? 16 : 0);
  place.leading = 2 * pattern;
  if (swizzle == 0) place.leading = 32 * place.stride + 48;
  if (mn_major && swizzle != 0) place.stride = 16 * pattern, place.leading = pattern;
  if (mn_major && swizzle == 0) place.stride = 144, place.leading = 33 * 144;
  return place;
}

std::uint32_t bytes_of(const Place& place, int element_bytes, int rows) {
  std::uint32_t end = 0;
  for (int row = 0; row < rows; ++row)
    for (int k = 0; k < 32 / element_bytes; ++k)
      end = std::max(end, place.offset(element_bytes, row, k) + static_cast<std::uint32_t>(element_bytes));
  return end;
}

std::string Product::instruction() const {
  const bool floats = a->bytes != 1 || a == &kE4m3 || a == &kE5m2;
  std::string text = "wgmma.mma_async.sync.aligned.m64n" + std::to_string(n) + "k" + std::to_string(k()) +
                     (saturates ? ".satfinite." : ".") + sums + "." + a->name + "." + b->name + " " +
                     list("d", registers()) + ", " + (a_in_registers ? list("a", 4) : "%descA") +
                     ", %descB, %scale";
  if (floats) text += std::string(negate_a ? ", -1" : ", 1") + (negate_b ? ", -1" : ", 1");
  if (a->bytes == 2 && !a_in_registers) text += place_a.mn_major ? ", 1" : ", 0";
  if (a->bytes == 2) text += place_b.mn_major ? ", 1" : ", 0";
  return text + ";\n";
}

std::vector<std::uint32_t> run_bits(const Product& product, const std::vector<std::uint32_t>& a,
                                    const std::vector<std::uint32_t>& b, const std::vector<std::uint32_t>& c,
                                    std::uint64_t seed) {
  std::uint32_t bytes = bytes_of(product.place_b, product.b->bytes, product.n);
  if (!product.a_in_registers) bytes = std::max(bytes, bytes_of(product.place_a, product.a->bytes, kM));
  bytes = (bytes + 2047) / 2048 * 2048;
  std::vector<std::uint8_t> shared(bytes, 0xa7);
  put(shared, product.place_b, product.b->bytes, product.n, b);
  if (!product.a_in_registers) put(shared, product.place_a, product.a->bytes, kM, a);

  Kernel kernel(body_of(product, bytes), ".extern .shared .align 1024 .b8 s[];");
  kernel.threads = 128;
  kernel.dynamic_shared = bytes;
  const std::uint64_t in = kernel.unwritten(bytes);
  kernel.memory().write(in, shared.data(), shared.size());
  const auto registers = static_cast<std::size_t>(product.registers());
  std::vector<std::uint32_t> sums(registers * 128);
  const int in_register = product.half_sums() ? 2 : 1;
  const int width = 32 / in_register;
  const auto each_sum = [&](auto use) {
    for (int thread = 0; thread < 128; ++thread)
      for (int i = 0; i < product.registers() * in_register; ++i) {
        const SumPlace at = sum_of(thread, i);
        use(sums[static_cast<std::size_t>(i / in_register * 128 + thread)], i % in_register * width,
            static_cast<std::size_t>(at.row * product.n + at.column));
      }
  };
  each_sum([&](std::uint32_t& word, int shift, std::size_t at) { word |= c[at] << shift; });
  const std::uint64_t out = kernel.unwritten(sums.size() * 4);
  kernel.memory().write(out, sums.data(), sums.size() * 4);
  std::vector<std::uint8_t> rows(kM * 32);
  for (std::size_t i = 0; i < a.size(); ++i)
    std::memcpy(rows.data() + i * static_cast<std::size_t>(product.a->bytes), &a[i],
                static_cast<std::size_t>(product.a->bytes));
  std::vector<std::uint32_t> fragments(4 * 128);
  for (int thread = 0; thread < 128; ++thread)
    for (int r = 0; r < 4; ++r) {
      const FragmentPlace at = fragment_of_a(thread, r);
      std::memcpy(&fragments[static_cast<std::size_t>(r * 128 + thread)], rows.data() + at.row * 32 + at.byte,
                  4);
    }
  const std::uint64_t registers_of_a = kernel.unwritten(fragments.size() * 4);
  kernel.memory().write(registers_of_a, fragments.data(), fragments.size() * 4);
  static_cast<void>(kernel.run(seed));

  kernel.memory().read(out, sums.data(), sums.size() * 4);
  std::vector<std::uint32_t> result(static_cast<std::size_t>(kM * product.n));
  each_sum([&](std::uint32_t word, int shift, std::size_t at) {
    result[at] = width == 32 ? word : word >> shift & 0xffff;
  });
  return result;
}

std::vector<std::uint32_t> run(const Product& product, const Matrices& matrices, std::uint64_t seed) {
  const auto bits_of = [](const std::vector<int>& numbers, auto bits) {
    std::vector<std::uint32_t> result;
    for (const int one : numbers) result.push_back(bits(one));
    return result;
  };
  const std::string sums = product.sums;
  const auto sum_bits = sums == "f16"   ? f16_bits
                        : sums == "f32" ? f32_bits
                                        : +[](int number) { return static_cast<std::uint32_t>(number); };
  return run_bits(product, bits_of(matrices.a, product.a->bits), bits_of(matrices.b, product.b->bits),
                  bits_of(matrices.c, sum_bits), seed);
}

}  // namespace sparsekiln::emulator::matrix

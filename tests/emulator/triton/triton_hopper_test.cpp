// Kernels that Triton compiled to wgmma, TMA and mbarriers. They are known to be right on hardware: what one
// of them does wrong here is wrong in the emulator. With a fault planted into their text, they must be found
// wrong.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "tests/emulator/triton/matrices.h"

using namespace sparsekiln;

namespace {

constexpr std::uint64_t kSeeds = 4;

/// Bytes of 8-bit floats that hold small whole numbers, which all types here represent.
std::vector<std::byte> as_float8(const std::vector<float>& values, int mantissa_bits, int bias) {
  std::vector<std::byte> bytes;
  for (const float value : values) {
    int exponent = 0;
    const double fraction = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
    const auto mantissa = static_cast<unsigned>(std::ldexp(fraction * 2 - 1, mantissa_bits));
    const unsigned bits =
        value == 0 ? 0 : static_cast<unsigned>(exponent - 1 + bias) << mantissa_bits | mantissa;
    bytes.push_back(static_cast<std::byte>(bits | (value < 0 ? 0x80u : 0u)));
  }
  return bytes;
}

EmulatedMemory upload_as(const TritonKernel& kernel, const std::string& type, const Matrix& matrix) {
  if (type == "e4m3") return {kernel.context(), as_float8(matrix.values, 3, 7)};
  if (type == "e5m2") return {kernel.context(), as_float8(matrix.values, 2, 15)};
  return upload(kernel,
                type == "tf32"   ? DType::f32
                : type == "bf16" ? DType::bf16
                                 : DType::f16,
                matrix.values);
}

Matrix transposed(const Matrix& from, int stride) {
  Matrix to(from.columns, from.rows, stride, 0);
  for (int row = 0; row < from.rows; ++row)
    for (int column = 0; column < from.columns; ++column) to.at(column, row) = from.at(row, column);
  return to;
}

std::string with_each_replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

/// dot_NAME on whole numbers of a type: how many elements are wrong. `compiled_for` is the type that Triton
/// compiled it for: what it writes for another one of equal size differs in the product's types alone.
int wrong_dots(const std::string& name, const std::string& compiled_for, const std::string& type,
               bool is_transposed, int m, int n, int k) {
  const auto of_types = [](const std::string& of) { return fmt::format(".{0}.{0} ", of); };
  const TritonKernel kernel("dot_" + name + "_sm90a", [&](const std::string& ptx) {
    REQUIRE(ptx.find(of_types(compiled_for)) != std::string::npos);
    return with_each_replaced(ptx, of_types(compiled_for), of_types(type));
  });
  const int stride = groups(std::max({m, n, k}), 16) * 16;
  const Matrix a = whole_numbers(m, k, stride, 1);
  const Matrix b = whole_numbers(k, n, stride, 2);
  const Matrix given = is_transposed ? transposed(b, stride) : b;
  const EmulatedMemory a_memory = upload_as(kernel, type, a);
  const EmulatedMemory b_memory = upload_as(kernel, type, given);
  Matrix c(m, n, stride, kPoison);
  const EmulatedMemory c_memory = upload(kernel, DType::f32, c.values);
  kernel.launch(
      groups(m, kernel.constant("BLOCK_M")), groups(n, kernel.constant("BLOCK_N")),
      {a_memory.address(), b_memory.address(), c_memory.address(), m, n, k, stride, stride, stride});
  download(c_memory, DType::f32, c);
  return wrong(c, [&](int row, int column) { return dot(a, b, row, column); }, kExact);
}

/// A descriptor kernel on whole numbers.
int wrong_by_descriptors(const TritonKernel& kernel, int m, int n, int k) {
  const Matrix a = whole_numbers(m, k, (k + 15) / 16 * 16, 3);
  const Matrix b = whole_numbers(k, n, n, 4);
  const Matrix given = transposed(b, (k + 23) / 8 * 8);
  Matrix c(m, n, (n + 7) / 8 * 8 + 8, kPoison);
  const EmulatedMemory a_memory = upload(kernel, DType::f16, a.values);
  const EmulatedMemory b_memory = upload(kernel, DType::f16, given.values);
  const EmulatedMemory c_memory = upload(kernel, DType::f16, c.values);
  const auto programs = static_cast<unsigned>(kernel.constant("PROGRAMS"));
  kernel.launch(programs, 1,
                {a_memory.address(), b_memory.address(), c_memory.address(), m, n, k, a.stride, given.stride,
                 c.stride});
  download(c_memory, DType::f16, c);
  return wrong(c, [&](int row, int column) { return dot(a, b, row, column); }, kExact);
}

/// Attention of one head against double precision.
int wrong_attention(const TritonKernel& kernel, bool causal, int length) {
  constexpr int kHead = 64;
  const Matrix q = any_numbers(length, kHead, kHead, 5);
  const Matrix k = any_numbers(length, kHead, kHead, 6);
  const Matrix v = any_numbers(length, kHead, kHead, 7);
  Matrix y(length, kHead, kHead, kPoison);
  const EmulatedMemory q_memory = upload(kernel, DType::f16, q.values);
  const EmulatedMemory k_memory = upload(kernel, DType::f16, k.values);
  const EmulatedMemory v_memory = upload(kernel, DType::f16, v.values);
  const EmulatedMemory y_memory = upload(kernel, DType::f16, y.values);
  constexpr float kScale = 0.125f;
  kernel.launch(
      groups(length, kernel.constant("BLOCK_M")), 1,
      {q_memory.address(), k_memory.address(), v_memory.address(), y_memory.address(), length, kScale});
  download(y_memory, DType::f16, y);
  const Matrix turned = transposed(k, length);
  Matrix expected(length, kHead, kHead, 0);
  for (int row = 0; row < length; ++row) {
    const int end = causal ? row + 1 : length;
    std::vector<double> powers;
    double total = 0;
    for (int column = 0; column < end; ++column) {
      powers.push_back(std::exp(kScale * dot(q, turned, row, column)));
      total += powers.back();
    }
    for (int feature = 0; feature < kHead; ++feature) {
      double sum = 0;
      for (int column = 0; column < end; ++column)
        sum += powers[static_cast<std::size_t>(column)] * v.at(column, feature);
      expected.at(row, feature) = static_cast<float>(sum / total);
    }
  }
  // Weights are rounded to half precision, and their sum is at most 1; so is the result.
  return wrong(
      y, [&](int row, int column) { return expected.at(row, column); }, [](int, int) { return 2e-3; });
}

/// A statement of a kernel's PTX that begins with `begins`, and what is instead of it; all such statements,
/// or the n-th from 0 on.
struct Plant {
  const char* kernel;
  const char* begins;
  const char* instead;
  int which = -1;
};

std::string planted(const std::string& ptx, const Plant& plant) {
  std::string result;
  int count = 0;
  std::size_t done = 0;
  for (std::size_t at = ptx.find(plant.begins); at != std::string::npos;
       at = ptx.find(plant.begins, at + 1)) {
    if (plant.which >= 0 && count++ != plant.which) continue;
    result.append(ptx, done, at - done).append(plant.instead);
    done = ptx.find(';', at) + 1;
  }
  REQUIRE(done != 0);
  return result.append(ptx, done);
}

/// What a kernel with a fault does wrong; empty where nothing is found.
std::string found_in(const Plant& plant) {
  const TritonKernel kernel(plant.kernel, [&](const std::string& ptx) { return planted(ptx, plant); });
  std::string found;
  try {
    if (wrong_by_descriptors(kernel, 200, 136, 328) != 0) found = "a wrong result";
  } catch (const Error& error) {
    found = error.what();
    const cuda::Emulator emulator;
    emulator.reset_device(cuda::open_emulated(90)->device().ordinal);
  }
  return found;
}

template <class Run>
void for_seeds(Run run) {
  const cuda::Emulator emulator;
  const std::uint64_t before = emulator.seed();
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    emulator.set_seed(seed);
    run();
  }
  emulator.set_seed(before);
}

}  // namespace

TEST_CASE("Triton's dot through wgmma is exact on whole numbers of each type") {
  for_seeds([] {
    CHECK(wrong_dots("f16", "f16", "f16", false, 64, 64, 64) == 0);
    CHECK(wrong_dots("f16", "f16", "f16", false, 100, 130, 200) == 0);
    CHECK(wrong_dots("f16_transposed", "f16", "f16", true, 140, 70, 100) == 0);
    CHECK(wrong_dots("f16", "f16", "bf16", false, 65, 64, 130) == 0);
    CHECK(wrong_dots("tf32", "tf32", "tf32", true, 64, 80, 70) == 0);
    CHECK(wrong_dots("e4m3", "e4m3", "e4m3", true, 64, 70, 160) == 0);
    CHECK(wrong_dots("e4m3", "e4m3", "e5m2", true, 70, 64, 100) == 0);
  });
}

TEST_CASE("Triton's matmuls through tensor maps that they make are exact on whole numbers") {
  for (const char* const name : {"descriptor_persistent_sm90a", "descriptor_flat_sm90a",
                                 "descriptor_specialized_sm90a", "descriptor_cluster_sm90a"}) {
    CAPTURE(name);
    const TritonKernel kernel(name);
    for_seeds([&] {
      CHECK(wrong_by_descriptors(kernel, 64, 64, 64) == 0);
      CHECK(wrong_by_descriptors(kernel, 200, 136, 328) == 0);
    });
    const cuda::Emulator emulator;
    for (const int threads : {1, 2}) {
      emulator.set_threads(threads);
      CHECK(wrong_by_descriptors(kernel, 300, 200, 100) == 0);
    }
    emulator.set_threads(0);
  }
}

TEST_CASE("Triton's attention is off by roundings only") {
  const TritonKernel whole("attention_whole_sm90a");
  const TritonKernel causal("attention_causal_sm90a");
  for_seeds([&] {
    CHECK(wrong_attention(whole, false, 64) == 0);
    CHECK(wrong_attention(whole, false, 150) == 0);
    CHECK(wrong_attention(causal, true, 200) == 0);
  });
}

TEST_CASE("Triton's matmul through tensor maps of the host is exact on whole numbers") {
  const TritonKernel kernel("host_descriptor_sm90a");
  const int m = 100;
  const int n = 72;
  const int k = 200;
  const Matrix a = whole_numbers(m, k, k, 8);
  const Matrix b = whole_numbers(k, n, n, 9);
  const Matrix given = transposed(b, k);
  const EmulatedMemory a_memory = upload(kernel, DType::f16, a.values);
  const EmulatedMemory b_memory = upload(kernel, DType::f16, given.values);
  for_seeds([&] {
    Matrix c(m, n, 80, kPoison);
    const EmulatedMemory c_memory = upload(kernel, DType::f32, c.values);
    kernel.launch(groups(m, 64), groups(n, 64),
                  {kernel.tensor_map(0, a_memory.address(), m, k, k), m, k, std::int64_t{k}, std::int64_t{1},
                   kernel.tensor_map(1, b_memory.address(), n, k, k), n, k, std::int64_t{k}, std::int64_t{1},
                   c_memory.address(), m, n, k, c.stride});
    download(c_memory, DType::f32, c);
    CHECK(wrong(c, [&](int row, int column) { return dot(a, b, row, column); }, kExact) == 0);
  });
}

TEST_CASE("faults that are planted into Triton's kernels are found under every seed") {
  constexpr const char* kFlat = "descriptor_flat_sm90a";
  constexpr const char* kSpecialized = "descriptor_specialized_sm90a";
  constexpr const char* kGoOn = "setp.eq.u32 complete, 0, 0;";
  const Plant plants[] = {
      {kFlat, "fence.proxy.async", ""},                  // results are stored by TMA
      {kFlat, "wgmma.fence", ""},                        // before the first product
      {kFlat, "wgmma.wait_group.sync.aligned 0", ""},    // before sums are read
      {kFlat, "wgmma.wait_group.sync.aligned 1", ""},    // before a stage is filled again
      {kFlat, "mbarrier.try_wait", kGoOn},               // for a stage to be full
      {kFlat, "cp.async.bulk.wait_group.read \t0", ""},  // before the tile of results is reused
      {kSpecialized, "mbarrier.try_wait", kGoOn, 0},  // for the first tile of a to be read by one warpgroup
      {kSpecialized, "mbarrier.try_wait", kGoOn, 1},  // for the tile of b to be read by the other
      {kSpecialized, "mbarrier.try_wait", kGoOn, 4},  // for a tile of a to be there
      {kSpecialized, "mbarrier.try_wait", kGoOn, 5},  // for the tile of b to be there
      {kSpecialized, "mbarrier.try_wait.parity.shared::cta.b64 complete, [%r263], %r264",
       "mbarrier.try_wait.parity.shared::cta.b64 complete, [%r263], 0;"},  // the wrong phase
      {kSpecialized, "fence.proxy.async", ""},
      {kSpecialized, "wgmma.fence", ""},
      {kSpecialized, "wgmma.wait_group", ""},
  };
  for (const Plant& plant : plants) {
    CAPTURE(plant.kernel);
    CAPTURE(plant.begins);
    CAPTURE(plant.which);
    for_seeds([&] {
      const std::string found = found_in(plant);
      CHECK(found != "");
    });
  }
}

TEST_CASE("a transaction count that does not add up is reported with what the mbarrier still needs") {
  for (const char* const bytes : {"16400", "16368"}) {
    const std::string begins = "mbarrier.arrive.expect_tx";
    const TritonKernel kernel("descriptor_flat_sm90a", [&](std::string ptx) {
      for (std::size_t at = ptx.find(begins); at != std::string::npos; at = ptx.find(begins, at + 1))
        ptx.replace(ptx.find("16384", at), 5, bytes);
      return ptx;
    });
    std::string report;
    try {
      (void)wrong_by_descriptors(kernel, 64, 64, 64);
    } catch (const Error& error) {
      report = error.what();
    }
    CHECK(report.find("still needs 0 arrivals and") != std::string::npos);
    const cuda::Emulator emulator;
    emulator.reset_device(cuda::open_emulated(90)->device().ordinal);
  }
}

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "compiler/activation.h"
#include "compiler/cpu_levels.h"
#include "tests/kernels/suite.h"

// Activations as kernels compute them, value by value against float64. z is the bias of a product that is 0;
// of derivatives it is read beside dy = 1.

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

constexpr std::int32_t kIn = 8;
constexpr std::int64_t kOut = 8192;
constexpr double kRoundoff = 0x1p-24;  // of float32

/// Floats of all magnitudes, and as many near 0, where activations bend: kOut of a number of sets.
std::vector<float> values(std::size_t set, std::size_t sets) {
  std::vector<float> all;
  const auto count = static_cast<std::uint64_t>(kOut) * sets;
  for (std::uint64_t i = set; all.size() < kOut; i += sets) {
    const auto bits = static_cast<std::uint32_t>((std::uint64_t{i} << 32) / count);
    const float any = std::bit_cast<float>(bits);
    const double place = static_cast<double>(i) / static_cast<double>(count);
    all.push_back(i % 2 == 0 && std::isfinite(any) ? any : static_cast<float>(40 * place - 20));
  }
  return all;
}

/// What a kernel with one column of blocks makes of z, one for each output feature.
class Evaluation {
 public:
  Evaluation(const std::string& target, Activation activation, bool derivative)
      : derivative_(derivative),
        kernel_(compile(column(), options(target, activation, derivative))),
        memory_(Suite::current().device(), (4 * kOut + kOut * kIn) * sizeof(float)) {}

  std::vector<float> operator()(const std::vector<float>& z) {
    std::vector<float> image(memory_.bytes() / sizeof(float));
    std::copy(z.begin(), z.end(), image.begin());
    if (derivative_) {
      std::fill_n(image.begin() + kDy, kOut, 1.0F);
      std::fill_n(image.begin() + kX, kIn, 1.0F);
    }
    std::fill_n(image.begin() + kY, kOut, -12345.0F);
    memory_.copy_in(image.data());
    Operands operands;
    operands.x = view(at(kX), DType::f32, 1, kIn);
    if (derivative_) {
      operands.dy = view(at(kDy), DType::f32, 1, kOut);
      operands.z = view(at(0), DType::f32, 1, kOut);
      operands.dw = view(at(kW), DType::f32, kOut / kSide, kSide, kIn);
    } else {
      operands.bias = view(at(0), DType::f32, kOut);
      operands.w = view(at(kW), DType::f32, kOut / kSide, kSide, kIn);
      operands.y = view(at(kY), DType::f32, 1, kOut);
    }
    kernel_(operands);
    Suite::current().device()->synchronize();
    memory_.copy_out(image.data());
    std::vector<float> result;
    for (std::int64_t o = 0; o < kOut; ++o)
      result.push_back(image[static_cast<std::size_t>(derivative_ ? kW + o * kIn : kY + o)]);
    return result;
  }

 private:
  static constexpr std::int32_t kSide = 128;
  // Places in the memory, in floats.
  static constexpr std::int64_t kDy = kOut;
  static constexpr std::int64_t kY = 2 * kOut;
  static constexpr std::int64_t kX = 3 * kOut;
  static constexpr std::int64_t kW = 4 * kOut;

  static Layout column() {
    return Layout::from_mask(kOut / kSide, 1, std::vector<std::uint8_t>(kOut / kSide, 1));
  }
  static Options options(const std::string& target, Activation activation, bool derivative) {
    Options options = Suite::current().options({kSide, kIn}, 1);
    options.target = target;
    options.operation = derivative ? Operation::grad_weight : Operation::forward;
    if (derivative)
      options.derivative = activation;
    else
      options.epilogue = {.bias = true, .activation = activation};
    return options;
  }
  [[nodiscard]] void* at(std::int64_t place) const { return static_cast<float*>(memory_.data()) + place; }

  bool derivative_;
  Kernel kernel_;
  DeviceMemory memory_;
};

/// The device, or on a cpu each level that it runs: not all of them fuse multiply-adds.
std::vector<std::string> targets() {
  const Suite& suite = Suite::current();
  const std::string& arch = suite.device()->target().arch;
  if (!suite.on_cpu()) return {suite.target_of(arch, 1)};
  std::vector<std::string> all;
  for (const cpu::Level& level : cpu::levels())
    if (cpu::runs(arch, level.name)) all.push_back(suite.target_of(std::string(level.name), 1));
  return all;
}

std::size_t sets() { return Suite::full() ? 64 : Suite::current().emulated() ? 2 : 8; }

template <typename Check>
void for_all(const Check& check) {
  for (const std::string& target : targets())
    for (const ActivationRow& row : activation_rows().subspan(1)) {
      CAPTURE(target);
      CAPTURE(row.name);
      check(row, target);
    }
}

/// gelu_tanh computes z², which overflows: its derivative is NaN beyond.
bool is_defined(Activation activation, float z) {
  return activation != Activation::gelu_tanh || std::fabs(z) < 1e18F;
}

}  // namespace

TEST_CASE(
    "every activation of a kernel is as near to float64 as its row says, for values of all magnitudes") {
  for_all([](const ActivationRow& row, const std::string& target) {
    Evaluation function(target, row.value, false);
    for (std::size_t set = 0; set < sets(); ++set) {
      const std::vector<float> z = values(set, sets());
      const std::vector<float> y = function(z);
      std::size_t off = 0;
      for (std::size_t i = 0; i < z.size(); ++i) {
        const double expected = row.function(double{z[i]});
        if (std::fabs(double{y[i]} - expected) <= function_error(row, double{z[i]}, DType::f32, kRoundoff))
          continue;
        if (off++ == 0) MESSAGE(row.name, " of ", z[i], " is ", y[i], ", not ", expected);
      }
      CHECK(off == 0);
    }
  });
}

TEST_CASE(
    "every derivative of a kernel is as near to float64 as its row says, for values of all magnitudes") {
  for_all([](const ActivationRow& row, const std::string& target) {
    Evaluation derivative(target, row.value, true);
    for (std::size_t set = 0; set < sets(); ++set) {
      const std::vector<float> z = values(set, sets());
      const std::vector<float> slopes = derivative(z);
      std::size_t off = 0;
      for (std::size_t i = 0; i < z.size(); ++i) {
        if (!is_defined(row.value, z[i])) continue;
        const double expected = row.derivative(double{z[i]});
        if (std::fabs(double{slopes[i]} - expected) <= row.derivative_units * kRoundoff) continue;
        if (off++ == 0) MESSAGE(row.name, "' at ", z[i], " is ", slopes[i], ", not ", expected);
      }
      CHECK(off == 0);
    }
  });
}

TEST_CASE("an activation of an infinity or of a NaN is what float64 gives") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> special{kInf, -kInf, std::numeric_limits<float>::quiet_NaN()};
  for_all([&](const ActivationRow& row, const std::string& target) {
    std::vector<float> z(kOut, 0.5F);
    std::copy(special.begin(), special.end(), z.begin());
    const std::vector<float> y = Evaluation(target, row.value, false)(z);
    for (std::size_t i = 0; i < special.size(); ++i) {
      CAPTURE(z[i]);
      const double expected = row.function(double{z[i]});
      if (std::isnan(expected))
        CHECK(std::isnan(y[i]));
      else
        CHECK(double{y[i]} == expected);
    }
  });
}

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "compiler/activation.h"
#include "compiler/cpu_levels.h"
#include "tests/kernels/suite.h"

// Activations as kernels compute them, value by value against float64. z is the bias of a product that is 0;
// for derivatives it is read together with dy = 1.

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

constexpr std::int32_t kIn = 8;
constexpr std::int64_t kOut = 8192;

/// The numbers of a type in which kernels compute activations.
template <typename Real>
struct Format {
  static constexpr DType type = sizeof(Real) == 8 ? DType::f64 : DType::f32;
  static constexpr double roundoff = sizeof(Real) == 8 ? 0x1p-53 : 0x1p-24;
  /// float64 references of float64 results have errors of their own.
  static constexpr double slack = sizeof(Real) == 8 ? 2 : 1;
  using Bits = std::conditional_t<sizeof(Real) == 8, std::uint64_t, std::uint32_t>;
};

/// Numbers of all magnitudes, and as many near 0, where activations bend: kOut of a number of sets.
template <typename Real>
std::vector<Real> values(std::size_t set, std::size_t sets) {
  using Bits = typename Format<Real>::Bits;
  std::vector<Real> all;
  const auto count = static_cast<std::uint64_t>(kOut) * sets;
  const auto stride = static_cast<Bits>(std::numeric_limits<Bits>::max() / count);
  for (std::uint64_t i = set; all.size() < kOut; i += sets) {
    const Real any = std::bit_cast<Real>(static_cast<Bits>(stride * i));
    const double place = static_cast<double>(i) / static_cast<double>(count);
    all.push_back(i % 2 == 0 && std::isfinite(any) ? any : static_cast<Real>(40 * place - 20));
  }
  return all;
}

/// What a kernel with one column of blocks makes of z, one for each output feature.
template <typename Real>
class Evaluation {
 public:
  Evaluation(const std::string& target, Activation activation, bool derivative)
      : derivative_(derivative),
        kernel_(compile(column(), options(target, activation, derivative))),
        memory_(Suite::current().device(), (4 * kOut + kOut * kIn) * sizeof(Real)) {}

  std::vector<Real> operator()(const std::vector<Real>& z) {
    std::vector<Real> image(memory_.bytes() / sizeof(Real));
    std::copy(z.begin(), z.end(), image.begin());
    if (derivative_) {
      std::fill_n(image.begin() + kDy, kOut, Real{1});
      std::fill_n(image.begin() + kX, kIn, Real{1});
    }
    std::fill_n(image.begin() + kY, kOut, Real{-12345});
    memory_.copy_in(image.data());
    Operands operands;
    operands.x = view(at(kX), Format<Real>::type, 1, kIn);
    if (derivative_) {
      operands.dy = view(at(kDy), Format<Real>::type, 1, kOut);
      operands.z = view(at(0), Format<Real>::type, 1, kOut);
      operands.dw = view(at(kW), Format<Real>::type, kOut / kSide, kSide, kIn);
    } else {
      operands.bias = view(at(0), Format<Real>::type, kOut);
      operands.w = view(at(kW), Format<Real>::type, kOut / kSide, kSide, kIn);
      operands.y = view(at(kY), Format<Real>::type, 1, kOut);
    }
    kernel_(operands);
    Suite::current().device()->synchronize();
    memory_.copy_out(image.data());
    std::vector<Real> result;
    for (std::int64_t o = 0; o < kOut; ++o)
      result.push_back(image[static_cast<std::size_t>(derivative_ ? kW + o * kIn : kY + o)]);
    return result;
  }

 private:
  static constexpr std::int32_t kSide = 128;
  // Places in the memory, in numbers.
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
    options.dtype = Format<Real>::type;
    options.out_dtype = Format<Real>::type;
    options.operation = derivative ? Operation::grad_weight : Operation::forward;
    if (derivative)
      options.derivative = activation;
    else
      options.epilogue = {.bias = true, .activation = activation};
    return options;
  }
  [[nodiscard]] void* at(std::int64_t place) const { return static_cast<Real*>(memory_.data()) + place; }

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

/// gelu_tanh computes z²: where that is infinite, its derivative is NaN.
template <typename Real>
bool is_defined(Activation activation, Real z) {
  return activation != Activation::gelu_tanh || std::isfinite(z * z);
}

/// Compares `computed` of each value with `expected(z)`, which may be off by `bound(z)`.
template <typename Real, typename Expected, typename Bound>
void scan(const ActivationRow& row, const std::string& target, bool derivative, const Expected& expected,
          const Bound& bound) {
  Evaluation<Real> computed(target, row.value, derivative);
  for (std::size_t set = 0; set < sets(); ++set) {
    const std::vector<Real> z = values<Real>(set, sets());
    const std::vector<Real> y = computed(z);
    std::size_t off = 0;
    for (std::size_t i = 0; i < z.size(); ++i) {
      if (derivative && !is_defined(row.value, z[i])) continue;
      const double want = expected(double{z[i]});
      if (std::fabs(double{y[i]} - want) <= Format<Real>::slack * bound(double{z[i]})) continue;
      if (off++ == 0) MESSAGE(row.name, " of ", z[i], " is ", y[i], ", not ", want);
    }
    CHECK(off == 0);
  }
}

template <typename Real>
void scan_functions() {
  for_all([](const ActivationRow& row, const std::string& target) {
    scan<Real>(row, target, false, row.function,
               [&](double z) { return function_error(row, z, Format<Real>::type, Format<Real>::roundoff); });
  });
}

template <typename Real>
void scan_derivatives() {
  for_all([](const ActivationRow& row, const std::string& target) {
    scan<Real>(row, target, true, row.derivative,
               [&](double) { return row.derivative_units * Format<Real>::roundoff; });
  });
}

/// What a kernel makes of each of these.
template <typename Real>
std::vector<Real> evaluated(const std::vector<Real>& special, const ActivationRow& row,
                            const std::string& target, bool derivative) {
  std::vector<Real> z(kOut, Real{0.5});
  std::copy(special.begin(), special.end(), z.begin());
  return Evaluation<Real>(target, row.value, derivative)(z);
}

template <typename Real>
void check_special_values() {
  using Limits = std::numeric_limits<Real>;
  constexpr Real kInf = Limits::infinity();
  const std::vector<Real> special{kInf, -kInf, Limits::quiet_NaN()};
  for_all([&](const ActivationRow& row, const std::string& target) {
    const std::vector<Real> y = evaluated(special, row, target, false);
    for (std::size_t i = 0; i < special.size(); ++i) {
      CAPTURE(special[i]);
      const double expected = row.function(double{special[i]});
      if (std::isnan(expected))
        CHECK(std::isnan(y[i]));
      else
        CHECK(double{y[i]} == expected);
    }
  });
}

/// At an infinity the formulas of the smooth activations are NaN; far out they have reached their limits.
template <typename Real>
void check_special_derivatives() {
  using Limits = std::numeric_limits<Real>;
  constexpr Real kInf = Limits::infinity();
  const std::vector<Real> special{
      kInf,   -kInf,       Limits::quiet_NaN(), 1e18F,         -1e18F,          1e20F,
      -1e20F, Real{3e38F}, Real{-3e38F},        Limits::max(), Limits::lowest()};
  for_all([&](const ActivationRow& row, const std::string& target) {
    const std::vector<Real> slope = evaluated(special, row, target, true);
    for (std::size_t i = 0; i < special.size(); ++i) {
      CAPTURE(special[i]);
      const double expected = row.derivative(double{special[i]});
      if (std::isnan(expected) || !is_defined(row.value, special[i]))
        CHECK(std::isnan(slope[i]));
      else
        CHECK(std::fabs(double{slope[i]} - expected) <= row.derivative_units * Format<Real>::roundoff);
    }
  });
}

}  // namespace

TEST_CASE("every activation of a kernel is as near to its float64 value as its row says, at all magnitudes") {
  scan_functions<float>();
}

TEST_CASE("every derivative of a kernel is as near to its float64 value as its row says, at all magnitudes") {
  scan_derivatives<float>();
}

TEST_CASE("an activation of an infinity or of a NaN is what float64 gives") { check_special_values<float>(); }

TEST_CASE(
    "a derivative at an infinity, a NaN or a huge number is what float64 gives, but NaN of gelu_tanh's") {
  check_special_derivatives<float>();
}

TEST_CASE("float64 activations and derivatives are as near to the reference, at all magnitudes") {
  if (!Suite::current().on_cpu()) return;
  scan_functions<double>();
  scan_derivatives<double>();
  check_special_values<double>();
  check_special_derivatives<double>();
}

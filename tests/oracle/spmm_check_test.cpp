#include "oracle/spmm_check.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include <sparsekiln/error.h>

#include "compiler/element.h"

using namespace sparsekiln;

namespace {

/// 4 × 3 blocks: a row of two blocks, an empty row, a full row, a row of one block; column 1 meets row 2
/// only.
Problem sample(DType dtype = DType::f32, BlockShape block = {16, 8}) {
  const std::vector<std::uint8_t> mask = {1, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0, 1};
  Problem problem;
  problem.layout = Layout::from_mask(4, 3, mask);
  problem.block = block;
  problem.batch = 5;
  problem.dtype = dtype;
  problem.out_dtype = dtype;
  return problem;
}

/// What a correct kernel does: products fused into a float32 sum in ascending order of k.
void run(const Problem& problem, const HostInputs& inputs, PoisonedOutput& output) {
  const auto [out, in] = problem.block;
  for (std::int64_t n = 0; n < inputs.n; ++n)
    for (std::int32_t row = 0; row < problem.layout.rows(); ++row)
      for (std::int32_t o = 0; o < out; ++o) {
        float sum = 0;
        std::int64_t block = problem.layout.crow()[static_cast<std::size_t>(row)];
        for (const std::int32_t col : problem.layout.row(row)) {
          for (std::int32_t k = 0; k < in; ++k)
            sum = std::fma(to_float(problem.dtype, inputs.x.data(), n * inputs.x_stride + col * in + k),
                           to_float(problem.dtype, inputs.w.data(), (block * out + o) * in + k), sum);
          ++block;
        }
        store(problem.out_dtype, sum, output.y(), n * output.row_stride() + row * out + o);
      }
}

/// What rounds each sum, as `run` does.
CheckResult check(const Problem& problem, const HostInputs& inputs, const PoisonedOutput& output) {
  return sparsekiln::check(problem, inputs, output, Adder::float32);
}

/// A correct run at strides wider than the rows, with one fault planted afterwards.
template <class Fault>
CheckResult judge(const Problem& problem, Inputs kind, Fault fault) {
  const HostInputs inputs = make_inputs(problem, 5, kind, 1, problem.in_features() + 8);
  PoisonedOutput output(problem, 5, problem.out_features() + 16);
  run(problem, inputs, output);
  fault(output);
  return check(problem, inputs, output);
}

float get(const PoisonedOutput& output, std::int64_t n, std::int64_t o) {
  return to_float(output.dtype(), output.y(), n * output.row_stride() + o);
}
void set(PoisonedOutput& output, std::int64_t n, std::int64_t o, float value) {
  store(output.dtype(), value, output.y(), n * output.row_stride() + o);
}

constexpr auto kNoFault = [](PoisonedOutput&) {};

}  // namespace

TEST_CASE("a correct result passes, with either kind of input and in every element type") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const Inputs kind : {Inputs::small_integers, Inputs::random}) {
      const CheckResult check_result = judge(sample(dtype), kind, kNoFault);
      CAPTURE(name(dtype));
      CHECK_MESSAGE(check_result.ok, check_result.first_failure);
      CHECK(check_result.max_error_ratio <= (kind == Inputs::small_integers ? 0.0 : 1.0));
      CHECK(check_result.rel_error <= element_format(dtype).unit_roundoff * 4);
      CHECK(check_result.first_failure.empty());
    }
}

TEST_CASE("an integer result that is off by the smallest step is found") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const CheckResult check_result = judge(sample(dtype), Inputs::small_integers, [](PoisonedOutput& output) {
      const float value = get(output, 2, 3);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof(bits));
      bits += output.dtype() == DType::f32 ? 1u : 0x10000u;
      float next = 0;
      std::memcpy(&next, &bits, sizeof(bits));
      set(output, 2, 3, next);
    });
    CHECK_FALSE(check_result.ok);
    CHECK(check_result.wrong == 1);
    CHECK(check_result.max_error_ratio > 1);
    CHECK(check_result.first_failure.find("y[2, 3]") != std::string::npos);
  }
}

TEST_CASE("one zeroed element among thousands is found, where the norm hides it") {
  Problem problem = sample(DType::f32, {128, 64});
  const HostInputs inputs = make_inputs(problem, 100, Inputs::random, 7);
  PoisonedOutput output(problem, 100);
  run(problem, inputs, output);
  set(output, 37, 300, 0);
  const CheckResult check_result = check(problem, inputs, output);
  CHECK_FALSE(check_result.ok);
  CHECK(check_result.wrong == 1);
  CHECK(check_result.rel_error < 0.02);
  CHECK(check_result.first_failure.find("y[37, 300]") != std::string::npos);
}

TEST_CASE("a product lost in a long row is found by both kinds of input") {
  Problem problem;
  const std::vector<std::uint8_t> mask(100, 1);
  problem.layout = Layout::from_mask(1, 100, mask);
  problem.block = {8, 64};
  for (const Inputs kind : {Inputs::small_integers, Inputs::random}) {
    const HostInputs inputs = make_inputs(problem, 1, kind, 3);
    HostInputs without = inputs;
    store(DType::f32, 0, without.x.data(), 4711);
    PoisonedOutput output(problem, 1);
    run(problem, without, output);
    const CheckResult check_result = check(problem, inputs, output);
    CHECK_FALSE(check_result.ok);
    if (kind == Inputs::small_integers) CHECK(check_result.wrong == 8);
  }
}

TEST_CASE("an element that was never written is found, an empty row's zero included") {
  const Problem problem = sample();
  const HostInputs inputs = make_inputs(problem, 5, Inputs::random, 1);
  PoisonedOutput whole(problem, 5);
  run(problem, inputs, whole);
  for (const std::int64_t o : {0, 20, 63}) {  // 16 to 31 belong to the empty block row
    PoisonedOutput output(problem, 5);
    for (std::int64_t n = 0; n < 5; ++n)
      for (std::int64_t i = 0; i < output.width(); ++i)
        if (n != 4 || i != o) set(output, n, i, get(whole, n, i));
    const CheckResult check_result = check(problem, inputs, output);
    CHECK_FALSE(check_result.ok);
    CHECK(check_result.unwritten == 1);
    CHECK(check_result.stray == 0);
    CHECK(check_result.first_failure == "y[4, " + std::to_string(o) + "] was not written");
  }
}

TEST_CASE("a write beside y is found: before it, after it, and between its rows") {
  const auto stray_at = [](std::int64_t element) {
    return judge(sample(), Inputs::random, [&](PoisonedOutput& output) {
      const float value = 1;
      std::memcpy(output.y() + element * 4, &value, 4);
    });
  };
  const std::int64_t stride = 64 + 16;
  CHECK(stray_at(-1).first_failure == "1 elements before y was written");
  CHECK(stray_at(64).first_failure == "1 elements after the row y[0, :] was written");
  CHECK(stray_at(5 * stride).first_failure == "1 elements after y was written");
  CHECK(stray_at(5 * stride + 100 * stride).stray == 1);
  CHECK_FALSE(stray_at(-1).ok);
}

TEST_CASE("a NaN or an Inf where the reference has none never passes") {
  for (const Inputs kind : {Inputs::small_integers, Inputs::random})
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const CheckResult check_result =
          judge(sample(), kind, [&](PoisonedOutput& output) { set(output, 0, 63, value); });
      CHECK_FALSE(check_result.ok);
      CHECK(check_result.wrong == 1);
    }
}

TEST_CASE("planted Inf and NaN must reach the rows with a block in their column, and no others") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Inputs kind : {Inputs::small_integers, Inputs::random}) {
      const Problem problem = sample(dtype);
      HostInputs inputs = make_inputs(problem, 5, kind, 2);
      store(dtype, std::numeric_limits<float>::infinity(), inputs.x.data(),
            1 * 24 + 9);  // column 1: row 2 only
      PoisonedOutput output(problem, 5);
      run(problem, inputs, output);
      CHECK_FALSE(std::isfinite(get(output, 1, 40)));
      CHECK(check(problem, inputs, output).ok);

      PoisonedOutput spread =
          output;  // 0 · Inf, as a kernel that fills absent blocks with zeros would make it
      set(spread, 1, 0, std::numeric_limits<float>::quiet_NaN());
      CHECK_FALSE(check(problem, inputs, spread).ok);

      PoisonedOutput swallowed = output;
      set(swallowed, 1, 40, 1);
      CHECK_FALSE(check(problem, inputs, swallowed).ok);

      PoisonedOutput negated = output;
      set(negated, 1, 40, -get(output, 1, 40));
      CHECK_FALSE(check(problem, inputs, negated).ok);

      plant_non_finite(problem, inputs, 5);
      run(problem, inputs, output);
      CHECK(check(problem, inputs, output).ok);
    }
}

TEST_CASE("a result in the wrong batch row or of another block is found") {
  const Problem problem = sample();
  const HostInputs inputs = make_inputs(problem, 5, Inputs::small_integers, 1);
  PoisonedOutput output(problem, 5);
  run(problem, inputs, output);
  PoisonedOutput swapped = output;
  for (std::int64_t o = 0; o < 64; ++o) {
    set(swapped, 0, o, get(output, 1, o));
    set(swapped, 1, o, get(output, 0, o));
  }
  CHECK(check(problem, inputs, swapped).wrong > 50);
}

TEST_CASE("inputs are the same for the same seed, differ for another, and poison the gaps between rows") {
  const Problem problem = sample();
  const HostInputs a = make_inputs(problem, 5, Inputs::random, 1, 32);
  CHECK(a.x == make_inputs(problem, 5, Inputs::random, 1, 32).x);
  CHECK(a.w == make_inputs(problem, 5, Inputs::random, 1).w);
  CHECK(a.x != make_inputs(problem, 5, Inputs::random, 2, 32).x);
  CHECK(std::isnan(to_float(DType::f32, a.x.data(), 24)));
  CHECK(std::fabs(to_float(DType::f32, a.x.data(), 32)) < 1);
  CHECK_THROWS_AS((void)make_inputs(problem, 5, Inputs::random, 1, 23), Error);
}

TEST_CASE("integer inputs are non-zero integers whose sums float32 holds") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Problem problem = sample(dtype);
    const HostInputs inputs = make_inputs(problem, 5, Inputs::small_integers, 1);
    for (std::int64_t i = 0; i < 5 * 24; ++i) {
      const float value = to_float(dtype, inputs.x.data(), i);
      CHECK(value != 0);
      CHECK(value == std::trunc(value));
      CHECK(std::fabs(value) <= 8);
    }
  }
}

TEST_CASE("a batch of zero, an empty layout and a grid without rows have nothing to be wrong") {
  const Problem problem = sample();
  CHECK(check(problem, make_inputs(problem, 0, Inputs::random, 1), PoisonedOutput(problem, 0)).ok);
  Problem empty;
  empty.layout = Layout::from_mask(1, 1, std::vector<std::uint8_t>{0});
  const HostInputs inputs = make_inputs(empty, 3, Inputs::small_integers, 1);
  PoisonedOutput output(empty, 3);
  CHECK_FALSE(check(empty, inputs, output).ok);
  run(empty, inputs, output);
  CHECK(check(empty, inputs, output).ok);
  Problem none;
  CHECK(check(none, make_inputs(none, 3, Inputs::random, 1), PoisonedOutput(none, 3)).ok);
}

TEST_CASE("the reference agrees with a plain float64 sum, magnitudes too, over many rows and batch rows") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Problem problem = sample(dtype, {32, 64});
    const HostInputs inputs = make_inputs(problem, 45, Inputs::random, 9, 200);
    const Reference result = reference(problem, inputs.operands(), 3, 42, true);
    const std::int64_t out = problem.out_features();
    for (const std::int64_t n : {0, 7, 8, 31, 32, 41})
      for (std::int64_t o = 0; o < out; ++o) {
        double y = 0, magnitude = 0;
        const std::int64_t row = o / 32;
        std::int64_t block = problem.layout.crow()[static_cast<std::size_t>(row)];
        for (const std::int32_t col : problem.layout.row(static_cast<std::int32_t>(row))) {
          for (std::int64_t k = 0; k < 64; ++k) {
            const double product = double{to_float(dtype, inputs.x.data(), (n + 3) * 200 + col * 64 + k)} *
                                   to_float(dtype, inputs.w.data(), (block * 32 + o % 32) * 64 + k);
            y += product;
            magnitude += std::fabs(product);
          }
          ++block;
        }
        CHECK(result.y[static_cast<std::size_t>(n * out + o)] == y);
        CHECK(result.magnitude[static_cast<std::size_t>(n * out + o)] == magnitude);
      }
  }
}

TEST_CASE("a sum may be off by what its adder loses, and not by more") {
  const std::vector<std::uint8_t> mask(4, 1);
  Problem problem;
  problem.layout = Layout::from_mask(1, 4, mask);
  problem.block = {8, 16};  // 64 products, fewer than 10·√64
  problem.out_dtype = DType::f32;
  const double u = std::ldexp(1.0, -24);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const Math math : {Math::ieee, Math::tf32}) {
      if (dtype != DType::f32 && math == Math::tf32) continue;
      problem.dtype = dtype;
      problem.math = math;
      const HostInputs inputs = make_inputs(problem, 1, Inputs::random, 5);
      const Reference exact = reference(problem, inputs.operands(), 0, 1, true);
      CAPTURE(name(dtype));
      CAPTURE(name(math));
      const auto check_result = [&](double roundings, Adder adder) {
        PoisonedOutput output(problem, 1);
        for (std::int64_t o = 0; o < 8; ++o) {
          const auto i = static_cast<std::size_t>(o);
          const double error = roundings * u * exact.magnitude[i] + u * std::fabs(exact.y[i]);
          set(output, 0, o, static_cast<float>(exact.y[i] + (o % 2 == 0 ? error : -error)));
        }
        return sparsekiln::check(problem, inputs, output, adder);
      };
      CHECK(check_result(0.95 * 64, Adder::float32).ok);
      CHECK(check_result(1.05 * 64, Adder::float32).wrong == 8);
      CHECK(check_result(0.95 * 64 * 2.5, Adder::tensor_cores).ok);
      CHECK(check_result(1.05 * 64 * 2.5, Adder::tensor_cores).wrong == 8);
    }
}

TEST_CASE("a plan adds with tensor cores where any of its kernels does") {
  const Problem ieee;
  Problem tf32;
  tf32.math = Math::tf32;
  Config mma;
  mma.variant = Variant::mma;
  Config stream;
  stream.variant = Variant::stream;
  CHECK(adder_of(tf32, {}) == Adder::float32);
  CHECK(adder_of(tf32, {{8, Config{}}}) == Adder::float32);
  CHECK(adder_of(tf32, {{8, Config{}}, {64, mma}}) == Adder::tensor_cores);
  CHECK(adder_of(tf32, {{8, stream}, {64, mma}}) == Adder::tensor_cores);
  CHECK(adder_of(ieee, {{8, stream}}) == Adder::float32);
}

TEST_CASE("float64 results pass where they are summed in float64, and not where they are summed in float32") {
  for (const Inputs kind : {Inputs::small_integers, Inputs::random}) {
    const Problem problem = sample(DType::f64);
    const HostInputs inputs = make_inputs(problem, 5, kind, 1);
    const auto [out, in] = problem.block;
    PoisonedOutput summed(problem, 5);
    PoisonedOutput narrow(problem, 5);
    for (std::int64_t n = 0; n < 5; ++n)
      for (std::int32_t row = 0; row < problem.layout.rows(); ++row)
        for (std::int32_t o = 0; o < out; ++o) {
          double sum = 0;
          std::int64_t block = problem.layout.crow()[static_cast<std::size_t>(row)];
          for (const std::int32_t col : problem.layout.row(row)) {
            for (std::int32_t k = 0; k < in; ++k)
              sum += to_double(DType::f64, inputs.x.data(), n * inputs.x_stride + col * in + k) *
                     to_double(DType::f64, inputs.w.data(), (block * out + o) * in + k);
            ++block;
          }
          const std::int64_t at = n * summed.row_stride() + row * out + o;
          store(DType::f64, sum, summed.y(), at);
          store(DType::f64, static_cast<float>(sum), narrow.y(), at);
        }
    const CheckResult result = check(problem, inputs, summed);
    CHECK_MESSAGE(result.ok, result.first_failure);
    CHECK(check(problem, inputs, narrow).ok == (kind == Inputs::small_integers));
  }
}

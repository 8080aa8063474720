#include "oracle/sddmm_check.h"

#include <doctest/doctest.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "compiler/element.h"
#include "compiler/spmm.h"
#include "oracle/spmm_reference.h"

using namespace sparsekiln;

namespace {

const Layout kSmall = Layout::from_mask(3, 4, std::vector<std::uint8_t>{1, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 1});

Problem problem_of(DType type = DType::f32) {
  Problem problem;
  problem.operation = Operation::grad_weight;
  problem.layout = kSmall;
  problem.block = {16, 8};
  problem.batch = Batch::up_to(64);
  problem.dtype = type;
  problem.out_dtype = type;
  return problem;
}

Problem with_all_ends(DType type = DType::f32) {
  Problem problem = problem_of(type);
  problem.epilogue.scale = true;
  problem.block_scales = true;
  problem.block_scale_gradient = true;
  problem.bias_gradient = true;
  problem.derivative = Activation::relu;
  return problem;
}

/// What a kernel that makes no error would leave.
SddmmOutputs computed(const Sddmm& gradient, const SddmmInputs& inputs) {
  const SddmmReference want = reference(gradient, inputs);
  SddmmOutputs outputs(gradient, inputs);
  const auto put = [&](PoisonedOutput& output, const std::vector<double>& sums, auto scale) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const double old = inputs.beta == 0 ? 0 : inputs.beta * to_double(output.dtype(), output.y(), at);
      store(output.dtype(), scale(i) * sums[i] + old, output.y(), at);
    }
  };
  put(outputs.dw, want.dw, [&](std::size_t i) {
    const auto block = static_cast<std::int64_t>(i) / gradient.block_elements();
    return inputs.alpha *
           (gradient.block_scales ? to_double(gradient.sum_type(), inputs.block_scales.data(), block) : 1);
  });
  const auto alpha = [&](std::size_t) { return inputs.alpha; };
  put(outputs.dbias, want.dbias, alpha);
  put(outputs.dblock_scales, want.dblock_scales, alpha);
  return outputs;
}

}  // namespace

TEST_CASE("the oracle passes what is right, for all ends, types and orders") {
  for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::f64})
    for (const Inputs kind : {Inputs::small_integers, Inputs::random})
      for (const ActivationOrder order : {ActivationOrder::batch_major, ActivationOrder::feature_major})
        for (const float beta : {0.F, -1.F}) {
          Problem problem = with_all_ends(type);
          problem.order = order;
          const Sddmm gradient(problem);
          const SddmmInputs inputs =
              make_inputs(gradient, {.n = 7, .pairs = 3, .padding = 8, .beta = beta}, kind, 1);
          const CheckResult check_result =
              check(gradient, inputs, computed(gradient, inputs), Adder::float32);
          CHECK_MESSAGE(check_result.ok, check_result.first_failure);
        }
}

TEST_CASE("the oracle finds one wrong, unwritten or stray element of any result") {
  const Sddmm gradient(with_all_ends());
  for (const Inputs kind : {Inputs::small_integers, Inputs::random}) {
    const SddmmInputs inputs = make_inputs(gradient, {.n = 9}, kind, 2);
    const SddmmOutputs good = computed(gradient, inputs);
    for (PoisonedOutput SddmmOutputs::* result :
         {&SddmmOutputs::dw, &SddmmOutputs::dbias, &SddmmOutputs::dblock_scales}) {
      SddmmOutputs wrong = good;
      std::byte* const y = (wrong.*result).y();
      store(DType::f32, to_float(DType::f32, y, 3) + 0.1F, y, 3);
      CHECK(check(gradient, inputs, wrong, Adder::float32).wrong == 1);
      SddmmOutputs unwritten = good;
      std::memcpy((unwritten.*result).y(), (SddmmOutputs(gradient, inputs).*result).y(), 4);
      CHECK(check(gradient, inputs, unwritten, Adder::float32).unwritten == 1);
      SddmmOutputs stray = good;
      std::memset((stray.*result).y() - 4, 0, 4);
      CHECK(check(gradient, inputs, stray, Adder::float32).stray == 1);
    }
  }
}

TEST_CASE("without batch rows the gradient is zeros, or beta times what it was") {
  const Sddmm gradient(with_all_ends());
  for (const float beta : {0.F, 2.F}) {
    const SddmmInputs inputs = make_inputs(gradient, {.n = 0, .beta = beta}, Inputs::small_integers, 3);
    const CheckResult check_result = check(gradient, inputs, computed(gradient, inputs), Adder::float32);
    CHECK_MESSAGE(check_result.ok, check_result.first_failure);
  }
}

TEST_CASE("the reference of the gradient is that of finite differences") {
  // loss(W) = Σ c·y(W) with y = x·Wᵀ is linear in W: a central difference is its gradient but for rounding.
  Problem problem = problem_of();
  const Sddmm gradient(problem);
  const SddmmInputs inputs = make_inputs(gradient, {.n = 5}, Inputs::random, 4);
  const SddmmReference found = reference(gradient, inputs);
  problem.operation = Operation::forward;
  const Spmm product(problem);
  std::vector<float> w(static_cast<std::size_t>(problem.layout.blocks() * gradient.block_elements()), 0.5F);
  const auto loss_of = [&] {
    const Reference y =
        reference(product, {inputs.pairs[0].x.data(), w.data(), inputs.x_stride}, 0, inputs.n, false);
    double sum = 0;
    for (std::size_t i = 0; i < y.y.size(); ++i)
      sum += y.y[i] * to_float(DType::f32, inputs.pairs[0].dy.data(), static_cast<std::int64_t>(i));
    return sum;
  };
  for (std::size_t i = 0; i < w.size(); i += 37) {
    w[i] = 1;
    const double above = loss_of();
    w[i] = 0;
    const double below = loss_of();
    w[i] = 0.5F;
    CHECK(above - below == doctest::Approx(found.dw[i]).epsilon(1e-12));
  }
}

TEST_CASE("gradients of biases and block scales are those of finite differences") {
  // y = (g ∘ W)·x + b, linear in each block scale and each bias.
  Problem problem = problem_of();
  problem.bias_gradient = true;
  problem.block_scales = true;
  problem.block_scale_gradient = true;
  const Sddmm gradient(problem);
  const SddmmInputs inputs = make_inputs(gradient, {.n = 5}, Inputs::random, 5);
  const SddmmReference found = reference(gradient, inputs);
  problem.operation = Operation::forward;
  const Spmm product(problem);
  const std::int64_t elements = gradient.block_elements();
  // The gradient of a block scale: the block's result with a scale of 1 less that with 0.
  for (std::int64_t block = 0; block < problem.layout.blocks(); ++block) {
    std::vector<std::byte> w(inputs.w.size());
    const auto bytes = static_cast<std::size_t>(elements) * 4;
    std::memcpy(w.data() + static_cast<std::size_t>(block) * bytes,
                inputs.w.data() + static_cast<std::size_t>(block) * bytes, bytes);
    const Reference y =
        reference(product, {inputs.pairs[0].x.data(), w.data(), inputs.x_stride}, 0, inputs.n, false);
    double difference = 0;
    for (std::size_t i = 0; i < y.y.size(); ++i)
      difference += y.y[i] * to_float(DType::f32, inputs.pairs[0].dy.data(), static_cast<std::int64_t>(i));
    CHECK(difference == doctest::Approx(found.dblock_scales[static_cast<std::size_t>(block)]).epsilon(1e-12));
  }
  for (std::int64_t o = 0; o < gradient.out_features(); ++o) {
    double difference = 0;
    for (std::int64_t n = 0; n < inputs.n; ++n)
      difference += to_float(DType::f32, inputs.pairs[0].dy.data(), n * inputs.dy_stride + o);
    CHECK(difference == doctest::Approx(found.dbias[static_cast<std::size_t>(o)]).epsilon(1e-12));
  }
}

TEST_CASE("exact integers are refused where sums are too long for them") {
  Problem problem = problem_of(DType::f16);
  problem.batch = Batch::up_to(1 << 20);
  CHECK_THROWS_AS(static_cast<void>(make_inputs(Sddmm(problem), {.n = 1 << 17}, Inputs::small_integers, 1)),
                  Error);
}

#include <sparsekiln/c.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include <doctest/doctest.h>

#include "tests/runtime/c_array.h"

// The operands of epilogues with matrices of their own, in the C interface.

#ifdef SPARSEKILN_CPU
namespace sparsekiln {
namespace {

TEST_CASE("the cell of an LSTM takes its operands by name, and so does its gradient") {
  sk_options options;
  sk_options_init(&options);
  options.block_out = options.block_in = 8;
  options.batch = "3";
  options.target = "cpu";
  const auto compile = [&](const char* operation, const char* epilogue) {
    options.operation = operation;
    options.epilogue = epilogue;
    sk_layout* layout = exchange();
    sk_kernel* kernel = nullptr;
    REQUIRE_MESSAGE(sk_compile(layout, &options, &kernel) == SK_OK, sk_error_message());
    sk_layout_free(layout);
    return kernel;
  };
  sk_kernel* forward = compile("forward", "lstm+keep");
  sk_kernel* back = compile("grad_input", "lstm+residual");

  // Weights of zeros: z is the projection.
  Array x({3, 16}), w({4, 2, 8, 8}), y({3, 16}), projection({3, 64}), activations({3, 64}), c_before({3, 16}),
      c({3, 16});
  for (std::size_t i = 0; i < projection.values.size(); ++i)
    projection.values[i] = static_cast<float>(i % 7) / 2 - 1;
  std::fill(c_before.values.begin(), c_before.values.end(), 0.75f);
  CLaunch operands;
  operands.set("x", &x.tensor);
  operands.set("w", &w.tensor);
  operands.set("y", &y.tensor);
  operands.set("projection", &projection.tensor);
  operands.set("activations", &activations.tensor);
  operands.set("c_before", &c_before.tensor);
  operands.set("c", &c.tensor);
  REQUIRE_MESSAGE(operands.run(forward) == SK_OK, sk_error_message());
  const auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
  for (std::size_t n = 0; n < 3; ++n)
    for (std::size_t k = 0; k < 16; ++k) {
      const float* const z = &projection.values[n * 64 + k];
      const std::size_t at = n * 16 + k;
      const double wanted = sigmoid(z[16]) * c_before.values[at] + sigmoid(z[0]) * std::tanh(double{z[32]});
      CHECK(c.values[at] == doctest::Approx(wanted));
      CHECK(y.values[at] == doctest::Approx(sigmoid(z[48]) * std::tanh(wanted)));
    }

  Array dy({3, 64}), dx({3, 64}), residual({3, 16}), dc({3, 16}), dc_before({3, 16});
  std::fill(residual.values.begin(), residual.values.end(), 2.0f);
  std::fill(dc.values.begin(), dc.values.end(), 0.5f);
  operands.set("dy", &dy.tensor);
  operands.set("dx", &dx.tensor);
  operands.set("residual", &residual.tensor);
  operands.set("dc", &dc.tensor);
  operands.set("dc_before", &dc_before.tensor);
  REQUIRE_MESSAGE(operands.run(back) == SK_OK, sk_error_message());
  for (std::size_t n = 0; n < 3; ++n)
    for (std::size_t k = 0; k < 16; ++k) {
      const float* const kept = &activations.values[n * 64 + k];
      const double t = std::tanh(double{c.values[n * 16 + k]});
      const double d = 0.5 + 2 * kept[48] * (1 - t * t);
      CHECK(dc_before.values[n * 16 + k] == doctest::Approx(d * kept[16]));
      CHECK(dx.values[n * 64 + k + 48] == doctest::Approx(2 * t * kept[48] * (1 - kept[48])));
    }
  operands.set("dc", nullptr);
  CHECK(operands.run(back) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("it was not given") != std::string::npos);
  sk_kernel_free(forward);
  sk_kernel_free(back);
}

TEST_CASE("a layer normalisation takes its operands by name, and so does its gradient") {
  sk_options options;
  sk_options_init(&options);
  options.block_out = options.block_in = 8;
  options.batch = "3";
  options.target = "cpu";
  const auto compile = [&](const char* operation, const char* epilogue) {
    options.operation = operation;
    options.epilogue = epilogue;
    sk_layout* layout = exchange();
    sk_kernel* kernel = nullptr;
    REQUIRE_MESSAGE(sk_compile(layout, &options, &kernel) == SK_OK, sk_error_message());
    sk_layout_free(layout);
    return kernel;
  };
  sk_kernel* forward = compile("forward", "layer_norm+multiply+add");
  sk_kernel* back = compile("grad_input", "layer_norm+multiply+add+residual");

  // Each block is a small multiple of the identity, so that epsilon decides: z is x with its halves
  // exchanged.
  constexpr float kSmall = 0x1p-8F;
  Array x({3, 16}), w({2, 8, 8}), y({3, 16}), gain({16}), bias({16}), sums({3, 16}), statistics({3, 2}),
      multiplier({3, 16}), addend({3, 16});
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    x.values[i] = static_cast<float>(i * 5 % 7) - 3;
    multiplier.values[i] = static_cast<float>(i % 3) + 1;
    addend.values[i] = static_cast<float>(i % 5);
  }
  for (std::size_t i = 0; i < 16; ++i) w.values[i / 8 * 64 + i % 8 * 9] = kSmall;
  for (std::size_t i = 0; i < 16; ++i) gain.values[i] = static_cast<float>(i % 4) + 1;
  for (std::size_t i = 0; i < 16; ++i) bias.values[i] = static_cast<float>(i % 2);
  CLaunch operands;
  CHECK(operands.launch.epsilon == 1e-5);
  operands.set("x", &x.tensor);
  operands.set("w", &w.tensor);
  operands.set("y", &y.tensor);
  operands.set("bias", &bias.tensor);
  operands.set("gain", &gain.tensor);
  operands.set("sums", &sums.tensor);
  operands.set("statistics", &statistics.tensor);
  operands.set("multiplier", &multiplier.tensor);
  operands.set("addend", &addend.tensor);
  const auto check_with = [&](double epsilon) {
    std::fill(y.values.begin(), y.values.end(), 0.0F);
    REQUIRE_MESSAGE(operands.run(forward) == SK_OK, sk_error_message());
    for (std::size_t n = 0; n < 3; ++n) {
      double mean = 0;
      double square = epsilon;
      for (std::size_t k = 0; k < 16; ++k) mean += double{kSmall} * x.values[n * 16 + k] / 16;
      for (std::size_t k = 0; k < 16; ++k)
        square += std::pow(double{kSmall} * x.values[n * 16 + k] - mean, 2) / 16;
      CHECK(statistics.values[n * 2] == doctest::Approx(mean));
      CHECK(statistics.values[n * 2 + 1] == doctest::Approx(1 / std::sqrt(square)));
      for (std::size_t k = 0; k < 16; ++k) {
        const std::size_t at = n * 16 + k;
        CHECK(sums.values[at] == kSmall * x.values[n * 16 + (k + 8) % 16]);
        const double u = (sums.values[at] - mean) / std::sqrt(square);
        CHECK(y.values[at] == doctest::Approx((u * gain.values[k] + bias.values[k]) * multiplier.values[at] +
                                              addend.values[at]));
      }
    }
  };
  check_with(1e-5);
  operands.launch.epsilon = 1e-3;
  check_with(1e-3);
  operands.launch.size = offsetof(sk_launch, epsilon);  // smaller than the first version
  CHECK(operands.run(forward) == SK_INVALID_ARGUMENT);
  sk_launch_init(&operands.launch);

  Array dy({3, 16}), dx({3, 16}), residual({3, 16}), dmultiplier({3, 16}), daddend({3, 16}), dnorm({2, 32});
  std::fill(residual.values.begin(), residual.values.end(), 2.0F);
  std::fill(dnorm.values.begin(), dnorm.values.end(), 0.5F);
  operands.set("dy", &dy.tensor);
  operands.set("dx", &dx.tensor);
  operands.set("residual", &residual.tensor);
  operands.set("dmultiplier", &dmultiplier.tensor);
  operands.set("daddend", &daddend.tensor);
  operands.set("dnorm", &dnorm.tensor);
  REQUIRE_MESSAGE(operands.run(back) == SK_OK, sk_error_message());
  for (std::size_t n = 0; n < 3; ++n) {
    double sum = 0;
    for (std::size_t k = 0; k < 16; ++k) {
      const std::size_t at = n * 16 + k;
      const double u = (sums.values[at] - double{statistics.values[n * 2]}) * statistics.values[n * 2 + 1];
      CHECK(daddend.values[at] == 2);
      CHECK(dmultiplier.values[at] == doctest::Approx(2 * (u * gain.values[k] + bias.values[k])));
      sum += dx.values[at];
    }
    CHECK(std::fabs(sum) < 1e-2);  // a constant that is added to all of a row's z changes nothing
  }
  for (std::size_t k = 0; k < 16; ++k) {
    CHECK(dnorm.values[16 + k] == 0.5F + 2 * (multiplier.values[k] + multiplier.values[32 + k]));
    CHECK(dnorm.values[48 + k] == 0.5F + 2 * multiplier.values[16 + k]);
  }
  operands.set("gain", nullptr);
  CHECK(operands.run(back) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("it was not given") != std::string::npos);
  sk_kernel_free(forward);
  sk_kernel_free(back);
}

}  // namespace
}  // namespace sparsekiln
#endif

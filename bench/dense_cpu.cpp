// Times oneDNN's matmul primitive on a dense layer y[n, out] = x[n, in] · W[out, in]ᵀ in float32, with the
// weight in plain [out, in] memory, as we store it: nothing is packed or reordered before the clock starts.
// OMP_NUM_THREADS sets the number of threads. Prints one JSON document.
//
//  dense_cpu IN OUT N [SAMPLES]
//  dense_cpu --short                 a small layer, for tests

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "autotune/statistics.h"
#include "runtime/host_stopwatch.h"
#include "runtime/sampler.h"
#include "system/standard_streams.h"

namespace {

using dnnl::memory;

/// Different values in [-1, 1): zeros and denormals would have other costs than usual numbers.
std::vector<float> numbers(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;  // Numerical Recipes (2007), §7.1, quick generator
    value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31F;
  }
  return values;
}

/// Throws if an element of y's diagonal differs from that in float64.
void check(const std::vector<float>& x, const std::vector<float>& w, const std::vector<float>& y,
           std::int64_t in, std::int64_t out, std::int64_t n) {
  for (std::int64_t i = 0; i < std::min(n, out); ++i) {
    double sum = 0, magnitude = 0;
    for (std::int64_t k = 0; k < in; ++k) {
      const double product = double{x[i * in + k]} * double{w[i * in + k]};
      sum += product;
      magnitude += std::abs(product);
    }
    if (!(std::abs(y[i * out + i] - sum) < 1e-4 * magnitude))
      throw std::runtime_error(fmt::format("y[{0}, {0}] is {1}, not {2}", i, y[i * out + i], sum));
  }
}

void measure(std::int64_t in, std::int64_t out, std::int64_t n, int samples) {
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  std::vector<float> x = numbers(n * in);
  std::vector<float> w = numbers(in * out);
  std::vector<float> y(static_cast<std::size_t>(n * out));
  const memory::desc x_form({n, in}, memory::data_type::f32, memory::format_tag::ab);
  const memory::desc w_form({in, out}, memory::data_type::f32,
                            memory::format_tag::ba);  // W[out, in] in place
  const memory::desc y_form({n, out}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc form(dnnl::matmul::desc(x_form, w_form, y_form), engine);
  const dnnl::matmul product(form);
  memory x_memory(x_form, engine, x.data());
  memory w_memory(w_form, engine, w.data());
  memory y_memory(y_form, engine, y.data());
  const auto launch = [&] {
    product.execute(stream,
                    {{DNNL_ARG_SRC, x_memory}, {DNNL_ARG_WEIGHTS, w_memory}, {DNNL_ARG_DST, y_memory}});
  };
  const sparsekiln::Sampler sampler(std::make_unique<sparsekiln::HostStopwatch>([&] { stream.wait(); }),
                                    sparsekiln::kHostTiming, [&](void*) { launch(); });
  std::vector<double> times;
  for (int sample = 0; sample < samples; ++sample) times.push_back(sampler.sample_ms());
  check(x, w, y, in, out, n);
  const sparsekiln::Spread run_ms = sparsekiln::spread(std::move(times));
  const dnnl_version_t* version = dnnl_version();
  sparsekiln::write_results(fmt::format(
      "{{\"run_ms\": {}, \"p20_ms\": {}, \"p80_ms\": {}, \"gflops\": {}, \"through\": \"oneDNN {}.{}.{} "
      "matmul, "
      "{}\"}}\n",
      run_ms.median, run_ms.p20, run_ms.p80,
      2e-6 * static_cast<double>(in) * static_cast<double>(out) * static_cast<double>(n) / run_ms.median,
      version->major, version->minor, version->patch, form.impl_info_str()));
}

/// As `measure`; the exit status.
int measured(std::int64_t in, std::int64_t out, std::int64_t n, int samples) {
  try {
    measure(in, out, n, samples);
    return 0;
  } catch (const std::exception& error) {
    sparsekiln::write_message(fmt::format("dense_cpu: {}\n", error.what()));
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--short") return measured(96, 64, 8, 2);
  const std::int64_t in = argc > 3 ? std::atoll(argv[1]) : 0;
  const std::int64_t out = argc > 3 ? std::atoll(argv[2]) : 0;
  const std::int64_t n = argc > 3 ? std::atoll(argv[3]) : 0;
  const int samples = argc > 4 ? std::atoi(argv[4]) : 10;
  if (in < 1 || out < 1 || n < 1 || samples < 1) {
    sparsekiln::write_message(
        "usage: dense_cpu IN OUT N [SAMPLES], whole numbers from 1; or dense_cpu --short\n");
    return 2;
  }
  return measured(in, out, n, samples);
}

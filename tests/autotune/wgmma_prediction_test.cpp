#include <algorithm>
#include <cstdint>
#include <limits>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sparsekiln/patterns.h>

#include "autotune/architecture.h"
#include "autotune/cuda_prediction.h"
#include "autotune/cuda_work.h"
#include "autotune/prediction.h"

// What the cost model expects of kernels of wgmma on the large layers of bench/workloads.json. The figures
// are the model's, and say nothing of hardware: these cases notice when a change makes them worse.

namespace sparsekiln {
namespace {

const Target kHopper = Target::parse("h100");

Problem layer(std::int32_t rows, std::int32_t cols, double density, std::int32_t side, std::int64_t batch) {
  Problem problem;
  problem.layout = patterns::random(rows, cols, density, 1);
  problem.block = {side, side};
  problem.dtype = problem.out_dtype = DType::f16;
  problem.batch = batch;
  return problem;
}

struct Expected {
  double us = std::numeric_limits<double>::infinity();
  double bound_us = 0;  ///< of its schedule: of its products, or its bytes from L2 or from memory
  Config config;
};

/// The best kernel with multicast.
Expected best_of(const Problem& problem, std::int64_t n) {
  const Architecture figures = architecture(kHopper);
  const MachinePeak peak = peak_of(problem, kHopper);
  Expected best;
  for (const char* numbers :
       {"tile_n=128 stages=4", "tile_n=128 stages=3 rows=2", "tile_n=128 stages=3 rows=4",
        "tile_n=256 stages=3", "tile_n=256 stages=3 rows=2"}) {
    const Spmm product(problem);
    Config config = parse_config(fmt::format("wgmma warps=12 {}", numbers));
    if (problem.block.out * config.rows * config.tile_n > 128 * 256) continue;
    config = cuda::with_derived(product, kHopper, config, n, figures);
    if (config.cluster != 2) continue;
    const double us = predict(problem, kHopper, config, n).us;
    if (us >= best.us) continue;
    const cuda::Work work = cuda::estimate(product, kHopper, config, n);
    const double bytes =
        static_cast<double>(work.memory_bytes) + cuda::bytes_read_again(work, figures.cache_bytes());
    best = {us,
            1e-3 * std::max({floor_of(problem, n).flops / peak.gflops, bytes / figures.memory_gbytes,
                             static_cast<double>(work.global_bytes) / figures.cache_gbytes}),
            config};
  }
  return best;
}

/// The least time of the dense product: all of its multiplications at the peak.
double dense_us(const Problem& problem, std::int64_t n) {
  return 2e-3 * static_cast<double>(problem.out_features() * problem.in_features() * n) /
         peak_of(problem, kHopper).gflops;
}

TEST_CASE("large batches of wgmma come within 1.25 times the bound of their schedule") {
  const Expected ffn = best_of(layer(224, 64, 0.1, 64, 8192), 8192);
  const Expected vit = best_of(layer(80, 20, 0.15, 64, 50432), 50432);
  CHECK(ffn.us <= 1.25 * ffn.bound_us);
  CHECK(vit.us <= 1.25 * vit.bound_us);
}

// Three times the dense speed is out of reach of L2's bandwidth: the bound of the schedule alone is above it.
TEST_CASE("a quarter of the blocks of 128 takes less time than a dense product at the peak") {
  const Problem problem = layer(32, 32, 0.25, 128, 8192);
  const Expected wide = best_of(problem, 8192);
  CHECK(wide.us <= 1.25 * wide.bound_us);
  CHECK(dense_us(problem, 8192) / wide.us > 1.35);
}

}  // namespace
}  // namespace sparsekiln

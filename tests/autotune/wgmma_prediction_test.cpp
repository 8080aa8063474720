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
#include "autotune/space.h"
#include "compiler/schedule.h"

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

/// Within this many times the bound of its schedule a kernel is worth its design.
constexpr double kNear = 1.25;

Expected expected(const Problem& problem, const Config& config, std::int64_t n) {
  const Architecture figures = architecture(kHopper);
  const Spmm product(problem);
  const cuda::Work work = cuda::estimate(product, kHopper, config, n);
  const double bytes =
      static_cast<double>(work.memory_bytes) + cuda::bytes_read_again(work, figures.cache_bytes());
  const double flops = floor_of(problem, n).flops;
  return {predict(problem, kHopper, config, n).us,
          1e-3 * std::max({flops / peak_of(problem, kHopper).gflops, bytes / figures.memory_gbytes,
                           static_cast<double>(work.global_bytes) / figures.cache_gbytes}),
          config};
}

/// The best of the space's kernels that `counts` accepts.
template <class Counts>
Expected best_of(const Problem& problem, std::int64_t n, Counts counts) {
  Expected best;
  for (const Config& config : space_of(problem, kHopper, n).configs) {
    if (config.variant != Variant::wgmma || !counts(config)) continue;
    const Expected found = expected(problem, config, n);
    if (found.us < best.us) best = found;
  }
  return best;
}
bool has_multicast(const Config& config) { return config.cluster * config.cluster_rows > 1; }

TEST_CASE("large batches of wgmma come within 1.25 times the bound of their schedule") {
  const Expected ffn = best_of(layer(224, 64, 0.1, 64, 8192), 8192, has_multicast);
  const Expected vit = best_of(layer(80, 20, 0.15, 64, 50432), 50432, has_multicast);
  CAPTURE(to_string(ffn.config));
  CAPTURE(to_string(vit.config));
  CHECK(ffn.us <= kNear * ffn.bound_us);
  CHECK(vit.us <= kNear * vit.bound_us);
}

// The dense product is modelled as a layout with all blocks. L2 limits both.
TEST_CASE("a quarter of the blocks of 128 takes far less time than a dense product") {
  constexpr std::int64_t kBatch = 8192;
  const Expected wide = best_of(layer(32, 32, 0.25, 128, kBatch), kBatch, has_multicast);
  const Problem all = layer(32, 32, 1, 128, kBatch);
  const Expected dense = best_of(all, kBatch, has_multicast);
  const double peak_us = 1e-3 * floor_of(all, kBatch).flops / peak_of(all, kHopper).gflops;
  CAPTURE(to_string(wide.config));
  CAPTURE(to_string(dense.config));
  CHECK(dense.us / wide.us > 2.5);
  CHECK(peak_us / wide.us > 1.8);
}

TEST_CASE("what CTAs share leaves L2 once, and arrives in all of them") {
  const Problem problem = layer(4, 6, 0.5, 64, 384);
  const Spmm product(problem);
  const std::int64_t weight = problem.layout.blocks() * 64 * 64 * 2;
  const auto work = [&](const char* numbers) {
    return cuda::work_of(
        product, kHopper, parse_config(fmt::format("wgmma tile_n=128 stages=3 warps=12 {}", numbers)),
        make_schedule(product, kHopper, parse_config(fmt::format("wgmma {}", numbers)), 384), 384);
  };
  const cuda::Work alone = work("cluster=1");
  CHECK(alone.multicast_bytes == 0);
  // Three tiles are two clusters, whose four CTAs all get W.
  const cuda::Work tiles = work("cluster=2");
  CHECK(tiles.multicast_bytes == 2 * weight);
  CHECK(tiles.global_bytes == alone.global_bytes - weight);
  const cuda::Work rows = work("cluster_rows=2");
  CHECK(rows.multicast_bytes + rows.global_bytes > alone.global_bytes);
  CHECK(rows.global_bytes < alone.global_bytes);
  CHECK(rows.products == alone.products);
  CHECK(rows.products_in_time > rows.products);
}

}  // namespace
}  // namespace sparsekiln

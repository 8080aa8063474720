#include <algorithm>
#include <cstdint>
#include <limits>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/patterns.h>

#include "autotune/cuda/work.h"
#include "autotune/default_plan.h"
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

bool is_of_hopper(Variant variant) { return variant == Variant::wgmma || variant == Variant::wgmma_rows; }

/// The least predicted time of the space's kernels with clusters.
double best_us(const Problem& problem, std::int64_t n) {
  double best = std::numeric_limits<double>::infinity();
  for (const Config& config : space_of(problem, kHopper, n).configs)
    if (config.variant == Variant::wgmma && config.cluster * config.cluster_rows > 1)
      best = std::min(best, predict(problem, kHopper, config, n).us);
  return best;
}

TEST_CASE("large batches take wgmma by default, in clusters of one TPC's multiprocessors at most") {
  for (const auto& [problem, n] : {std::pair{layer(224, 64, 0.1, 64, 8192), 8192},
                                   {layer(80, 20, 0.15, 64, 50432), 50432},
                                   {layer(32, 32, 0.25, 128, 8192), 8192}}) {
    const Config config = choose_plan(problem, kHopper).front().config;
    CAPTURE(to_string(config));
    CHECK(is_of_hopper(config.variant));
    CHECK(config.cluster * config.cluster_rows <= 2);
    CHECK(config.in_flight > kAllInFlight);
  }
}

TEST_CASE("gradients of the weight for large batches sum many blocks at once by default") {
  Problem problem = layer(224, 64, 0.1, 64, 8192);
  problem.operation = Operation::grad_weight;
  const Config config = choose_plan(problem, kHopper).front().config;
  CAPTURE(to_string(config));
  CHECK(config.variant == Variant::grouped);
  const Prediction expected = predict(problem, kHopper, config, 8192);
  CHECK(expected.us < 265);
  CHECK(expected.cache_bytes < 1.35e9);  // 2.3e9 with runs of two blocks
  // Each operand comes from memory once, since there is one wave.
  CHECK(expected.memory_bytes < 1.01 * (2.0 * 8192 * 64 * (224 + 64) + 2.0 * 64 * 64 * 1434));
  problem.batch = 128;
  CHECK(choose_plan(problem, kHopper).front().config.variant != Variant::grouped);
}

TEST_CASE("gradients of a convolution's weight read images once for all taps by default") {
  struct Case {
    std::int32_t features, side;
    double most_us;
  };
  for (const auto& [features, side, most_us] : {Case{256, 56, 50}, {512, 28, 56}, {128, 56, 25}}) {
    Problem problem = layer(features / 32, features / 32, 0.1, 32, 32);
    problem.operation = Operation::grad_weight;
    problem.convolution = parse_convolution(fmt::format("kernel=3x3 padding=1 input={}x{}", side, side));
    const Config config = choose_plan(problem, kHopper).front().config;
    CAPTURE(to_string(config));
    CHECK(config.variant == Variant::halo);
    CHECK(predict(problem, kHopper, config, 32).us < most_us);
    problem.bias_gradient = true;
    CHECK(choose_plan(problem, kHopper).front().config.variant == Variant::halo);
  }
}

TEST_CASE("more clusters of four than the device holds at once take a second round") {
  const Problem problem = layer(224, 64, 0.1, 64, 8192);
  const Config config{.variant = Variant::wgmma,
                      .tile_n = 256,
                      .stages = 4,
                      .warps = 12,
                      .rows = 2,
                      .in_flight = 16,
                      .cluster = 2,
                      .cluster_rows = 2,
                      .table = TableForm::global};
  const auto us = [&](std::int32_t clusters) {
    return predict(problem, kHopper, config, 8192, {.clusters_of_four = clusters}).us;
  };
  CHECK(us(33) == us(0));
  CHECK(us(30) > 1.3 * us(33));  // all but the bytes from memory takes twice as long
}

// As layers of PyTorch ask for it.
TEST_CASE("the last range of a dynamic batch takes wgmma, however far it goes") {
  for (const std::int64_t bound : {std::int64_t{1} << 14, std::int64_t{1} << 20}) {
    Problem problem = layer(224, 64, 0.1, 64, 1);
    problem.batch = Batch::up_to(bound);
    const Config config = choose_plan(problem, kHopper).back().config;
    CAPTURE(bound);
    CAPTURE(to_string(config));
    CHECK(is_of_hopper(config.variant));
    CHECK(config.in_flight > kAllInFlight);
  }
}

// The dense product is modelled as a layout with all blocks. L2 limits both.
TEST_CASE("a quarter of the blocks of 128 takes far less time than a dense product") {
  constexpr std::int64_t kBatch = 8192;
  const double wide_us = best_us(layer(32, 32, 0.25, 128, kBatch), kBatch);
  const Problem all = layer(32, 32, 1, 128, kBatch);
  const double dense_us = best_us(all, kBatch);
  const double peak_us = 1e-3 * floor_of(all, kBatch).flops / peak_of(all, kHopper).gflops;
  CHECK(dense_us / wide_us > 2.5);
  CHECK(peak_us / wide_us > 1.8);
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
  CHECK(rows.multicast_bytes > 0);
  CHECK(rows.multicast_bytes + rows.global_bytes == alone.global_bytes);
  CHECK(rows.global_bytes < alone.global_bytes);
  CHECK(rows.products == alone.products);
  CHECK(rows.products_in_time > rows.products);
}

}  // namespace
}  // namespace sparsekiln

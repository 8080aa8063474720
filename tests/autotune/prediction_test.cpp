#include "autotune/prediction.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sparsekiln/patterns.h>

#include "autotune/architecture.h"
#include "autotune/cuda/defaults.h"
#include "autotune/cuda/work.h"
#include "autotune/space.h"
#include "compiler/build.h"
#include "compiler/cuda/mma_shape.h"
#include "compiler/cuda/multiprocessor.h"
#include "compiler/schedule.h"

namespace sparsekiln {
namespace {

const char* const kTargets[] = {"t4", "a100", "rtx3090", "rtx4090", "h100", "b200", "rtx5090"};

/// A layer of 4096 × 4096 in blocks of 32.
Problem layer(double density, Operation operation = Operation::forward, DType dtype = DType::f16) {
  Problem problem;
  problem.layout = patterns::random(128, 128, density, 1);
  problem.operation = operation;
  problem.dtype = problem.out_dtype = dtype;
  problem.batch = 1024;
  return problem;
}

double microseconds(const Problem& problem, std::string_view target, std::string_view config,
                    std::int64_t n) {
  return predict(problem, Target::parse(target), parse_config(config), n).us;
}

/// The least time by documents.
double floor_us(const Problem& problem, const Target& target, std::int64_t n) {
  const Floor least = floor_of(problem, n);
  const MachinePeak peak = peak_of(problem, target);
  return 1e-3 * std::max(least.flops / peak.gflops, least.bytes / peak.gbytes);
}

constexpr Operation kOperations[] = {Operation::forward, Operation::grad_input, Operation::grad_weight};

TEST_CASE("a sparser layer is predicted to take less time, on every architecture, for every operation") {
  for (const std::string name : kTargets)
    for (const Operation operation : kOperations)
      for (const std::int64_t n : {1, 64, 4096}) {
        CAPTURE(name);
        CAPTURE(n);
        const Target target = Target::parse(name);
        const Problem dense = layer(0.5, operation);
        const Problem sparse = layer(0.05, operation);
        const Config config = cuda::default_config(dense, target, n);
        CHECK(predict(sparse, target, config, n).us < predict(dense, target, config, n).us);
      }
}

TEST_CASE("no prediction is below the roofline bound") {
  for (const std::string name : kTargets)
    for (const Operation operation : kOperations)
      for (const DType dtype : {DType::f16, DType::f32})
        for (const double density : {0.01, 0.2, 1.0})
          for (const std::int64_t n : {1, 16, 128, 8192}) {
            CAPTURE(name);
            CAPTURE(n);
            const Target target = Target::parse(name);
            const Problem problem = layer(density, operation, dtype);
            CHECK(predict(problem, target, cuda::default_config(problem, target, n), n).us >=
                  floor_us(problem, target, n));
          }
}

TEST_CASE("CUDA cores multiply no faster than they have lanes") {
  // Most of what is issued are multiply-adds: on 64 lanes they take longer than to issue them.
  const Problem problem = layer(1, Operation::forward, DType::f32);
  for (const std::string name : {"t4", "a100", "h100"}) {
    CAPTURE(name);
    const double us = microseconds(problem, name, "simt tile_n=128 tile_out=8 warps=4 stages=2", 8192);
    CHECK(us >= floor_us(problem, Target::parse(name), 8192));
  }
}

TEST_CASE("the roofline bound counts each operand once, and only those activations that meet a block") {
  Problem problem;
  problem.layout = Layout::from_mask(2, 3, std::vector<std::uint8_t>{1, 0, 1, 0, 0, 0});
  problem.block = {16, 32};
  problem.dtype = DType::f16;
  problem.out_dtype = DType::f32;
  CHECK(floor_of(problem, 10).bytes == 2 * 16 * 32 * 2 + 10 * 64 * 2 + 10 * 32 * 4);
  CHECK(floor_of(problem, 10).flops == 2.0 * 2 * 16 * 32 * 10);
  problem.operation = Operation::grad_input;
  problem.out_dtype = DType::f16;
  CHECK(floor_of(problem, 10).bytes == 2 * 16 * 32 * 2 + 10 * 16 * 2 + 10 * 96 * 2);
  problem.operation = Operation::grad_weight;
  problem.out_dtype = DType::f32;
  CHECK(floor_of(problem, 10).bytes == 2 * 16 * 32 * 4 + 10 * (64 + 16) * 2);
}

TEST_CASE("more stages change neither bytes nor products") {
  const Spmm problem = layer(0.1);
  const Target target = Target::parse("h100");
  Config config = parse_config("mma tile_n=64 warps=2 stages=2");
  const cuda::Work two = cuda::estimate(problem, target, config, 256);
  config.stages = 6;
  const cuda::Work six = cuda::estimate(problem, target, config, 256);
  CHECK(two.global_bytes == six.global_bytes);
  CHECK(two.memory_bytes == six.memory_bytes);
  CHECK(two.products == six.products);
}

TEST_CASE("a kernel with more stages waits less for memory") {
  const Problem problem = layer(0.1);
  CHECK(microseconds(problem, "h100", "mma tile_n=64 warps=2 stages=6", 64) <
        microseconds(problem, "h100", "mma tile_n=64 warps=2 stages=2", 64));
}

TEST_CASE("CTAs that do not fit beside each other cost a second wave") {
  const Problem problem = layer(0.25);
  const Target target = Target::parse("h100");
  // 6 stages of 16 KB and more: two of them have room on a multiprocessor, eight have not.
  Config config = parse_config("mma tile_n=128 warps=4 stages=6");
  const cuda::MmaShape shape = cuda::mma_shape(problem, target, config);
  config.split = cuda::resident_ctas(target, shape.threads, shape.shared_bytes + cuda::kMmaStaticShared);
  REQUIRE(config.split >= 1);
  const double fits = predict(problem, target, config, 256).us;
  config.split *= 4;
  CHECK(predict(problem, target, config, 256).us > fits);
}

TEST_CASE("a tile half of whose batch rows do not exist costs more than one that fits") {
  for (const std::string name : kTargets) {
    CAPTURE(name);
    const Problem problem = layer(0.5);
    CHECK(microseconds(problem, name, "mma tile_n=128 warps=4 stages=2", 64) >
          microseconds(problem, name, "mma tile_n=64 warps=4 stages=2", 64));
  }
}

TEST_CASE("defaults are predicted to be faster than bad configs") {
  for (const std::int64_t n : {64, 1024}) {
    CAPTURE(n);
    const Problem half = layer(0.1);
    const Target target = Target::parse("h100");
    const double chosen = predict(half, target, cuda::default_config(half, target, n), n).us;
    for (const std::string absurd :
         {"mma tile_n=16 warps=1 stages=1", "mma tile_n=8 warps=1 stages=2 operand_a=w",
          "mma tile_n=256 warps=16 stages=1", "mma tile_n=16 warps=1 stages=2 merge=4"}) {
      CAPTURE(absurd);
      CHECK(chosen < predict(half, target, parse_config(absurd), n).us);
    }
  }
}

TEST_CASE("a layer with a batch of one is bound by memory, or by what comes before it") {
  const Problem problem = layer(1);
  const Target target = Target::parse("h100");
  const Bound bound = predict(problem, target, cuda::default_config(problem, target, 1), 1).bound;
  CHECK((bound == Bound::memory || bound == Bound::latency));
}

TEST_CASE("a layer without blocks, or without a batch, has a time") {
  const Target target = Target::parse("h100");
  for (const Operation operation : kOperations) {
    Problem nothing;
    nothing.operation = operation;
    nothing.dtype = nothing.out_dtype = DType::f16;
    const Config config = cuda::default_config(nothing, target, 64);
    CHECK(predict(nothing, target, config, 64).us > 0);
    CHECK(predict(nothing, target, config, 64).us < 10);
    Problem absent = nothing;
    absent.layout = Layout::from_mask(4, 4, std::vector<std::uint8_t>(16, 0));
    CHECK(predict(absent, target, config, 64).us < 10);
    const Problem some = layer(0.1, operation);
    CHECK(predict(some, target, cuda::default_config(some, target, 0), 0).us <
          predict(some, target, config, 4096).us);
  }
}

TEST_CASE("peaks are those of data sheets, for as many multiprocessors as the target has") {
  Problem problem = layer(0.1);
  const auto teraflops = [&](const char* target) {
    return peak_of(problem, Target::parse(target)).gflops * 1e-3;
  };
  CHECK(teraflops("t4") == doctest::Approx(65).epsilon(0.01));
  CHECK(teraflops("a100") == doctest::Approx(312).epsilon(0.01));
  CHECK(teraflops("rtx3090") == doctest::Approx(71).epsilon(0.01));
  CHECK(teraflops("rtx4090") == doctest::Approx(165.2).epsilon(0.01));
  CHECK(teraflops("h100") == doctest::Approx(989.4).epsilon(0.01));
  CHECK(teraflops("b200") == doctest::Approx(2250).epsilon(0.01));
  CHECK(teraflops("rtx5090") == doctest::Approx(209.5).epsilon(0.01));
  CHECK(teraflops("sm_90:66") == doctest::Approx(teraflops("h100") / 2));
  problem.dtype = DType::f32;
  problem.math = Math::tf32;
  CHECK(teraflops("a100") == doctest::Approx(156).epsilon(0.01));
  CHECK(teraflops("h100") == doctest::Approx(494.7).epsilon(0.01));
  problem.math = Math::ieee;
  CHECK(teraflops("a100") == doctest::Approx(19.5).epsilon(0.01));
  CHECK(peak_of(problem, Target::parse("h100")).gbytes == 3350);
}

TEST_CASE("an architecture that is not in the table has the figures of the next older one") {
  CHECK(architecture(Target::parse("sm_103")).memory_gbytes ==
        architecture(Target::parse("sm_100")).memory_gbytes);
  CHECK(architecture(Target::parse("sm_90a")).capability == 90);
}

TEST_CASE("configs that are priced together get the times that each gets alone") {
  for (const Operation operation : kOperations) {
    const Problem problem = layer(0.1, operation);
    const Target target = Target::parse("h100");
    std::vector<Config> configs = default_candidates(problem, target, 64);
    for (int order = 0; order < 2; ++order) {
      Pricing pricing(problem, target);
      for (const Config& config : configs) {
        CAPTURE(to_string(config));
        const ConfigCheck check(problem, target);
        if (check.refusal(config).empty())
          CHECK(pricing.of(config, 64).us == predict(problem, target, config, 64).us);
      }
      std::reverse(configs.begin(), configs.end());
    }
  }
}

TEST_CASE("a part is known by the words of its name, or by its multiprocessors") {
  const auto memory = [](const char* target, const char* name) {
    return architecture(Target::parse(target), {name, 0}).memory_gbytes;
  };
  CHECK(memory("h100", "NVIDIA H100 80GB HBM3") == 3350);
  CHECK(memory("h100", "NVIDIA H200") == 4800);
  CHECK(memory("h100", "NVIDIA GH200 144G HBM3e") == 4900);
  CHECK(memory("h100", "NVIDIA GH200 480GB") == 4000);
  CHECK(memory("sm_90:114", "NVIDIA H100 PCIe") == 2000);
  CHECK(memory("sm_89:142", "NVIDIA L40") == 864);
  CHECK(memory("sm_89:58", "NVIDIA L4") == 300);
  CHECK(memory("sm_86:48", "NVIDIA RTX A4000") == memory("rtx3090", ""));
  CHECK(memory("a100", "NVIDIA A100-SXM4-80GB") == 2039);
  CHECK(memory("h200", "") == 3350);  // has the multiprocessors of an H100
  CHECK(memory("l4", "") == 300);
  CHECK(architecture(Target::parse("h100"), {"", 60 << 20}).cache_bytes() == 60 << 20);
  CHECK(part_of({.device = "none", .policy = kModelledPolicy}).name.empty());
}

void check_same(const cuda::Work& found, const cuda::Work& exact) {
  CHECK(found.global_bytes == exact.global_bytes);
  CHECK(found.memory_bytes == exact.memory_bytes);
  CHECK(found.products == exact.products);
  CHECK(found.instructions == exact.instructions);
  CHECK(found.ctas == exact.ctas);
  CHECK(found.partial_bytes == exact.partial_bytes);
}

TEST_CASE("an estimate is what the schedule gives, where no rows are put together") {
  int split = 0;
  int whole = 0;
  for (const Operation operation : {Operation::forward, Operation::grad_input})
    for (const std::string name : {"h100", "sm_90:4", "sm_80:16"})
      for (const double density : {0.02, 0.2, 0.7})
        for (const std::int64_t n : {1, 64, 1000})
          for (const BlockShape block : {BlockShape{16, 16}, {32, 32}, {64, 32}})
            for (const char* const numbers :
                 {"split=2", "split=4 split_saves=3", "split=2 split_saves=12", "in_flight=3"}) {
              Problem base = layer(density, operation);
              base.block = block;
              const Spmm problem(base);
              const Target target = Target::parse(name);
              const Config config = parse_config(fmt::format("mma tile_n=64 warps=2 stages=3 {}", numbers));
              const std::string what = fmt::format("{} {} {} {} {}", sparsekiln::name(operation), name,
                                                   density, n, to_string(config));
              CAPTURE(what);
              const Schedule schedule = make_schedule(problem, target, config, n);
              split += schedule.counters > 0;
              whole += schedule.counters == 0;
              const cuda::Work exact = cuda::work_of(problem, target, config, schedule, n);
              const cuda::Work found = cuda::estimate(problem, target, config, n);
              check_same(found, exact);
            }
  CHECK(split > 100);
  CHECK(whole > 100);
}

TEST_CASE("an estimate of a gradient of the weight is what its schedule gives") {
  for (const std::string name : {"h100", "sm_90:4"})
    for (const double density : {0.02, 0.2, 0.7})
      for (const std::int64_t n : {16, 64, 1000}) {
        const Problem problem = layer(density, Operation::grad_weight);
        const Sddmm gradient(problem);
        const Target target = Target::parse(name);
        const Config config = cuda::default_config(problem, target, n);
        CAPTURE(to_string(config));
        const cuda::Work exact =
            cuda::work_of(gradient, target, config, make_block_runs(gradient, target, config), n);
        const cuda::Work found = cuda::estimate(gradient, target, config, n);
        check_same(found, exact);
      }
}

constexpr const char* kPutTogether[] = {
    "mma tile_n=64 warps=2 stages=4 rows=2", "mma tile_n=64 warps=4 stages=3 rows=4",
    "mma tile_n=32 warps=2 stages=3 merge=2", "mma tile_n=64 warps=4 stages=3 merge=4",
    "mma tile_n=32 warps=2 stages=3 rows=2 merge=2"};

TEST_CASE("an estimate of a range of batches is what its schedule gives for the largest") {
  int several_rounds = 0;
  const Target target = Target::parse("h100");
  for (const char* const text :
       {"mma tile_n=64 warps=2 stages=3 in_flight=2", "mma tile_n=64 warps=2 stages=3 rows=2 in_flight=1"})
    for (const double density : {0.02, 0.2, 0.7}) {
      Problem base = layer(density);
      base.batch = Batch::up_to(1000);
      const Spmm problem(base);
      const Config config = parse_config(text);
      cuda::RowShares rows(problem.layout);
      const auto costs = cuda::loop_costs(problem, target, config);
      const Plan plan{{128, config}, {500, config}, {1000, config}};
      const std::vector<Schedule> schedules = make_schedules(problem, target, plan);
      for (std::size_t entry = 0; entry < plan.size(); ++entry) {
        const std::int64_t n = plan[entry].up_to;
        if (tiles_at_once(problem, config, scheduled_n(problem.batch, plan, entry)) !=
            tiles_at_once(problem, config, n))
          continue;  // as many workers as the smallest n has tiles for
        CAPTURE(n);
        several_rounds += rounds_of(problem, config, n) > 1;
        check_same(cuda::estimate(problem, target, config, costs, n, rows),
                   cuda::work_of(problem, target, config, schedules[entry], n));
      }
    }
  CHECK(several_rounds > 6);
}

TEST_CASE("an estimate of row groups and of merged rows of a small layout is what the schedule gives") {
  for (const std::string text : kPutTogether)
    for (const std::string name : {"h100", "sm_90:4"}) {
      CAPTURE(text);
      CAPTURE(name);
      const Spmm problem = layer(0.2);
      const Target target = Target::parse(name);
      const Config config = parse_config(text);
      const Schedule schedule = make_schedule(problem, target, config, 256);
      check_same(cuda::estimate(problem, target, config, 256),
                 cuda::work_of(problem, target, config, schedule, 256));
    }
}

TEST_CASE("what schedules have in common is listed once, and each is counted as it would be made") {
  const Spmm problem = layer(0.2);
  const Target target = Target::parse("h100");
  cuda::RowShares rows(problem.layout);
  int amid_a_column = 0;
  for (const std::string text : kPutTogether)
    for (const char* const more : {"", "split=2", "split=4 split_saves=1", "split=2 split_saves=30"}) {
      const Config config = parse_config(fmt::format("{} {}", text, more));
      CAPTURE(to_string(config));
      const Schedule schedule = make_schedule(problem, target, config, 256);
      const StepLists lists = list_steps(problem, config);
      for (const Item& item : schedule.items)
        if (item.steps > 0)
          amid_a_column += (lists.steps[static_cast<std::size_t>(item.first_step)].flags & kSameInput) != 0;
      const auto costs = cuda::loop_costs(problem, target, config);
      check_same(cuda::estimate(problem, target, config, costs, 256, rows),
                 cuda::work_of(problem, target, config, schedule, 256));
    }
  for (const int cluster_rows : {1, 2}) {
    Problem wide = layer(0.2);
    wide.block = {64, 64};
    const Spmm large(wide);
    cuda::RowShares shared(large.layout);
    for (const int split : {1, 2}) {
      const Config config = parse_config(fmt::format(
          "wgmma tile_n=128 warps=12 stages=3 rows=2 cluster_rows={} split={}", cluster_rows, split));
      CAPTURE(to_string(config));
      const auto costs = cuda::loop_costs(large, target, config);
      check_same(cuda::estimate(large, target, config, costs, 256, shared),
                 cuda::work_of(large, target, config, make_schedule(large, target, config, 256), 256));
    }
  }
  CHECK(amid_a_column > 0);
}

TEST_CASE(
    "an estimate of row groups and of merged rows of a large random layout, none split, comes within 15 % of "
    "its schedule") {
  int whole = 0;
  for (const std::string numbers : kPutTogether)
    for (const std::string name : {"h100", "h100 in rounds", "sm_90:4"})
      for (const double density : {0.02, 0.2, 0.7}) {
        const std::string text = numbers + (name == "h100 in rounds" ? " in_flight=1" : "");
        CAPTURE(text);
        CAPTURE(name);
        CAPTURE(density);
        Problem large = layer(density);
        // As large as its schedules are not made for prices.
        const auto side = static_cast<std::int32_t>(std::sqrt(1.05 * cuda::kMostScheduled / density));
        large.layout = patterns::random(side, side, density, 1);
        const Spmm problem(large);
        REQUIRE_FALSE(cuda::RowShares(large.layout).are_scheduled());
        const Target target = Target::parse(name.substr(0, name.find(' ')));
        const Config config = parse_config(text);
        const Schedule schedule = make_schedule(problem, target, config, 256);
        if (schedule.counters > 0) continue;
        ++whole;
        const cuda::Work exact = cuda::work_of(problem, target, config, schedule, 256);
        const cuda::Work found = cuda::estimate(problem, target, config, 256);
        const auto ratio = [](std::int64_t a, std::int64_t b) {
          return static_cast<double>(a) / static_cast<double>(b);
        };
        CHECK(ratio(found.global_bytes, exact.global_bytes) == doctest::Approx(1).epsilon(0.15));
        CHECK(ratio(found.products, exact.products) == doctest::Approx(1).epsilon(0.15));
        CHECK(found.largest / exact.largest == doctest::Approx(1).epsilon(0.06));
      }
  CHECK(whole > 12);
}

}  // namespace
}  // namespace sparsekiln

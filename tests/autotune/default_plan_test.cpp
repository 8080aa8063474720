#include "autotune/default_plan.h"

#include <set>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "autotune/cuda/defaults.h"
#include "autotune/prediction.h"
#include "compiler/build.h"
#include "compiler/problem_kind.h"
#include "compiler/recipe.h"
#include "compiler/schedule.h"

namespace sparsekiln {
namespace {

constexpr std::int32_t kSides[] = {8, 16, 32, 64, 128};

Problem problem_of(const Layout& layout, BlockShape block, Batch batch) {
  Problem problem;
  problem.layout = layout;
  problem.block = block;
  problem.batch = batch;
  return problem;
}

TEST_CASE("the chosen plan of every block shape and batch can be emitted, for small and large GPUs") {
  const Layout layout = patterns::random(6, 5, 0.4, 1);
  for (const char* target : {"t4", "a100", "h100", "b200"})
    for (const std::int32_t out : kSides)
      for (const std::int32_t in : kSides)
        for (const Batch batch :
             {Batch(0), Batch(1), Batch(33), Batch::up_to(1), Batch::up_to(100), Batch::up_to(100000)}) {
          CAPTURE(target);
          CAPTURE(out);
          CAPTURE(in);
          CAPTURE(to_string(batch));
          const Problem problem = problem_of(layout, {out, in}, batch);
          const Plan plan = choose_plan(problem, Target::parse(target));
          REQUIRE(plan.back().up_to == batch.bound());
          REQUIRE_NOTHROW((void)emit_source(problem, Target::parse(target), plan));
        }
}

TEST_CASE("the chosen plan of every type that tensor cores take can be emitted, and uses them") {
  struct Types {
    DType dtype, out_dtype;
    Math math;
  };
  const Layout layout = patterns::random(6, 5, 0.4, 1);
  for (const char* target : {"t4", "a100", "h100", "b200"})
    for (const Types types :
         {Types{DType::f16, DType::f16, Math::ieee}, Types{DType::bf16, DType::f32, Math::ieee},
          Types{DType::f32, DType::f32, Math::tf32}})
      for (const std::int32_t out : kSides)
        for (const std::int32_t in : kSides)
          for (const Batch batch : {Batch(1), Batch(33), Batch::up_to(100000)}) {
            if (types.dtype != DType::f16 && std::string(target) == "t4") continue;
            CAPTURE(target);
            CAPTURE(out);
            CAPTURE(in);
            CAPTURE(name(types.dtype));
            CAPTURE(to_string(batch));
            Problem problem = problem_of(layout, {out, in}, batch);
            problem.dtype = types.dtype;
            problem.out_dtype = types.out_dtype;
            problem.math = types.math;
            const Plan plan = choose_plan(problem, Target::parse(target));
            for (const RangedConfig& range : plan) CHECK(range.config.variant != Variant::simt);
            REQUIRE_NOTHROW((void)emit_source(problem, Target::parse(target), plan));
          }
}

TEST_CASE("the tables of all entries of a dynamic batch fit the constant memory, or are elsewhere") {
  const Problem problem = problem_of(patterns::random(1800, 1800, 0.003, 1), {8, 8}, Batch::up_to(8192));
  const Target target = Target::parse("h100");
  CHECK_NOTHROW((void)emit_source(problem, target, choose_plan(problem, target)));
}

TEST_CASE(
    "from the smallest n of a range to the largest, most of the workers have work and none has far more") {
  const Problem problem = problem_of(patterns::random(384, 384, 0.1, 1), {32, 32}, Batch::up_to(8192));
  const Target target = Target::parse("h100");
  const Plan plan = choose_plan(problem, target);
  for (std::size_t entry = 0; entry < plan.size(); ++entry) {
    CAPTURE(plan[entry].up_to);
    const Config& config = plan[entry].config;
    const std::int64_t smallest = scheduled_n(problem.batch, plan, entry);
    const Schedule schedule = make_schedule(problem, target, config, smallest);
    const std::int64_t ctas = schedule.workers() * ((smallest + config.tile_n - 1) / config.tile_n);
    CHECK(ctas * 10 >= std::int64_t{target.workers} * config.split * 7);
  }
}

/// ResNet's 3x3 layers.
Problem convolution_of(std::int32_t features, const char* input) {
  const std::int32_t side = features / 32;
  Problem problem = problem_of(patterns::random(side, side, 0.1, 1), {32, 32}, Batch::up_to(1 << 14));
  problem.dtype = problem.out_dtype = DType::f16;
  problem.dtype = problem.out_dtype = DType::bf16;
  problem.convolution = parse_convolution(fmt::format("kernel=3 padding=1 input={}", input));
  return problem;
}

TEST_CASE("a few small images of a convolution occupy most multiprocessors, whatever their number") {
  const Target target = Target::parse("h100");
  const Problem problem = convolution_of(512, "7x7");
  const Spmm product(problem);
  const Plan plan = choose_plan(problem, target);
  for (const std::int64_t n : {1, 2, 4, 5, 8, 16, 17, 32, 64, 100}) {
    std::size_t entry = 0;
    while (plan[entry].up_to < n) ++entry;
    const Config& config = plan[entry].config;
    const Schedule schedule = make_schedule(product, target, config, scheduled_n(problem.batch, plan, entry));
    CAPTURE(n);
    CHECK(schedule.workers() * tiles_at_once(product, config, n) >= target.workers * 2 / 5);
  }
}

TEST_CASE("ranges of a convolution that would have the same kernel have one") {
  const Target target = Target::parse("h100");
  for (const Operation operation : {Operation::forward, Operation::grad_input}) {
    Problem problem = convolution_of(256, "56x56");
    problem.operation = operation;
    const Plan plan = choose_plan(problem, target);
    CHECK(plan.size() < 6);
    for (std::size_t entry = 1; entry < plan.size(); ++entry) {
      CHECK(plan[entry].config != plan[entry - 1].config);
      CHECK(plan[entry].up_to > plan[entry - 1].up_to);
    }
    CHECK(plan.back().up_to == problem.batch.bound());
  }
}

TEST_CASE("a workspace for a dynamic batch of up to 8192 stays below 384 MiB") {
  const Problem problem = problem_of(patterns::random(9, 200, 0.6, 1), {128, 128}, Batch::up_to(8192));
  const Target target = Target::parse("h100");
  const Plan plan = choose_plan(problem, target);
  for (std::size_t entry = 0; entry < plan.size(); ++entry) {
    CAPTURE(plan[entry].up_to);
    const Config& config = plan[entry].config;
    const Schedule schedule = make_schedule(problem, target, config, scheduled_n(problem.batch, plan, entry));
    const std::int64_t tiles = (plan[entry].up_to + config.tile_n - 1) / config.tile_n;
    const std::int64_t outputs = std::int64_t{problem.block.out} * config.rows * config.merge;
    CHECK(tiles * schedule.partials * outputs * config.tile_n * 4 < (std::int64_t{384} << 20));
  }
}

TEST_CASE("the plan of attached tables is the same for all layouts, and can be emitted") {
  const auto check = [](Operation operation, Batch batch, const Target& target) {
    Problem small = problem_of(patterns::random(3, 4, 0.5, 1), {32, 32}, batch);
    Problem large = problem_of(patterns::random(120, 90, 0.9, 2), {32, 32}, batch);
    small.operation = large.operation = operation;
    const Plan plan = choose_attached_plan(small, target);
    CHECK(plan == choose_attached_plan(large, target));
#ifndef SPARSEKILN_CPU
    if (target.kind == Target::Kind::cpu) return;  // no emitter was built
#endif
    CHECK(emit_source(small, target, plan) == emit_source(large, target, plan));
  };
  const Target cpu{Target::Kind::cpu, "x86-64-v3", 2};
  for (const Batch batch : {Batch(33), Batch::up_to(300)}) {
    for (const Operation operation : {Operation::forward, Operation::grad_input}) {
      check(operation, batch, Target::parse("h100"));
      check(operation, batch, cpu);
    }
    check(Operation::grad_weight, batch, cpu);
  }
}

TEST_CASE("kernels of attached tables are read as they were stored, before they have a layout") {
  const Target target = Target::parse("h100");
  std::set<Variant> variants;
  const auto check = [&](const Problem& problem, const Plan& plan) {
    CAPTURE(to_string(problem.block));
    CAPTURE(name(problem.operation));
    CAPTURE(name(problem.dtype));
    CAPTURE(to_string(plan));
    Binary binary = recipe_of(problem, target, plan);
    binary.code = {std::byte{1}};
    REQUIRE_NOTHROW(CHECK(deserialize(serialize(binary)) == binary));
    for (const RangedConfig& range : plan) variants.insert(range.config.variant);
  };
  const auto check_default = [&](const Problem& problem) {
    check(problem, choose_attached_plan(problem, target));
  };
  Problem problem;
  for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight})
    for (const std::int32_t side : {16, 32, 64, 128})
      for (const DType dtype : {DType::f32, DType::f16, DType::e4m3}) {
        if (dtype == DType::e4m3 && operation != Operation::forward) continue;
        problem = problem_of(patterns::random(3, 4, 0.5, 1), {side, side}, Batch::up_to(1 << 20));
        problem.operation = operation;
        problem.dtype = dtype;
        problem.out_dtype = result_type(dtype);
        check_default(problem);
      }
  problem.dtype = problem.out_dtype = DType::f16;
  for (const char* config : {"grouped tile_n=32 stages=5 warps=16 rows=12 table=attached",
                             "wgmma tile_n=64 stages=3 warps=12 rows=2 table=attached"})
    check(problem, {{1 << 20, parse_config(config)}});
  problem = problem_of(patterns::random(3, 4, 0.5, 1), {64, 64}, Batch::up_to(32));
  problem.dtype = problem.out_dtype = DType::f16;
  problem.convolution = parse_convolution("kernel=3x3 padding=1 input=16x16");
  for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight}) {
    problem.operation = operation;
    check_default(problem);
  }
  for (const Variant variant : {Variant::simt, Variant::mma, Variant::direct, Variant::wgmma,
                                Variant::wgmma_rows, Variant::grouped, Variant::halo}) {
    CAPTURE(name(variant));
    CHECK(variants.count(variant) == 1);
  }
}

TEST_CASE(
    "a baked plan and the attached one differ only in the form of their tables and what follows from the "
    "layout") {
  const Target target = Target::parse("h100");
  const Problem problem = problem_of(patterns::random(30, 40, 0.5, 1), {32, 32}, Batch::up_to(300));
  const Plan attached = choose_attached_plan(problem, target);
  const Plan baked = with_baked_tables(attached, problem, target);
  for (const RangedConfig& range : baked) CHECK(range.config.table != TableForm::attached);
  for (const RangedConfig& range : baked) CHECK(range.config.in_flight != kDerivedInFlight);
  CHECK(with_attached_tables(baked) == at_layout(attached, problem, target));
  CHECK_NOTHROW((void)emit_source(problem, target, baked));
}

TEST_CASE(
    "an attached convolution has the numbers of the baked one: its workers, its splits and its batch tiles "
    "in flight") {
  const Target target = Target::parse("h100");
  struct Case {
    std::int32_t features;
    std::int32_t side;
  };
  for (const auto& [features, side] : {Case{256, 56}, {512, 28}, {128, 56}})
    for (const Batch batch : {Batch(32), Batch::up_to(64)}) {
      Problem problem = problem_of(patterns::random(features / 32, features / 32, 0.1, 7), {32, 32}, batch);
      problem.dtype = problem.out_dtype = DType::bf16;
      problem.convolution = parse_convolution(fmt::format("kernel=3x3 padding=1 input={}x{}", side, side));
      CAPTURE(features);
      CAPTURE(to_string(batch));
      // Where the batch is dynamic, the range that serves 32 images; a layout as any may suit other tiles for
      // a few.
      const Plan attached = at_layout(choose_attached_plan(problem, target), problem, target);
      const Config config = with_attached_tables(choose_plan(problem, target)).back().config;
      // The tiles of halo, too, but they are about as fast.
      if (batch.dynamic() && config.variant == Variant::halo) {
        CHECK(attached.back().config.variant == config.variant);
        CHECK(predict(problem, target, attached.back().config, 64).us <
              1.1 * predict(problem, target, config, 64).us);
      } else {
        CHECK(to_string(attached.back().config) == to_string(config));
      }
    }
}

TEST_CASE(
    "an attached plan is given as many CTAs as suit the layout, whatever layout its config was priced for") {
  const Target target = Target::parse("h100");
  for (const auto& [grid, density] : {std::pair{32, 0.3}, {64, 0.1}, {384, 0.1}})
    for (const std::int64_t n : {64, 512}) {
      CAPTURE(grid);
      CAPTURE(n);
      const Problem problem = problem_of(patterns::random(grid, grid, density, 3), {32, 32}, n);
      const Plan shared = choose_attached_plan(problem, target);
      CHECK(shared.front().config.split == kDerivedSplit);
      const Config chosen = at_layout(shared, problem, target).front().config;
      Pricing pricing(problem, target);
      const double us = pricing.of(chosen, n).us;
      for (const std::int32_t split : cuda::splits_of(on_rows(Spmm(problem)), target, chosen)) {
        Config other = chosen;
        other.split = split;
        other.in_flight = pricing.with_derived(other, n).in_flight;
        CHECK_MESSAGE(us <= 1.02 * pricing.of(other, n).us, to_string(other));
      }
    }
}

TEST_CASE("what a pinned attached config says stays, and only what it leaves is chosen") {
  const Target target = Target::parse("h100");
  const Problem problem = problem_of(patterns::random(64, 64, 0.1, 3), {32, 32}, 512);
  Config config = at_layout(choose_attached_plan(problem, target), problem, target).front().config;
  config.in_flight = kDerivedInFlight;
  for (const std::int32_t split : {1, 2}) {
    config.split = split;
    const Config chosen = at_layout(pinned(config, problem, target), problem, target).front().config;
    CHECK(chosen.split == split);
    CHECK(chosen.in_flight != kDerivedInFlight);
  }
  config.split = kDerivedSplit;
  config.in_flight = 2;
  CHECK(at_layout({{512, config}}, problem, target).front().config.in_flight == 2);
  config.table = TableForm::global;
  CHECK_THROWS_WITH_AS((void)emit_source(problem, target, {{512, config}}),
                       doctest::Contains("derived where tables are attached"), Error);
}

TEST_CASE("tables whose steps lanes read side by side are never in constant memory") {
  const Target target = Target::parse("h100");
  int seen = 0;
  for (const std::int64_t n : {1, 16, 64}) {
    const Config config =
        choose_plan(problem_of(patterns::random(40, 40, 0.1, 3), {32, 32}, n), target).front().config;
    if (config.variant != Variant::stream && config.variant != Variant::direct) continue;
    CHECK(config.table == TableForm::global);
    ++seen;
  }
  CHECK(seen > 0);
}

TEST_CASE("a baked plan keeps the form that it has") {
  const Target target = Target::parse("h100");
  const Problem problem = problem_of(patterns::random(2, 2, 0.5, 1), {32, 32}, 8);
  Plan plan = choose_plan(problem, target);
  plan[0].config.table = TableForm::global;
  CHECK(with_baked_tables(plan, problem, target) == plan);
}

TEST_CASE("the cpu's plan of a product has tiles of their own for up to four batch rows") {
  const Problem problem = problem_of(patterns::random(30, 40, 0.5, 1), {32, 32}, Batch::up_to(300));
  const Target target{Target::Kind::cpu, "x86-64-v4", 2};
  for (const bool any : {false, true}) {
    const Plan plan = any ? choose_attached_plan(problem, target) : choose_plan(problem, target);
    REQUIRE(plan.size() > 4);
    for (const std::int32_t range : {0, 1, 2}) {
      CHECK(plan[static_cast<std::size_t>(range)].up_to == 1 << range);
      CHECK(plan[static_cast<std::size_t>(range)].config.tile_n == 1 << range);
    }
    CHECK(plan[3].up_to == 8);
  }
}

TEST_CASE("the cpu's plan for the gradient of the weight has a range for each config that it takes") {
  Problem problem = problem_of(patterns::random(30, 40, 0.5, 1), {32, 32}, Batch::up_to(300));
  problem.operation = Operation::grad_weight;
  const Target target{Target::Kind::cpu, "x86-64-v3", 2};
  const Plan plan = choose_plan(problem, target);
  REQUIRE(plan.size() == 2);
  CHECK(plan[0].up_to == 8);
  CHECK(plan[0].config.stages == 1);
  CHECK(plan[1].up_to == 300);
  CHECK(plan[1].config.stages == 2);
}

TEST_CASE("an attached gradient of the weight has one config for all layouts, which the compiler takes") {
  const Target target = Target::parse("h100");
  for (const BlockShape block : {BlockShape{8, 16}, {32, 32}, {64, 64}, {128, 128}})
    for (const std::int64_t n : {8, 8192}) {
      CAPTURE(to_string(block));
      CAPTURE(n);
      Problem problem = problem_of(patterns::random(3, 4, 0.5, 1), block, n);
      problem.operation = Operation::grad_weight;
      problem.dtype = problem.out_dtype = DType::f16;
      const Plan plan = choose_attached_plan(problem, target);
      REQUIRE(plan.size() == 1);
      CHECK(plan[0].config.table == TableForm::attached);
      CHECK(plan[0].config.split >= 1);
      CHECK(ConfigCheck(problem, target).refusal(plan[0].config).empty());
      problem.layout = patterns::random(40, 30, 0.1, 2);
      CHECK(choose_attached_plan(problem, target) == plan);
    }
}

}  // namespace
}  // namespace sparsekiln

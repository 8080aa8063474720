#include "autotune/cuda/defaults.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "autotune/architecture.h"
#include "autotune/cuda/prediction.h"
#include "autotune/cuda/timing.h"
#include "autotune/cuda/work.h"
#include "autotune/default_plan.h"
#include "autotune/prediction.h"
#include "autotune/space.h"
#include "compiler/build.h"
#include "compiler/cuda/emit.h"
#include "compiler/cuda/families.h"
#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/sddmm.h"
#include "compiler/problem_kind.h"
#include "compiler/schedule.h"

namespace sparsekiln::cuda {
namespace {

const Target kH100 = Target::parse("h100");

Problem half_problem(BlockShape block, double density = 0.1) {
  Problem problem;
  problem.layout = patterns::random(96, 64, density, 1);
  problem.block = block;
  problem.dtype = problem.out_dtype = DType::f16;
  return problem;
}

TEST_CASE("float32 with ieee math runs on CUDA cores, everything else on tensor cores") {
  for (const std::int64_t n : {1, 64, 4096}) {
    Problem problem = half_problem({32, 32});
    CHECK(on_tensor_cores(default_config(problem, kH100, n).variant, false));
    problem.dtype = problem.out_dtype = DType::f32;
    CHECK(!on_tensor_cores(default_config(problem, kH100, n).variant, true));
    problem.math = Math::tf32;
    CHECK(on_tensor_cores(default_config(problem, kH100, n).variant, false));
  }
}

TEST_CASE("large batches get larger tiles") {
  const std::int32_t small = default_config(half_problem({64, 64}), kH100, 32).tile_n;
  CHECK(small <= 32);
  CHECK(default_config(half_problem({64, 64}), kH100, 8192).tile_n >= 128);
}

TEST_CASE(
    "small batches of large layers go through registers or warps of their own, in the gradient of the input "
    "too") {
  for (const std::int32_t side : {16, 32}) {
    CAPTURE(side);
    Problem problem = half_problem({side, side}, 0.5);
    const Variant variant = default_config(problem, kH100, 1).variant;
    CHECK((variant == Variant::stream || variant == Variant::direct));
    problem.operation = Operation::grad_input;  // which stream does not compute
    CHECK(default_config(problem, kH100, 1).variant == Variant::direct);
    problem.derivative = Activation::gelu;
    for (const std::int64_t n : {1, 32, 64})
      CHECK(default_config(problem, kH100, n).variant == Variant::direct);
  }
}

TEST_CASE(
    "small batches of pairs, cells, block scales, partial edge blocks and 8-bit types go through registers, "
    "too") {
  const auto variant = [](const auto& change) {
    Problem problem = half_problem({32, 32}, 0.5);
    change(problem);
    return default_config(problem, kH100, 16).variant;
  };
  CHECK(variant([](Problem& one) { one.epilogue = {.activation = Activation::silu, .glu = true}; }) ==
        Variant::direct);
  CHECK(variant([](Problem& one) { one.block_scales = true; }) == Variant::direct);
  CHECK(variant([](Problem& one) { one.epilogue = {.lstm = true}; }) == Variant::direct);
  CHECK(variant([](Problem& one) { one.cut_in_features = one.in_features() - 8; }) == Variant::direct);
  CHECK(variant([](Problem& one) { one.cut_in_features = one.in_features() - 3; }) == Variant::mma);
  CHECK(variant([](Problem& one) {
          one.dtype = DType::e4m3;
          one.out_dtype = DType::bf16;
        }) == Variant::stream);  // which needs fewer registers for them
}

TEST_CASE("the default is nearly as fast as the best of the whole space, by the cost model") {
  for (const char* const name : {"sm_80", "h100"})
    for (const std::int32_t side : {8, 32, 64})
      for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight})
        for (const std::int64_t n : {1, 64, 4096})
          for (const DType dtype : {DType::f16, DType::f32}) {
            Problem problem = half_problem({side, side});
            problem.dtype = problem.out_dtype = dtype;
            problem.operation = operation;
            problem.batch = n;
            const Target target = Target::parse(name);
            double best = 1e9;
            for (const Config& config : space_of(problem, target, n).configs)
              if (config.variant != Variant::stream ||
                  n <= 2 * std::int64_t{config.tile_n})  // else no default
                best = std::min(best, predict(problem, target, config, n).us);
            const Config config = choose_plan(problem, target).front().config;
            CAPTURE(name);
            CAPTURE(side);
            CAPTURE(n);
            CAPTURE(to_string(config));
            CHECK(predict(problem, target, config, n).us <= 1.15 * best);
          }
}

/// A candidate that the model cannot tell from the default, and that is the better of the two, if there is
/// one.
std::optional<Config> better_of_equals(const Problem& problem, std::int64_t n, const Config& chosen) {
  const Spmm product(problem);
  const auto family = [&](const Config& config) { return find_family(product, config.variant)->tuning; };
  const bool by_structure = family(chosen)->by_structure;
  const Prediction expected = predict(problem, kH100, chosen, n);
  const auto price = [&](const Config& config, const Prediction& of) {
    return by_structure ? of.instructions : loop_costs(product, kH100, config).registers;
  };
  Pricing pricing(problem, kH100);
  const ConfigCheck check(problem, kH100);
  std::optional<Config> better;
  double least = expected.us;
  for (const Config& candidate : default_candidates(problem, kH100, n)) {
    const Config config = pricing.with_derived(candidate, n);
    if (!check.refusal(config).empty()) continue;
    const LoopCosts costs = loop_costs(product, kH100, config);
    if (config.split > resident_ctas(kH100, costs.threads, costs.shared_bytes)) continue;
    const auto keeps = family(config)->keeps_costs;
    if (keeps != nullptr && !keeps(product, kH100, config, costs)) continue;
    const Prediction other = predict(problem, kH100, config, n);
    least = std::min(least, other.us);
    if (by_structure && config.variant != chosen.variant) continue;
    if (other.us < expected.us && price(config, other) <= price(chosen, expected)) better = config;
  }
  CHECK(expected.us <= (by_structure ? 1.0201 : 1.0101) * least);
  return better;
}

TEST_CASE(
    "of configs that the model cannot tell apart, the default has the fewest registers or instructions") {
  std::set<bool> seen;
  for (const std::int64_t n : {16, 64, 1024}) {
    const Problem problem = half_problem({32, 32});
    const Config chosen = default_config(problem, kH100, n);
    seen.insert(find_family(Spmm(problem), chosen.variant)->tuning->by_structure);
    const std::optional<Config> better = better_of_equals(problem, n, chosen);
    CAPTURE(n);
    CAPTURE(to_string(chosen));
    CAPTURE(better ? to_string(*better) : "");
    CHECK_FALSE(better);
  }
  CHECK(seen.size() == 2);
}

TEST_CASE("rows are split where the model says that it pays, or only for four times as much") {
  std::set<std::int32_t> seen;
  for (const char* text :
       {"direct tile_n=32 stages=2 warps=4 split=3 table=global",
        "direct tile_n=32 stages=2 warps=16 split=1 table=global", "mma tile_n=32 warps=4"})
    for (const double density : {0.02, 0.1}) {
      Problem problem = half_problem({32, 32});
      problem.layout = patterns::random(384, 384, density, 1);
      Pricing pricing(problem, kH100);
      const Config derived = pricing.with_derived(parse_config(text), 32);
      const Spmm product(problem);
      const auto usual = static_cast<std::int32_t>(
          kCombineUs / step_us(product, kH100, loop_costs(product, kH100, derived), architecture(kH100)));
      Config split = derived;
      split.split_saves = usual;
      Config whole = derived;
      whole.split_saves = 4 * usual;
      CAPTURE(to_string(derived));
      CHECK(derived.split_saves == (pricing.of(whole, 32).us < pricing.of(split, 32).us ? 4 * usual : usual));
      seen.insert(derived.split_saves / usual);
    }
  CHECK(seen == std::set<std::int32_t>{1, 4});
}

TEST_CASE("the CTAs that a default plans for a multiprocessor fit it") {
  for (const std::int32_t out : {8, 16, 32, 64, 128})
    for (const std::int64_t n : {1, 17, 64, 100, 4096})
      for (const DType dtype : {DType::f16, DType::f32})
        for (const char* name : {"sm_75", "sm_80", "sm_86", "sm_90", "sm_120"}) {
          Problem problem = half_problem({out, 64});
          problem.dtype = problem.out_dtype = dtype;
          const Target target = Target::parse(name);
          const Config config = default_config(problem, target, n);
          const LoopCosts costs = loop_costs(Spmm(problem), target, config);
          CAPTURE(out);
          CAPTURE(n);
          CAPTURE(name);
          CAPTURE(to_string(config));
          CHECK(config.split <= resident_ctas(target, costs.threads, costs.shared_bytes));
        }
}

TEST_CASE("the batch tiles of a large batch that are computed at once leave x in L2") {
  Problem problem = half_problem({64, 64});
  problem.layout = patterns::random(224, 64, 0.1, 1);
  for (const std::int64_t n : {1024, 8192, 50000}) {
    CAPTURE(n);
    const Config config = default_config(problem, kH100, n);
    const std::int64_t tiles = (n + config.tile_n - 1) / config.tile_n;
    const std::int64_t at_once = config.in_flight == 0 ? tiles : config.in_flight;
    CHECK(at_once * config.tile_n * 4096 * 2 <= 32 * 1024 * 1024);
    CHECK(config.in_flight < tiles);
    if (n == 1024) CHECK(config.in_flight == kAllInFlight);
  }
}

TEST_CASE("configs for several batches are those for each batch alone") {
  // The batches differ in rounds, and so in the schedules that prices come from.
  constexpr std::array<std::int64_t, 6> kBatches{8, 16, 64, 256, 1024, 1 << 20};
  for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight})
    for (const std::int32_t side : {16, 32, 64})
      for (const double density : {0.01, 0.1, 0.6}) {
        Problem problem = half_problem({side, side}, density);
        problem.operation = operation;
        problem.batch = Batch::up_to(1 << 20);
        CAPTURE(name(operation));
        CAPTURE(side);
        CAPTURE(density);
        const std::vector<Config> together = default_configs(problem, kH100, kBatches);
        REQUIRE(together.size() == kBatches.size());
        for (std::size_t i = 0; i < kBatches.size(); ++i)
          CHECK(together[i] == default_config(problem, kH100, kBatches[i]));
      }
}

TEST_CASE("no row of the headline layer at 99 % is split, and those of skewed layers are") {
  Problem problem;
  problem.layout = patterns::random(384, 384, 0.01, 1);
  problem.dtype = problem.out_dtype = DType::bf16;
  problem.batch = 32;
  CHECK(make_schedule(problem, kH100, default_config(problem, kH100, 32), 32).counters == 0);
  std::vector<std::uint8_t> mask(384 * 384, 0);
  for (std::size_t i = 0; i < 384; ++i) mask[i] = mask[i * 385] = 1;
  problem.layout = Layout::from_mask(384, 384, mask);
  CHECK(make_schedule(problem, kH100, default_config(problem, kH100, 32), 32).counters > 0);
}

/// Every problem that `validate` lets pass, in as many forms as decide a config.
template <class Use>
void for_each_problem(Use use) {
  struct Types {
    DType dtype;
    Math math;
  };
  constexpr std::array kTypes{Types{DType::f32, Math::ieee}, Types{DType::f32, Math::tf32},
                              Types{DType::f16, Math::ieee}, Types{DType::bf16, Math::ieee}};
  const std::array<Epilogue, 3> epilogues{
      Epilogue{}, Epilogue{.activation = Activation::silu, .glu = true},
      Epilogue{.scale = true, .bias = true, .activation = Activation::gelu, .glu = true, .residual = true}};
  constexpr Epilogue kCell{.lstm = true}, kNormalised{.layer_norm = true};
  constexpr std::array kSides{8, 16, 32, 64, 128};
  Problem problem;
  problem.layout = patterns::random(6, 6, 0.5, 1);
  for (const std::int32_t out : kSides)
    for (const std::int32_t in : kSides)
      for (const Types& types : kTypes)
        for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight})
          for (const ActivationOrder order : {ActivationOrder::batch_major, ActivationOrder::feature_major})
            for (int form = 0; form < 8; ++form) {
              const bool forward = operation == Operation::forward;
              problem.block = {out, in};
              problem.dtype = problem.out_dtype = types.dtype;
              problem.math = types.math;
              problem.operation = operation;
              problem.order = order;
              problem.epilogue = forward ? epilogues[static_cast<std::size_t>(form % 3)] : Epilogue{};
              const bool is_linear = form < 6;
              if (form == 6) problem.epilogue = kCell;
              if (form == 7 && operation != Operation::grad_weight && !problem.feature_major())
                problem.epilogue = kNormalised;
              problem.derivative =
                  is_linear && !forward && form % 3 == 1 ? Activation::relu : Activation::none;
              problem.bias_gradient = operation == Operation::grad_weight && form % 3 == 2;
              const bool is_cut = is_linear && form >= 3;
              problem.block_scales = is_cut;
              problem.cut_in_features = is_cut ? 6 * in - 3 : 0;
              problem.alignment = is_cut ? static_cast<std::int32_t>(size_of(types.dtype)) : 16;
              validate(problem);
              use(problem);
            }
}

/// Whether a config computes it.
bool is_computed(const Problem& problem, const Target& target) {
  try {
    std::visit([&](const auto& computed) { validate(computed, target); }, computed_by(problem, target));
    return true;
  } catch (const Error&) {  // tests/autotune/refusals_test.cpp is about these
    return false;
  }
}

TEST_CASE("the default of every problem and batch is a config that computes it") {
  for (const char* name : {"sm_75", "sm_90"}) {
    const Target target = Target::parse(name);
    std::size_t computed = 0;
    std::size_t turn = 0;
    constexpr std::array<std::int64_t, 8> kBatches{0, 1, 9, 16, 17, 64, 100, 5000};
    for_each_problem([&](const Problem& problem) {
      ++turn;
      if (!is_computed(problem, target)) return;
      for (const std::int64_t n : {kBatches[turn % kBatches.size()]}) {  // each problem with one, in turn
        std::string what;
        try {
          if (problem.operation == Operation::grad_weight)
            validate(Sddmm(problem), target, default_config(problem, target, n));
          else
            validate(Spmm(problem), target, default_config(problem, target, n));
          ++computed;
        } catch (const Error& error) {
          what = error.what();
        }
        if (what.empty()) continue;
        FAIL_CHECK(name, " ", sparsekiln::name(problem.operation), " ", sparsekiln::name(problem.dtype), " ",
                   sparsekiln::name(problem.order), " block ", to_string(problem.block), " epilogue ",
                   to_string(problem.epilogue), " n ", n, ": ", what);
      }
    });
    CHECK(computed > 1500);
  }
}

}  // namespace
}  // namespace sparsekiln::cuda

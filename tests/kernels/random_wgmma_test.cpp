#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/patterns.h>

#include "compiler/build.h"
#include "compiler/element.h"
#include "tests/kernels/suite.h"
#include "tests/kernels/table.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

// Random problems and configs of variant wgmma, which those of property_test.cpp, without a config, seldom
// meet.

namespace {

using Random = std::mt19937_64;

template <class Value, std::size_t kCount>
Value any(Random& random, const std::array<Value, kCount>& values) {
  return values[random() % kCount];
}

struct Drawn {
  Layout layout;
  Options options;
  std::int64_t n;
  std::int64_t padding;  ///< elements between the rows
};

constexpr std::array kTypes{DType::f16, DType::bf16, DType::f32, DType::e4m3, DType::e5m2, DType::i8};
constexpr std::array kEpilogues{
    Epilogue{},
    Epilogue{.scale = true},
    Epilogue{.bias = true, .activation = Activation::gelu},
    Epilogue{.scale = true, .bias = true, .activation = Activation::silu, .residual = true},
    Epilogue{.activation = Activation::silu, .glu = true},
    Epilogue{.scale = true, .bias = true, .activation = Activation::sigmoid, .glu = true, .residual = true},
};

Config draw_config(Random& random) {
  Config config;
  config.variant = Variant::wgmma;
  config.warps = 12;
  config.tile_n = any(random, std::array{128, 256});
  config.stages = 2 + static_cast<std::int32_t>(random() % 4);
  config.rows = any(random, std::array{1, 1, 2, 4});
  config.merge = config.rows == 1 ? any(random, std::array{1, 1, 2, 4}) : 1;
  config.split = any(random, std::array{1, 3});
  config.cluster = any(random, std::array{1, 2});
  config.cluster_rows = any(random, std::array{1, 2});
  config.in_flight = any(random, std::array{kDerivedInFlight, kAllInFlight, 1, 2});
  config.table = any(random, std::array{TableForm::constant, TableForm::global, TableForm::attached});
  return config;
}

Config draw_rows_config(Random& random, std::int32_t outputs) {
  Config config = draw_config(random);
  config.variant = Variant::wgmma_rows;
  config.operand_a = OperandA::w;
  config.rows = any(random, std::array{2, 3});
  config.warps = 4 * (config.rows + 1);
  config.merge = 64 / outputs;
  config.cluster_rows = 1;
  return config;
}

Drawn draw(std::uint64_t seed) {
  Random random(seed);
  const bool of_rows = random() % 2 == 0;  // wgmma_rows
  const std::uint64_t most = of_rows ? 12 : 4;
  const auto rows = 1 + static_cast<std::int32_t>(random() % most);
  const auto cols = 1 + static_cast<std::int32_t>(random() % (most + 1));
  const double density = any(random, std::array{0.3, 0.6, 1.0});
  const auto n = any(random, std::array<std::int64_t, 11>{0, 1, 63, 64, 127, 128, 129, 200, 256, 257, 390});
  constexpr std::array kSides{64, 128};
  constexpr std::array kSmallSides{16, 32, 64};
  const BlockShape block = of_rows ? BlockShape{any(random, kSmallSides), any(random, kSmallSides)}
                                   : BlockShape{any(random, kSides), any(random, kSides)};
  const DType dtype = of_rows ? any(random, std::array{DType::f16, DType::bf16}) : any(random, kTypes);
  Options options =
      Suite::current().options(block, Batch(n), {dtype, dtype == DType::f32 ? Math::tf32 : Math::ieee});
  const auto results = element(dtype).results;
  options.out_dtype = results[random() % results.size()];
  options.target = Suite::current().target_with(any(random, std::array{1, 3, 8}));
  if (size_of(dtype) == 2 && random() % 3 == 0) {
    options.operation = Operation::grad_input;
    options.epilogue = {.scale = random() % 2 == 0};
  } else if (options.out_dtype != DType::i32) {
    options.epilogue = any(random, kEpilogues);
    options.epilogue.row_scale = size_of(dtype) == 1 && random() % 2 == 0;
  }
  options.overlap_launches = random() % 4 == 0;
  options.config =
      of_rows ? draw_rows_config(random, options.operation == Operation::forward ? block.out : block.in)
              : draw_config(random);
  const std::int64_t padding = any(random, std::array{0, 0, 16, 48});
  return {patterns::random(rows, cols, density, seed), options, n, padding};
}

/// Whether the numbers of the config go together, on this problem.
bool goes_together(const Drawn& drawn) {
  const Options& options = drawn.options;
  const ConfigCheck check(make_problem(drawn.layout, options), resolve_target(options.target));
  return check.refusal(*options.config).empty();
}

std::string run(const Drawn& drawn) {
  const Kernel kernel = compile(drawn.layout, drawn.options);
  const Problem problem = make_problem(drawn.layout, drawn.options);
  const std::int64_t width =
      problem.operation == Operation::forward ? problem.in_features() : problem.out_features();
  for (const Inputs kind : {Inputs::small_integers, Inputs::random}) {
    const std::string seed = Suite::current().take_seed(kind == Inputs::random ? 2 : 1);
    const HostInputs inputs = make_inputs(problem, drawn.n, kind, 3, width + drawn.padding);
    const CheckResult result = launch_and_check(kernel, problem, inputs, drawn.padding);
    if (!result.ok) return fmt::format("{} {}", result.first_failure, seed);
  }
  return "";
}

}  // namespace

TEST_CASE("random problems are computed right by random configs of wgmma and wgmma_rows" *
          doctest::test_suite("tables")) {
  const Target target = Suite::current().device()->target();
  if (target.kind != Target::Kind::cuda || target.compute_capability() != 90) return;
  const std::size_t wanted = Suite::current().only_pairs() ? 24 : 200;
  const std::uint64_t first = 1000033 * Suite::seed_of_today();
  std::vector<Part> parts;
  std::size_t drawn_so_far = 0;
  for (; parts.size() < wanted && drawn_so_far < 20 * wanted; ++drawn_so_far) {
    const Drawn drawn = draw(first + drawn_so_far);
    if (!goes_together(drawn)) continue;
    const Options& options = drawn.options;
    parts.push_back(
        {fmt::format("SPARSEKILN_TEST_SEED={}, draw {}: {} to {}, {} of block {}, epilogue {}, batch {}, "
                     "{} elements between rows, {}",
                     Suite::seed_of_today(), drawn_so_far, name(options.dtype), name(*options.out_dtype),
                     name(options.operation), to_string(options.block), to_string(options.epilogue), drawn.n,
                     drawn.padding, to_string(*options.config)),
         drawn.layout, options, [drawn] { return run(drawn); }});
  }
  CHECK(parts.size() == wanted);
  run_table(parts);
}

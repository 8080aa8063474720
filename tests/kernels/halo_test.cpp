#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/patterns.h>

#include "compiler/build.h"
#include "compiler/spmm.h"
#include "runtime/test_launch.h"
#include "tests/kernels/suite.h"
#include "tests/kernels/table.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

// Convolutions by variant halo, where stages, tiles, items and launches meet, and random ones.

namespace {

bool has_halo() {
  const Target& target = Suite::current().device()->target();
  return target.kind == Target::Kind::cuda && target.compute_capability() == 90;
}

Options asked(const char* geometry, BlockShape block, Batch batch, const std::string& numbers,
              std::int32_t workers = 3) {
  Options options = Suite::current().options(block, batch, {DType::bf16});
  options.convolution = parse_convolution(geometry);
  options.target = Suite::current().target_with(workers);
  options.config = parse_config("halo warps=12 " + numbers);
  return options;
}

/// The first failure of a launch; empty where it is right. A caller may take the results, too.
std::string failure_of(const Kernel& kernel, const Problem& problem, const TestLaunchShape& shape,
                       Inputs kind, std::vector<std::byte>* image = nullptr) {
  const auto launch = make_test_launch(problem, shape, kind, 5);
  const auto operands = launch->place(kernel, Suite::current().device());
  operands->launch(kernel);
  Suite::current().device()->synchronize();
  const CheckResult result = operands->judge(kernel.binary().plan, image);
  return result.ok ? "" : result.first_failure;
}

/// Two launches: the second finds counters as the first one left them.
void check_right(const Layout& layout, const Options& options, std::int64_t n) {
  CAPTURE(to_string(*options.config));
  CAPTURE(to_string(options.convolution));
  const Kernel kernel = compile(layout, options);
  for (std::size_t i = 0; i < 2; ++i) {
    CAPTURE(Suite::current().take_seed(i));
    CHECK(failure_of(kernel, make_problem(layout, options), {.n = n}, Inputs::small_integers) == "");
  }
}

/// Rows of which one has columns that the other of its item lacks, for longer than there are stages.
Layout lopsided() {
  std::vector<std::uint8_t> mask(4 * 9, 0);
  for (const std::size_t column : {0, 1, 2, 3, 4, 5, 6, 8}) mask[column] = 1;
  for (const std::size_t column : {0, 8}) mask[2 * 9 + column] = 1;
  mask[3 * 9 + 4] = 1;
  return Layout::from_mask(4, 9, mask);
}

constexpr const char* kPlain = "kernel=3x3 padding=1 input=10x9";

}  // namespace

TEST_CASE("a convolution by halo takes stages of x that an output tile of an item does not need") {
  if (!has_halo()) return;
  for (const char* numbers :
       {"tile_n=64 stages=2 rows=2 merge=2", "tile_n=112 stages=3 rows=2 merge=2 in_flight=1",
        "tile_n=64 stages=2 rows=1 merge=4"})
    for (const char* geometry : {kPlain, "kernel=3x2x2 padding=1 input=2x5x9", "kernel=2 input=21"})
      check_right(lopsided(), asked(geometry, {32, 32}, 1, numbers), 1);
  for (const char* numbers :
       {"tile_n=64 stages=2 rows=2 merge=1", "tile_n=64 stages=3 rows=2 merge=1 in_flight=2"})
    check_right(lopsided(), asked(kPlain, {64, 32}, 1, numbers), 1);
}

TEST_CASE("a convolution by halo goes on with its stages from one tile and item to the next") {
  if (!has_halo()) return;
  const Layout layout = patterns::random(5, 4, 0.4, 3);
  for (const char* numbers :
       {"tile_n=64 stages=2 rows=2 merge=2 in_flight=1", "tile_n=224 stages=3 rows=2 merge=2 in_flight=2",
        "tile_n=64 stages=2 rows=2 merge=2 table=global in_flight=3"}) {
    check_right(layout, asked(kPlain, {32, 32}, 3, numbers), 3);
    Options gradient = asked(kPlain, {32, 64}, 3, numbers);
    gradient.operation = Operation::grad_input;
    gradient.config->merge = 1;
    check_right(layout, gradient, 3);
  }
}

TEST_CASE("a convolution with strides by halo reads each phase of its input, at the edges, too") {
  if (!has_halo()) return;
  const Layout layout = patterns::random(5, 3, 0.5, 3);
  for (const char* geometry :
       {"kernel=3x3 stride=2 padding=1 input=28x28", "kernel=3x3 stride=2 padding=1 input=27x19",
        "kernel=1x1 stride=2 input=15x17", "kernel=5x5 stride=2 padding=2 input=17x20",
        "kernel=7x7 stride=2 padding=3 input=15x16", "kernel=3x3 stride=2x1 padding=1 input=21x9",
        "kernel=3x3 stride=1x2 padding=1x0 input=9x21",
        "kernel=3x3 stride=2 dilation=2 padding=2 input=20x21",
        "kernel=3x3 stride=2 dilation=3 padding=3 input=20x21", "kernel=4x4 stride=4 input=17x34",
        "kernel=2x3 stride=4x3 padding=1 input=17x34", "kernel=3 stride=2 padding=1 input=41",
        "kernel=3x3x3 stride=2 padding=1 input=5x9x10", "kernel=3x3x3 stride=3x1x2 padding=1 input=5x9x10",
        "kernel=3x3 stride=2 padding=1 taps=110010011 input=20x21"}) {
    Options options = asked(geometry, {32, 32}, 2, "tile_n=64 stages=2 rows=2 merge=2");
    check_right(layout, options, 2);
    options.specialization = Specialization::attached;
    options.config->table = TableForm::attached;
    check_right(layout, options, 2);
  }
}

TEST_CASE("the gradient of a convolution with strides by halo writes every position, of each class") {
  if (!has_halo()) return;
  const Layout layout = patterns::random(3, 5, 0.5, 3);
  for (const char* geometry :
       {"kernel=3x3 stride=2 padding=1 input=28x28", "kernel=3x3 stride=2 padding=1 input=27x19",
        "kernel=1x1 stride=2 input=15x17", "kernel=5x5 stride=2 padding=2 input=17x20",
        "kernel=7x7 stride=2 padding=3 input=15x16", "kernel=3x3 stride=2x1 padding=1 input=21x9",
        "kernel=3x3 stride=2 dilation=2 padding=2 input=20x21",
        "kernel=3x3 stride=2 dilation=3 padding=3 input=20x21", "kernel=2x3 stride=4x3 padding=1 input=17x34",
        "kernel=3 stride=2 padding=1 input=41", "kernel=3x3x3 stride=2 padding=1 input=5x9x10",
        "kernel=3x3 stride=2 padding=1 taps=110010011 input=20x21"})
    for (const char* numbers : {"tile_n=64 stages=2 rows=2 merge=2", "tile_n=112 stages=2 rows=1 merge=4"}) {
      Options options = asked(geometry, {32, 32}, 2, numbers);
      options.operation = Operation::grad_input;
      check_right(layout, options, 2);
    }
  for (const char* geometry : {"kernel=3x3 stride=2 padding=1 transposed input=9x10",
                               "kernel=4x4 stride=2 padding=1 transposed input=9x10"}) {
    Options options = asked(geometry, {32, 32}, 2, "tile_n=64 stages=2 rows=2 merge=2");
    options.epilogue = {.bias = true, .activation = Activation::relu, .residual = true};
    check_right(layout, options, 2);
    options.epilogue = {.activation = Activation::relu, .edge_bias = true};
    options.specialization = Specialization::attached;
    options.config->table = TableForm::attached;
    check_right(layout, options, 2);
  }
}

TEST_CASE("rows of a convolution that several CTAs of halo share are combined") {
  if (!has_halo()) return;
  const Layout layout = patterns::random(4, 7, 0.7, 3);
  for (const char* numbers : {"tile_n=64 stages=2 rows=2 merge=2", "tile_n=128 stages=2 rows=1 merge=4"}) {
    for (const Operation operation : {Operation::forward, Operation::grad_input}) {
      const char* const strides = operation == Operation::forward ? "1" : "2";
      Options options = asked(fmt::format("kernel=3x3 stride={} padding=1 input=7x6", strides).c_str(),
                              {32, 32}, 1, numbers, 8);
      options.operation = operation;
      CHECK(compile(layout, options).workspace_bytes(1) > 0);  // else no row is split
      check_right(layout, options, 1);
    }
  }
}

TEST_CASE("a convolution by halo is right for images smaller than a tile, and for no image") {
  if (!has_halo()) return;
  const Layout layout = patterns::random(4, 3, 0.6, 3);
  for (const char* geometry :
       {"kernel=3x3 padding=1 input=1x1", "kernel=3x3 input=3x3", "kernel=1x7 padding=3 input=5x4",
        "kernel=3x3 padding=2 dilation=2 input=9x17", "kernel=3x3 padding=0:3x1:0 input=9x17",
        "kernel=3x3 padding=1 transposed input=9x10", "kernel=3x3 padding=1 taps=110010011 input=9x10"}) {
    for (const std::int64_t n : {0, 1, 3})
      check_right(layout, asked(geometry, {32, 32}, n, "tile_n=112 stages=2 rows=2 merge=2"), n);
  }
}

namespace {

using Random = std::mt19937_64;

template <class Value, std::size_t kCount>
Value any(Random& random, const std::array<Value, kCount>& values) {
  return values[random() % kCount];
}

struct Drawn {
  Layout layout;
  Options options;
  TestLaunchShape shape;
};

constexpr std::array kEpilogues{
    Epilogue{},
    Epilogue{.scale = true, .residual = true},
    Epilogue{.bias = true, .activation = Activation::gelu},
    Epilogue{.scale = true, .bias = true, .activation = Activation::silu, .residual = true},
    Epilogue{.activation = Activation::relu, .edge_bias = true},
};

Convolution draw_geometry(Random& random) {
  Convolution convolution;
  convolution.dimensions = any(random, std::array{1, 2, 2, 2, 3});
  const auto up_to = [&](std::int32_t most) { return static_cast<std::int32_t>(random() % (most + 1u)); };
  for (auto i = static_cast<std::size_t>(3 - convolution.dimensions); i < 3; ++i) {
    convolution.kernel[i] = any(random, std::array{1, 2, 3, 3, 3, 5});
    convolution.dilation[i] = any(random, std::array{1, 1, 2});
    convolution.stride[i] = any(random, std::array{1, 1, 2, 2, 3});
    convolution.padding_before[i] = up_to(3);
    convolution.padding_after[i] = up_to(3);
    convolution.input[i] = 1 + up_to(i == 0 ? 3 : i == 1 ? 33 : 25);
  }
  convolution.transposed = random() % 5 == 0;
  return convolution;
}

Drawn draw(std::uint64_t seed) {
  Random random(seed);
  const auto rows = 1 + static_cast<std::int32_t>(random() % 7);
  const auto cols = 1 + static_cast<std::int32_t>(random() % 6);
  const double density = any(random, std::array{0.2, 0.5, 1.0});
  const auto n = any(random, std::array<std::int64_t, 4>{0, 1, 2, 3});
  const BlockShape block{any(random, std::array{32, 32, 64, 128}), any(random, std::array{32, 32, 64})};
  const DType dtype = any(random, std::array{DType::f16, DType::bf16});
  Options options = Suite::current().options(block, n, {dtype});
  options.out_dtype = any(random, std::array{dtype, dtype, DType::f32});
  options.target = Suite::current().target_with(any(random, std::array{1, 3, 16}));
  options.convolution = draw_geometry(random);
  if (random() % 3 == 0) {
    options.operation = Operation::grad_input;
    options.epilogue = {.scale = random() % 2 == 0};
  } else {
    options.epilogue = any(random, kEpilogues);
  }
  options.overlap_launches = random() % 4 == 0;
  Config config;
  config.variant = Variant::halo;
  config.warps = 12;
  config.tile_n = any(random, std::array{64, 112, 128, 192, 224, 256});
  config.stages = 2 + static_cast<std::int32_t>(random() % 3);
  config.rows = any(random, std::array{1, 2, 2});
  config.merge = any(random, std::array{1, 2, 2, 4});
  config.split = any(random, std::array{1, 3});
  config.in_flight = any(random, std::array{kDerivedInFlight, kAllInFlight, 1, 2});
  config.table = any(random, std::array{TableForm::constant, TableForm::global, TableForm::attached});
  options.config = config;
  const std::int64_t padding = any(random, std::array{0, 0, 16, 48});
  return {patterns::random(rows, cols, density, seed), options, {.n = n, .padding = padding}};
}

/// Whether the numbers go together, on a problem that the emulator computes in a second or so.
bool goes_together(const Drawn& drawn) {
  constexpr double kMostProducts = 1e8;
  try {
    validate(drawn.options.convolution);
    const Problem problem = make_problem(drawn.layout, drawn.options);
    const ConfigCheck check(problem, resolve_target(drawn.options.target));
    if (!check.refusal(*drawn.options.config).empty()) return false;
    const Spmm product(problem);
    const auto positions = static_cast<double>(product.batch_tiles(drawn.shape.n, *drawn.options.config) *
                                               drawn.options.config->tile_n);
    return positions * static_cast<double>(product.layout.blocks()) * product.block.out * product.block.in <
           kMostProducts;
  } catch (const Error&) {
    return false;  // no such convolution
  }
}

std::string run(const Drawn& drawn) {
  const Kernel kernel = compile(drawn.layout, drawn.options);
  const Problem problem = make_problem(drawn.layout, drawn.options);
  std::vector<std::byte> first;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string seed = Suite::current().take_seed(i);
    std::vector<std::byte> image;
    const Inputs kind = i == 0 ? Inputs::small_integers : Inputs::random;
    if (const std::string failure = failure_of(kernel, problem, drawn.shape, kind, &image); !failure.empty())
      return fmt::format("{} {}", failure, seed);
    if (i == 1) first = image;
    if (i == 2 && image != first) return fmt::format("other bits the second time {}", seed);
  }
  return "";
}

}  // namespace

TEST_CASE("random convolutions are computed right, and with the same bits again, by random configs of halo" *
          doctest::test_suite("tables")) {
  if (!has_halo()) return;
  const std::size_t wanted = Suite::current().only_pairs() ? 16 : 200;
  const std::uint64_t first = 1000033 * Suite::seed_of_today();
  std::vector<sparsekiln::test::Part> parts;
  std::size_t drawn_so_far = 0;
  for (; parts.size() < wanted && drawn_so_far < 200 * wanted; ++drawn_so_far) {
    const Drawn drawn = draw(first + drawn_so_far);
    if (!goes_together(drawn)) continue;
    const Options& options = drawn.options;
    parts.push_back(
        {fmt::format("SPARSEKILN_TEST_SEED={}, draw {}: {} to {}, {} of '{}', {} x {} blocks of {}, "
                     "epilogue {}, {} images, {} elements between rows, {}",
                     Suite::seed_of_today(), drawn_so_far, name(options.dtype), name(*options.out_dtype),
                     name(options.operation), to_string(options.convolution), drawn.layout.rows(),
                     drawn.layout.cols(), to_string(options.block), to_string(options.epilogue),
                     drawn.shape.n, drawn.shape.padding, to_string(*options.config)),
         drawn.layout, options, [drawn] { return run(drawn); }});
  }
  CHECK(parts.size() == wanted);
  run_table(parts);
}

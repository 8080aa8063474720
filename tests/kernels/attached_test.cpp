#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "runtime/cuda/stream.h"
#include "tests/kernels/attached_check.h"
#include "tests/kernels/layouts.h"
#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

/// What an attached kernel gets wrong on a layout, according to the oracles and to the baked kernel.
std::string compare_with_baked(const Kernel& attached, const Layout& layout, Options options,
                               std::int64_t n) {
  const Problem problem = make_problem(layout, options);
  const HostInputs exact = make_inputs(problem, n, Inputs::small_integers, 3);
  const CheckResult check_result = launch_and_check(attached, problem, exact, 8);
  if (!check_result.ok) return check_result.first_failure;
  const HostInputs random = make_inputs(problem, n, Inputs::random, 4);
  if (const CheckResult judged = launch_and_check(attached, problem, random); !judged.ok)
    return judged.first_failure;
  options.specialization = Specialization::tiered;  // with the numbers of the attached one
  const Kernel baked = compile(layout, options);
  baked.wait();
  if (baked.tier() != Tier::baked) return "no baked kernel";
  if (baked.workspace_bytes(n) != attached.workspace_bytes(n)) return "another workspace than baked";
  if (image_of_run(attached, problem, random) != image_of_run(baked, problem, random))
    return "other bits than baked";
  return {};
}

Options attached_options(BlockShape block, Batch batch, Precision precision) {
  Options options = Suite::current().options(block, batch, precision);
  options.specialization = Specialization::attached;
  return options;
}

/// More workers than small layouts have rows, so that some rows are split.
std::string many_workers() { return Suite::current().target_with(Suite::current().on_cpu() ? 7 : 132); }

std::string message_of(Kernel kernel, const Layout& layout) {
  try {
    kernel.relayout(layout);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  return "";
}

/// A layout with as many block rows and columns as `like`.
Layout redrawn(const Layout& like, double density, std::uint64_t seed) {
  return patterns::random(like.rows(), like.cols(), density, seed);
}

}  // namespace

TEST_CASE("an attached kernel computes the same bits as the baked one on every layout") {
  const std::vector<Precision> precisions = Suite::current().precisions();
  std::size_t turn = 0;
  for (const NamedLayout& named : test_layouts()) {
    const Precision& precision = precisions[turn++ % precisions.size()];
    CAPTURE(precision.to_string());
    CAPTURE(named.name);
    const Options options = attached_options({16, 32}, 17, precision);
    CHECK(compare_with_baked(compile(named.make(), options), named.make(), options, 17) == "");
  }
}

TEST_CASE(
    "an attached kernel computes the same bits as the baked one if rows are split, in row groups, "
    "and merged") {
  if (Suite::current().on_cpu()) return;
  struct Numbers {
    std::size_t precision;
    std::int32_t rows, merge;
  };
  const std::vector<Precision> precisions = Suite::current().precisions();  // the first is for CUDA cores
  const Layout layout = patterns::random(6, 24, 0.6, 5);
  int split = 0;
  for (const Numbers& numbers :
       {Numbers{0, 1, 1}, {0, 2, 1}, {0, 4, 1}, {1, 1, 1}, {2, 2, 1}, {3, 4, 1}, {1, 1, 2}, {2, 2, 2}}) {
    if (numbers.precision >= precisions.size()) continue;
    Options options = attached_options({16, 16}, 17, precisions[numbers.precision]);
    options.target = many_workers();
    Config config = parse_config(numbers.precision == 0 ? "simt tile_n=16 tile_out=4 stages=2 warps=2 split=2"
                                                        : "mma tile_n=16 stages=2 warps=1 split=2");
    config.rows = numbers.rows;
    config.merge = numbers.merge;
    options.config = config;
    CAPTURE(to_string(config));
    const Kernel kernel = compile(layout, options);
    split += kernel.workspace_bytes(17) > 0;
    CHECK(compare_with_baked(kernel, layout, options, 17) == "");
  }
  CHECK(split > 0);  // otherwise no row is split, and this tests little
}

TEST_CASE(
    "an attached kernel of wgmma computes the same bits as the baked one on every layout that it takes") {
  const Target target = Suite::current().device()->target();
  if (Suite::current().on_cpu() || target.compute_capability() != 90) return;
  for (const Operation operation : {Operation::forward, Operation::grad_input})
    for (const char* const numbers :
         {"tile_n=128 stages=3", "tile_n=128 stages=3 rows=2", "tile_n=128 stages=2 cluster=2",
          "tile_n=128 stages=3 rows=2 cluster_rows=2", "tile_n=128 stages=3 in_flight=1",
          "tile_n=128 stages=2 merge=2"}) {
      if (operation != Operation::forward && std::string_view(numbers).ends_with("merge=2")) continue;
      Options options = attached_options({64, 64}, 300, {DType::bf16, Math::ieee});
      options.operation = operation;
      options.config = parse_config(fmt::format("wgmma warps=12 {}", numbers));
      CAPTURE(numbers);
      const Layout layout = patterns::random(3, 5, 0.5, 1);
      Kernel kernel = compile(layout, options);
      CHECK(compare_with_baked(kernel, layout, options, 300) == "");
      for (const double density : {0.0, 0.3, 1.0}) {
        CAPTURE(density);
        const Layout other = redrawn(layout, density, 9);
        kernel.relayout(other);
        CHECK(compare_with_baked(kernel, other, options, 300) == "");
      }
    }
}

TEST_CASE("an attached kernel serves any batch up to its bound") {
  const Layout layout = patterns::random(3, 24, 0.6, 7);
  const std::vector<Precision> precisions = Suite::current().precisions();
  for (const Precision& precision : {precisions[0], precisions[1]}) {
    Options options = attached_options({32, 32}, Batch::up_to(100), precision);
    options.target = many_workers();
    const Kernel kernel = compile(layout, options);
    CAPTURE(precision.to_string());
    for (const std::int64_t n : {100, 1, 12, 20, 33}) {  // by default, those up to 16 and 32 share a kernel
      CAPTURE(n);
      CHECK(compare_with_baked(kernel, layout, options, n) == "");
    }
  }
}

TEST_CASE("an attached kernel for a small batch computes the same bits as the baked one in every type") {
  const Layout layout = patterns::random(5, 12, 0.5, 9);
  for (const Precision& precision : Suite::current().precisions())
    for (const std::int64_t n : {1, 16}) {
      CAPTURE(precision.to_string());
      CAPTURE(n);
      const Options options = attached_options({32, 32}, n, precision);
      CHECK(compare_with_baked(compile(layout, options), layout, options, n) == "");
    }
}

TEST_CASE("an attached gradient of the input takes another layout on grids that are not square") {
  constexpr std::int64_t kN = 17;
  const Layout first = patterns::random(9, 4, 0.4, 11);
  Options options = attached_options({16, 8}, kN, {});
  options.operation = Operation::grad_input;
  options.target = many_workers();
  Kernel kernel = compile(first, options);
  CHECK(compare_with_baked(kernel, first, options, kN) == "");
  const Layout second = redrawn(first, 0.7, 12);
  kernel.relayout(second);
  CHECK(compare_with_baked(kernel, second, options, kN) == "");
  CHECK(message_of(kernel, patterns::random(4, 9, 0.4, 11)).find("the kernel's has 9 x 4") !=
        std::string::npos);
}

TEST_CASE("attached gradients of the input read dy from panels on grids that are not square, cells' too") {
  const Target& target = Suite::current().device()->target();
  if (target.kind != Target::Kind::cuda || target.compute_capability() < 75) return;
  for (const bool cell : {false, true})
    for (const auto& [rows, cols] : {std::pair{3, 11}, {11, 3}}) {
      Options options = attached_options({8, 16}, 20, {.dtype = DType::f16});
      options.operation = Operation::grad_input;
      options.epilogue.lstm = cell;
      options.config = parse_config("direct tile_n=16 stages=1 warps=2 panels=1 table=attached");
      const Layout layout = patterns::random(rows, cols, 0.6, 4);
      const Problem problem = make_problem(layout, options);
      CAPTURE(rows);
      CAPTURE(cell);
      const CheckResult result = launch_and_check(compile(layout, options), problem,
                                                  make_inputs(problem, 20, Inputs::small_integers, 5));
      CHECK_MESSAGE(result.ok, result.first_failure);
    }
}

TEST_CASE("a kernel takes another layout and the first one again, and its copies keep their layout") {
  const Layout first = patterns::random(6, 24, 0.4, 1);
  for (const Precision& precision : Suite::current().precisions()) {
    Options options = attached_options({16, 16}, 9, precision);
    options.target = many_workers();
    const Kernel kept = compile(first, options);
    Kernel moved = kept;
    CAPTURE(precision.to_string());
    for (const Layout& layout :
         {redrawn(first, 0.9, 2), redrawn(first, 0, 3), redrawn(first, 0.1, 4), first}) {
      CAPTURE(layout.blocks());
      moved.relayout(layout);
      CHECK(moved.binary().operands.blocks == layout.blocks());
      CHECK(compare_with_baked(moved, layout, options, 9) == "");
      CHECK(compare_with_baked(kept, first, options, 9) == "");
    }
    CHECK(moved.binary() == kept.binary());
    CHECK(moved.key() == kept.key());
  }
}

TEST_CASE("a kernel that cannot take another layout says why and keeps its own") {
  const Layout layout = patterns::random(6, 4, 0.5, 1);
  Options options = attached_options({16, 16}, 9, {});
  Kernel kernel = compile(layout, options);
  CHECK(message_of(kernel, patterns::random(4, 6, 0.5, 1)).find("the kernel's has 6 x 4") !=
        std::string::npos);
  CHECK(kernel.binary().operands.blocks == layout.blocks());
  options.specialization = Specialization::baked;
  CHECK(message_of(compile(layout, options), layout).find("in its code") != std::string::npos);
}

TEST_CASE("a workspace that the caller gives serves many launches of an attached kernel") {
  Options options = attached_options({16, 32}, 33, {});
  options.target = many_workers();
  const Layout layout = patterns::random(4, 48, 0.7, 5);
  Kernel kernel = compile(layout, options);
  const std::shared_ptr<const Device>& device = Suite::current().device();
  for (const Layout& next : {layout, redrawn(layout, 0.5, 9)}) {
    kernel.relayout(next);
    const Problem problem = make_problem(next, options);
    const std::vector<std::byte> zeros(static_cast<std::size_t>(kernel.workspace_bytes(33)));
    CHECK(!zeros.empty());
    DeviceMemory workspace(device, zeros.size());
    workspace.copy_in(zeros.data());
    for (int i = 0; i < 3; ++i) {
      PoisonedOutput output(problem, 33);
      const HostInputs inputs = make_inputs(problem, 33, Inputs::small_integers, 4);
      launch(kernel, problem, inputs, output, {static_cast<std::byte*>(workspace.data()), workspace.bytes()});
      const CheckResult check_result =
          check(problem, inputs, output, adder_of(problem, kernel.binary().plan));
      CHECK_MESSAGE(check_result.ok, check_result.first_failure);
    }
  }
}

TEST_CASE("attached kernels with partial edge blocks are shared by layouts of the same features") {
  const std::vector<Precision> precisions = Suite::current().precisions();
  for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight})
    for (const Precision& precision : {precisions[0], precisions[1]}) {
      CAPTURE(name(operation));
      CAPTURE(precision.to_string());
      Options options = attached_options({16, 32}, 37, precision);
      options.cache_dir = Suite::current().scratch() / "cut";
      options.operation = operation;
      options.in_features = 5 * 32 - 3;
      options.out_features = 7 * 16 - 9;
      options.alignment = static_cast<std::int32_t>(size_of(precision.dtype));
      int compiled = 0;
      for (const double density : {0.4, 0.1, 1.0}) {
        CAPTURE(density);
        const Layout layout = patterns::random(7, 5, density, 3);
        const Kernel kernel = compile(layout, options);
        compiled += kernel.from() == From::compiled;
        CHECK(attached_failure(kernel, layout, options, 37) == "");
      }
      CHECK(compiled == 1);
    }
}

TEST_CASE("the layers of a pruned model, of seven shapes, share one compile for each kind of layer") {
  // A 32-layer model, each side a 32nd of 4096, 1024 and 14336 features in blocks of 32: q, o; k, v; gate,
  // up; down. Seven shapes in all, and a layout of its own for each of the 224.
  constexpr std::array<std::array<int, 2>, 7> kShapes{
      {{4, 4}, {1, 4}, {14, 4}, {4, 14}, {2, 4}, {4, 1}, {14, 14}}};
  std::vector<Kernel> kernels;
  int compiled = 0;
  for (std::uint64_t layer = 0; layer < 32; ++layer)
    for (const auto& [rows, cols] : kShapes) {
      Options options = attached_options({32, 32}, 19, {});
      options.cache_dir = Suite::current().scratch() / "pruned-model";
      const double density = 0.1 + 0.1 * static_cast<double>(layer % 6);
      const Layout layout = patterns::random(rows, cols, density, kernels.size());
      kernels.push_back(compile(layout, options));
      compiled += kernels.back().from() == From::compiled;
      if (layer % 11 != 0) continue;
      const Problem problem = make_problem(layout, options);
      const CheckResult check_result =
          launch_and_check(kernels.back(), problem, make_inputs(problem, 19, Inputs::small_integers, layer));
      CHECK_MESSAGE(check_result.ok, check_result.first_failure);
    }
  CHECK(kernels.size() == 224);
  CHECK(compiled <= 14);
  CHECK(compiled > 0);
}

#include "compiler/attach.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "compiler/build.h"
#include "oracle/spmm_check.h"
#include "runtime/open_device.h"
#include "runtime/resident_spmm.h"
#include "tests/runtime/cpu/product_fixture.h"
#include "tests/runtime/cpu/sddmm_fixture.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::array kTypes = {DType::f32, DType::bf16, DType::f16};
constexpr std::array kOperations = {Operation::forward, Operation::grad_input, Operation::grad_weight};
constexpr std::array kProducts = {Operation::forward, Operation::grad_input};

/// Empty rows and columns, one block, none, all, few rows and few columns, one heavy row and one heavy
/// column.
std::vector<Layout> awkward_layouts() {
  return {grid("000000/101101/000000/111111/000001/010100/000000"),
          grid("1"),
          grid("0"),
          grid("000/000/000"),
          grid("111/111"),
          grid("10000000000000000001"),
          grid("1/0/1/1/0/0/1/1/1/0/1"),
          grid("1111111111111/0000000000001/1000000000000/0000010000000"),
          patterns::random(13, 11, 0.4, 3),
          patterns::random(5, 40, 0.7, 5)};
}

/// Not one that is tested: shared code is made for it.
Layout another_layout() { return patterns::random(3, 5, 0.5, 1); }

Binary shared_binary(Problem problem, const Target& target, Config config) {
  config.table = TableForm::attached;
  problem.layout = another_layout();
  const auto [rows, cols] = std::pair{problem.layout.rows(), problem.layout.cols()};
  if (problem.cut_in_features != 0) problem.cut_in_features = std::int64_t{cols} * problem.block.in - 1;
  if (problem.cut_out_features != 0) problem.cut_out_features = std::int64_t{rows} * problem.block.out - 1;
  return build_binary(problem, target, {{problem.batch.bound(), config}});
}

/// `problem`'s layout and features, with code that was made for others.
Kernel attached_kernel(const Binary& shared, const Problem& problem) {
  const Cuts cuts{problem.cut_in_features, problem.cut_out_features};
  return load(std::make_shared<const Binary>(attach(problem.layout, shared, cuts)));
}

Kernel baked_kernel(const Problem& problem, const Target& target, const Config& config) {
  return load(
      std::make_shared<const Binary>(build_binary(problem, target, {{problem.batch.bound(), config}})));
}

std::vector<std::byte> bytes_of_product(const Kernel& kernel, const Problem& problem,
                                        const HostInputs& inputs) {
  PoisonedOutput output(problem, inputs.n);
  if (problem.epilogue.scale) output.set(inputs.y);
  ResidentSpmm operands(kernel, problem, sparsekiln::open_device("cpu"), inputs, output);
  kernel(operands[0]);
  operands.fetch(output);
  return {output.image().begin(), output.image().end()};
}

/// Whether an attached kernel leaves what the baked one does for each batch, poison included.
bool same_product(const Binary& shared, const Problem& problem, const Config& config,
                  std::initializer_list<std::int64_t> batches) {
  const Kernel attached = attached_kernel(shared, problem);
  const Kernel baked = baked_kernel(problem, shared.target, config);
  return std::ranges::all_of(batches, [&](std::int64_t n) {
    const HostInputs inputs = make_inputs(problem, n, Inputs::random, 4);
    CAPTURE(n);
    const bool same = attached.workspace_bytes(n) == baked.workspace_bytes(n) &&
                      bytes_of_product(attached, problem, inputs) == bytes_of_product(baked, problem, inputs);
    CHECK(same);
    return same;
  });
}

bool same_gradient(const Binary& shared, const Problem& problem, const Config& config,
                   std::initializer_list<SddmmLaunch> launches,
                   std::initializer_list<Inputs> kinds = {Inputs::random}) {
  const Kernel attached = attached_kernel(shared, problem);
  const Kernel baked = baked_kernel(problem, shared.target, config);
  return std::ranges::all_of(launches, [&](const SddmmLaunch& launch) {
    return std::ranges::all_of(kinds, [&](Inputs kind) {
      const SddmmInputs inputs = make_inputs(Sddmm(problem), launch, kind, 5);
      CAPTURE(launch.n);
      CAPTURE(static_cast<int>(kind));
      const bool same =
          bytes_of(launched(attached, problem, inputs)) == bytes_of(launched(baked, problem, inputs));
      CHECK(same);
      return same;
    });
  });
}

Target host(std::int32_t workers) { return {Target::Kind::cpu, host_level(), workers}; }

TEST_CASE(
    "an attached product has the bits of the baked one on awkward layouts, in every form of the loops") {
  constexpr std::array<BlockShape, 5> kBlocks = {{{32, 32}, {16, 8}, {8, 32}, {8, 8}, {64, 16}}};
  const std::vector<Layout> layouts = awkward_layouts();
  std::size_t turn = 0;
  for (const Operation operation : kProducts)
    for (const DType dtype : kTypes)
      for (const std::int32_t tile_n : {1, 2, 4, 16, 32}) {
        const BlockShape block = kBlocks[turn % kBlocks.size()];
        const std::int32_t workers = std::array{2, 1, 7}[turn % 3];
        const Config config = vector_config(tile_n, turn % 4 == 3 ? 4 : 1);
        Problem problem = product_of(another_layout(), block, 70, dtype, dtype, operation);
        const Binary shared = shared_binary(problem, host(workers), config);
        for (std::size_t i = 0; i < 3; ++i) {
          problem.layout = layouts[turn++ % layouts.size()];
          CAPTURE(name(operation));
          CAPTURE(name(dtype));
          CAPTURE(to_string(config));
          CAPTURE(to_string(block));
          CAPTURE(problem.layout.rows());
          CAPTURE(problem.layout.cols());
          CHECK(same_product(shared, problem, config, {1, 19, 70}));
        }
      }
}

TEST_CASE("one attached code is right on every awkward layout") {
  for (const Operation operation : kProducts)
    for (const std::int32_t tile_n : {1, 16}) {
      Problem problem = product_of(another_layout(), {16, 32}, 20, DType::f32, DType::f32, operation);
      const Binary shared = shared_binary(problem, host(2), vector_config(tile_n, 2));
      CHECK(shared.lacks_layout());
      for (const Layout& layout : awkward_layouts()) {
        problem.layout = layout;
        const Kernel kernel = attached_kernel(shared, problem);
        const HostInputs inputs = make_inputs(problem, 20, Inputs::small_integers, 2);
        PoisonedOutput output(problem, inputs.n);
        ResidentSpmm operands(kernel, problem, sparsekiln::open_device("cpu"), inputs, output);
        kernel(operands[0]);
        operands.fetch(output);
        const CheckResult check_result = check(problem, inputs, output, Adder::float32);
        CHECK_MESSAGE(check_result.ok, check_result.first_failure);
      }
    }
}

TEST_CASE("an attached gradient of the input has the bits of the baked one over several windows") {
  for (const std::int32_t split : {1, 4})
    for (const std::int32_t tile_n : {32, 48, 64}) {
      Problem problem =
          product_of(another_layout(), {32, 32}, 70, DType::f32, DType::f32, Operation::grad_input);
      const Config config = vector_config(tile_n, split);
      const Binary shared = shared_binary(problem, host(2), config);
      problem.layout = patterns::random(40, 24, 0.6, 5);
      CAPTURE(to_string(config));
      CHECK(same_product(shared, problem, config, {5, 70}));
    }
}

TEST_CASE(
    "an attached product takes every epilogue, derivative, block scale and order that the baked one does") {
  struct Form {
    Epilogue epilogue;
    Activation derivative = Activation::none;
    bool block_scales = false;
    ActivationOrder order = ActivationOrder::batch_major;
    bool packed = false;
    Operation operation = Operation::forward;
  };
  const std::vector<Form> forms = {
      {.epilogue = {.bias = true, .activation = Activation::gelu}},
      {.epilogue = {.scale = true, .residual = true}},
      {.epilogue = {.bias = true, .activation = Activation::silu, .glu = true}},
      {.epilogue = {}, .block_scales = true},
      {.epilogue = {}, .block_scales = true, .operation = Operation::grad_input},
      {.epilogue = {}, .derivative = Activation::relu, .operation = Operation::grad_input},
      {.epilogue = {.bias = true}, .order = ActivationOrder::feature_major},
      {.epilogue = {}, .packed = true},
  };
  for (const DType dtype : kTypes)
    for (const Form& form : forms)
      for (const std::int32_t tile_n : {1, 16}) {
        Problem problem = product_of(another_layout(), {16, 16}, 33, dtype, dtype);
        problem.epilogue = form.epilogue;
        problem.derivative = form.derivative;
        problem.block_scales = form.block_scales;
        problem.order = form.order;
        problem.operation = form.operation;
        Config config = vector_config(tile_n, 2);
        config.packed = form.packed;
        const Binary shared = shared_binary(problem, host(2), config);
        problem.layout = patterns::random(6, 24, 0.6, 5);
        CAPTURE(to_string(form.epilogue));
        CAPTURE(to_string(config));
        CHECK(same_product(shared, problem, config, {33}));
      }
}

TEST_CASE("an attached gradient of the weight has the bits of the baked one on awkward layouts") {
  constexpr std::array<BlockShape, 4> kBlocks = {{{32, 32}, {16, 8}, {8, 64}, {128, 32}}};
  const std::vector<Layout> layouts = awkward_layouts();
  std::size_t turn = 0;
  for (const DType dtype : kTypes)
    for (const std::int32_t stages : {kEachForItself, kPackedOnce})
      for (const bool ends : {false, true}) {
        const BlockShape block = kBlocks[turn % kBlocks.size()];
        const Config config = sddmm_config(32, stages, block.in == 8 ? 3 : block.in == 32 ? 2 : 1, 2);
        Problem problem = gradient_of(another_layout(), block, 40, dtype, dtype);
        problem.bias_gradient = ends;
        problem.epilogue.scale = ends && turn % 2 == 0;
        problem.derivative = ends ? Activation::gelu : Activation::none;
        problem.block_scales = ends && turn % 4 < 2;
        problem.block_scale_gradient = problem.block_scales;
        const Binary shared = shared_binary(problem, host(std::array{2, 1, 7}[turn % 3]), config);
        for (std::size_t i = 0; i < 4; ++i) {
          problem.layout = layouts[turn++ % layouts.size()];
          CAPTURE(name(dtype));
          CAPTURE(to_string(config));
          CAPTURE(to_string(block));
          CAPTURE(problem.layout.rows());
          CAPTURE(problem.layout.cols());
          CHECK(same_gradient(
              shared, problem, config,
              {{.n = 0, .padding = 8}, {.n = 1, .padding = 8}, {.n = 37, .pairs = 2, .padding = 8}}));
        }
      }
}

TEST_CASE("attached kernels have the bits of baked ones on every level of this host") {
  for (const std::string& level : runnable_levels())
    for (const Operation operation : kOperations)
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const bool gradient = operation == Operation::grad_weight;
        Problem problem = product_of(another_layout(), {16, 16}, 33, dtype, dtype, operation);
        const Config config = gradient ? sddmm_config(32, kEachForItself, 2) : vector_config(16, 2);
        const Binary shared = shared_binary(problem, {Target::Kind::cpu, level, 2}, config);
        problem.layout = patterns::random(9, 14, 0.6, 3);
        CAPTURE(level);
        CAPTURE(name(operation));
        CAPTURE(name(dtype));
        CHECK((gradient ? same_gradient(shared, problem, config, {{.n = 1}, {.n = 33}})
                        : same_product(shared, problem, config, {1, 33})));
      }
}

TEST_CASE("attached layouts are cut anywhere within their last blocks, with one code") {
  constexpr std::array<BlockShape, 3> kBlocks = {{{32, 16}, {8, 32}, {16, 8}}};
  std::size_t turn = 0;
  for (const Operation operation : kOperations)
    for (const DType dtype : kTypes)
      for (const std::int32_t tile_n : {1, 16}) {
        const BlockShape block = kBlocks[turn++ % kBlocks.size()];
        const bool gradient = operation == Operation::grad_weight;
        Problem problem = product_of(another_layout(), block, 33, dtype, dtype, operation);
        problem.bias_gradient = gradient;
        problem.cut_in_features = turn % 3 != 1 ? 1 : 0;  // which are cut; where comes below
        problem.cut_out_features = turn % 3 != 2 ? 1 : 0;
        const Config config = gradient ? sddmm_config(32, tile_n == 1 ? kEachForItself : kPackedOnce)
                                       : vector_config(tile_n, 2);
        const Binary shared = shared_binary(problem, host(2), config);
        for (const std::int32_t missing : {1, 3, 7}) {
          problem.layout = patterns::random(5 + missing, 9, 0.5, turn);
          const auto cut = [&](std::int64_t& features, std::int32_t blocks, std::int32_t side) {
            if (features != 0) features = std::int64_t{blocks} * side - missing;
          };
          cut(problem.cut_in_features, problem.layout.cols(), block.in);
          cut(problem.cut_out_features, problem.layout.rows(), block.out);
          CAPTURE(name(operation));
          CAPTURE(name(dtype));
          CAPTURE(to_string(config));
          CAPTURE(missing);
          CHECK((gradient ? same_gradient(shared, problem, config, {{.n = 1}, {.n = 33}})
                          : same_product(shared, problem, config, {1, 33})));
        }
      }
}

TEST_CASE("an attached gradient is stored past the caches, and rounded by multiply-adds, where it is much") {
  for (const DType dtype : kTypes)
    for (const std::int32_t stages : {kEachForItself, kPackedOnce}) {
      const Config config = sddmm_config(64, stages, 1, 1);
      Problem problem = gradient_of(another_layout(), {32, 32}, 20, dtype, dtype);
      const Binary shared = shared_binary(problem, host(2), config);
      for (const Layout& layout : {patterns::random(100, 100, 0.95, 1), patterns::random(40, 1, 0.5, 2)}) {
        problem.layout = layout;
        CAPTURE(name(dtype));
        CAPTURE(to_string(config));
        CAPTURE(layout.blocks());
        CHECK(same_gradient(shared, problem, config, {{.n = 1}, {.n = 20}},
                            {Inputs::random, Inputs::small_integers}));  // the latter have zeros
      }
    }
}

/// A store of its own, removed with this.
struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "sparsekiln-attached-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::filesystem::filesystem_error("cannot make " + name, {});
    path = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::filesystem::path path;
};

Options attached_options(const Folder& store, Operation operation, Batch batch) {
  Options options;
  options.block = {16, 32};
  options.batch = batch;
  options.operation = operation;
  options.target = host(2).to_string();
  options.specialization = Specialization::attached;
  options.cache_dir = store.path;
  return options;
}

TEST_CASE("a hundred layouts of different sizes share one compile for each operation") {
  const Folder store;
  for (const Operation operation : kOperations) {
    const Options options = attached_options(store, operation, Batch::up_to(64));
    int compiled = 0;
    for (std::uint64_t i = 0; i < 100; ++i) {
      const auto rows = static_cast<std::int64_t>(1 + i % 17);
      const auto cols = static_cast<std::int64_t>(1 + i % 11);
      const Built built =
          build(patterns::random(rows, cols, 0.1 + 0.008 * static_cast<double>(i), i), options);
      compiled += built.from == From::compiled;
      CHECK(!built.binary->lacks_layout());
    }
    CHECK(compiled == 1);
  }
}

TEST_CASE("an attached kernel of a dynamic batch computes every n with the config of its range") {
  const Folder store;
  const Layout layout = patterns::random(7, 9, 0.5, 3);
  for (const Operation operation : kProducts) {
    const Options options = attached_options(store, operation, Batch::up_to(100));
    const Kernel kernel = compile(layout, options);
    CHECK(kernel.tier() == Tier::attached);
    CHECK(kernel.binary().entries.size() > 2);
    Plan baked = kernel.binary().plan;
    for (RangedConfig& range : baked) range.config.table = TableForm::global;
    const Problem problem = make_problem(layout, options);
    const Kernel twin = load(std::make_shared<const Binary>(build_binary(problem, host(2), baked)));
    for (const std::int64_t n : {1, 8, 9, 33, 100}) {
      const HostInputs inputs = make_inputs(problem, n, Inputs::random, 1);
      CHECK(bytes_of_product(kernel, problem, inputs) == bytes_of_product(twin, problem, inputs));
    }
  }
}

TEST_CASE("a kernel on the cpu takes another layout and the first again, and its copies keep theirs") {
  const Folder store;
  const Layout first = patterns::random(6, 9, 0.4, 1);
  for (const Operation operation : kProducts)
    for (const std::int64_t batch : {1, 24}) {
      const Options options = attached_options(store, operation, batch);
      const Kernel kept = compile(first, options);
      Kernel moved = kept;
      for (const Layout& layout : {patterns::random(6, 9, 0.9, 2), patterns::random(6, 9, 0, 3),
                                   patterns::random(6, 9, 0.1, 4), first}) {
        moved.relayout(layout);
        CHECK(moved.binary().operands.blocks == layout.blocks());
        for (const auto& [kernel, of] :
             {std::pair<const Kernel*, const Layout*>{&moved, &layout}, {&kept, &first}}) {
          const Problem problem = make_problem(*of, options);
          const HostInputs inputs = make_inputs(problem, batch, Inputs::random, 1);
          const Kernel fresh = compile(*of, options);
          CHECK(bytes_of_product(*kernel, problem, inputs) == bytes_of_product(fresh, problem, inputs));
        }
      }
      CHECK(moved.binary() == kept.binary());
      CHECK(moved.key() == kept.key());
      CHECK_THROWS_AS(moved.relayout(patterns::random(9, 6, 0.4, 1)), Error);
    }
}

TEST_CASE("a gradient of the weight on the cpu takes another layout") {
  const Folder store;
  const Options options = attached_options(store, Operation::grad_weight, 24);
  Kernel kernel = compile(patterns::random(6, 9, 0.4, 1), options);
  for (const Layout& layout : {patterns::random(6, 9, 0.8, 2), patterns::random(6, 9, 0, 3)}) {
    kernel.relayout(layout);
    check_gradient(kernel, make_problem(layout, options), {.n = 24, .pairs = 2}, Inputs::small_integers);
  }
}

TEST_CASE("a kernel with partial edge blocks keeps its features with another layout, and shares its code") {
  const Folder store;
  Options options = attached_options(store, Operation::forward, 24);
  options.in_features = 9 * 32 - 5;
  options.out_features = 6 * 16 - 3;
  Kernel kernel = compile(patterns::random(6, 9, 0.4, 1), options);
  const Layout second = patterns::random(6, 9, 0.8, 2);
  kernel.relayout(second);
  const Problem problem = make_problem(second, options);
  const HostInputs inputs = make_inputs(problem, 24, Inputs::random, 1);
  options.specialization = Specialization::baked;
  CHECK(bytes_of_product(kernel, problem, inputs) ==
        bytes_of_product(compile(second, options), problem, inputs));
  options.specialization = Specialization::attached;
  options.in_features = 2 * 32 - 9;
  options.out_features = 3 * 16 - 1;
  CHECK(build(patterns::random(3, 2, 0.9, 3), options).from == From::store);
  options.out_features = 0;  // whole blocks are other code
  CHECK(build(patterns::random(3, 2, 0.9, 3), options).from == From::compiled);
}

TEST_CASE("an attached kernel outlives its byte form") {
  Problem problem = product_of(another_layout(), {16, 16}, 20);
  const Config config = vector_config(16);
  const Binary shared = shared_binary(problem, host(2), config);
  CHECK(deserialize(serialize(shared)) == shared);
  CHECK_THROWS_AS((void)load(std::make_shared<const Binary>(shared)), Error);
  problem.layout = patterns::random(7, 9, 0.5, 3);
  const Binary whole = attach(problem.layout, shared);
  const Kernel kernel = load(std::make_shared<const Binary>(deserialize(serialize(whole))));
  const HostInputs inputs = make_inputs(problem, 20, Inputs::random, 1);
  CHECK(bytes_of_product(kernel, problem, inputs) ==
        bytes_of_product(baked_kernel(problem, host(2), config), problem, inputs));
}

}  // namespace
}  // namespace sparsekiln::cpu

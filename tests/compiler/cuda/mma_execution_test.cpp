// Runs emitted tensor-core kernels on this machine (see host_cuda.h), on integers for which every sum is
// exact.

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "compiler/element.h"
#include "tests/compiler/cuda/host_cuda.h"
#include "tests/compiler/cuda/mma_cases.h"

namespace sparsekiln::cuda {
namespace {

/// An array of elements of any type.
class Elements {
 public:
  Elements(DType type, std::size_t count) : type_(type), bytes_(count * size_of(type) + 16) {}
  [[nodiscard]] void* data() {  // 16-byte aligned, as vectors of bytes are
    return bytes_.data();
  }
  [[nodiscard]] float at(std::int64_t i) const { return to_float(type_, bytes_.data(), i); }
  void set(std::int64_t i, float value) { store(type_, value, bytes_.data(), i); }
  void poison() { std::memset(bytes_.data(), 0xff, bytes_.size()); }

 private:
  DType type_;
  std::vector<std::byte> bytes_;
};

/// Activations, rows of one batch row each, or of one feature, `stride` elements apart.
struct Rows {
  const Elements& elements;
  std::int64_t stride;
  bool feature_major;

  [[nodiscard]] std::int64_t place(std::int64_t n, std::int64_t feature) const {
    return feature_major ? feature * stride + n : n * stride + feature;
  }
  [[nodiscard]] float at(std::int64_t n, std::int64_t feature) const {
    return elements.at(place(n, feature));
  }
};

/// Elements of y that are not the exact sum rounded once, and those beyond its rows that are no longer
/// poison.
std::int64_t wrong_elements(const Problem& problem, const Rows& x, const Elements& w, const Rows& y,
                            std::int64_t n) {
  const Spmm product = problem;
  const auto [out, in] = product.block;
  std::int64_t wrong = 0;
  const std::int64_t features = y.feature_major ? product.out_features() : y.stride;
  for (std::int64_t row = 0; row < (y.feature_major ? y.stride : n); ++row)
    for (std::int64_t o = 0; o < features; ++o) {
      const float got = y.at(row, o);
      if (o >= product.out_features() || row >= n) {
        wrong += !std::isnan(got);
        continue;
      }
      float sum = 0;
      const auto block_row = static_cast<std::int32_t>(o / out);
      std::int32_t number = product.layout.crow()[static_cast<std::size_t>(block_row)];
      for (const std::int32_t column : product.layout.row(block_row)) {
        const std::int64_t block = product.block_of_weight(number++);
        for (std::int64_t k = 0; k < in; ++k)
          sum += x.at(row, column * in + k) * w.at(product.by_columns() ? (block * in + k) * out + o % out
                                                                        : (block * out + o % out) * in + k);
      }
      float rounded = 0;
      store(problem.out_dtype, sum, &rounded, 0);
      wrong += got != to_float(problem.out_dtype, &rounded, 0);
    }
  return wrong;
}

/// Runs a kernel for several n, one after the other on one workspace, with asynchronous copies that land
/// late and early, and compares every element.
void check_kernel(const Problem& problem, const Target& target, const Config& config,
                  std::initializer_list<std::int32_t> batches, std::int32_t max_grid_y = 65535) {
  CAPTURE(to_string(problem.block));
  CAPTURE(to_string(config));
  CAPTURE(name(problem.dtype));
  CAPTURE(name(problem.out_dtype));
  const Source source = emit_plan(problem, target, {{problem.batch.bound(), config}});
  const HostModule module(source);
  const Entry& entry = source.entries.front();
  std::mt19937 random(11);
  const auto integer = [&] { return static_cast<float>(static_cast<std::int32_t>(random() % 7) - 3); };
  const auto [out, in] = problem.block;
  const std::int64_t weights = problem.layout.blocks() * out * in;
  Elements w(problem.dtype, static_cast<std::size_t>(weights));
  for (std::int64_t i = 0; i < weights; ++i) w.set(i, integer());
  std::vector<std::byte> workspace(static_cast<std::size_t>(entry.workspace_bytes(problem.batch.bound())));

  for (const std::int32_t n : batches) {
    CAPTURE(n);
    const Spmm product = problem;
    const bool feature_major = product.feature_major();
    const std::int64_t whole_n = (n + 7) / 8 * 8;  // rows begin at multiples of 16 bytes
    const std::int64_t gap =
        std::max<std::int64_t>(8, 16 / static_cast<std::int64_t>(size_of(problem.dtype)));
    const std::int64_t x_stride = (feature_major ? whole_n : product.in_features()) + gap;
    const std::int64_t y_stride = (feature_major ? whole_n : product.out_features()) + 16;
    Elements x(problem.dtype,
               static_cast<std::size_t>((feature_major ? product.in_features() : n) * x_stride));
    Elements y(problem.out_dtype,
               static_cast<std::size_t>((feature_major ? product.out_features() : n) * y_stride));
    x.poison();
    const Rows of_x{x, x_stride, feature_major};
    for (std::int64_t row = 0; row < n; ++row)
      for (std::int64_t k = 0; k < product.in_features(); ++k) x.set(of_x.place(row, k), integer());
    const HostModule::Arguments arguments{x.data(), w.data(), y.data(), workspace.data(),
                                          n,        x_stride, y_stride};
    for (const HostModule::Copies copies : {HostModule::Copies::late, HostModule::Copies::early}) {
      y.poison();
      REQUIRE(module.run(entry, arguments, static_cast<unsigned>(n), copies, max_grid_y) == "");
      CHECK(wrong_elements(problem, of_x, w, {y, y_stride, feature_major}, n) == 0);
    }
  }
}

const Target kA100{Target::Kind::cuda, "sm_80", 6};

TEST_CASE("tensor-core kernels with x as A are exact for every type") {
  for (const Types types : {kHalf, kBrain, kTf32, kHalfToFloat, kI8})
    check_kernel(mma_problem({32, 32}, 40, types), kA100, mma_config(32, OperandA::x, 3, 4), {40, 1, 17});
}

TEST_CASE("tensor-core kernels with W as A are exact for every type") {
  for (const Types types : {kHalf, kBrain, kTf32, kHalfToFloat, kI8})
    check_kernel(mma_problem({32, 32}, 40, types), kA100, mma_config(24, OperandA::w, 3, 2), {40, 1, 23});
}

TEST_CASE(
    "tensor-core kernels of 8-bit types are exact for blocks of which several, or a part, fill a stage") {
  const Target target{Target::Kind::cuda, "sm_89", 6};
  for (const Types types : {kI8, kE4m3, kE5m2})
    for (const BlockShape block : {BlockShape{8, 16}, {16, 32}, {8, 128}})
      check_kernel(mma_problem(block, 20, types), target, mma_config(16, OperandA::x, 2, 1), {20, 9});
}

TEST_CASE("tensor-core kernels are exact for blocks of which several, or a part, fill a stage") {
  for (const BlockShape block : {BlockShape{8, 8}, {16, 8}, {8, 16}, {64, 16}, {16, 64}, {8, 128}, {32, 128}})
    check_kernel(mma_problem(block, 20, kHalf), kA100, mma_config(16, OperandA::x, 2, 1), {20, 9});
  for (const BlockShape block : {BlockShape{8, 8}, {32, 128}})
    check_kernel(mma_problem(block, 20, kTf32), kA100, mma_config(16, OperandA::x, 2, 1), {20, 9});
}

TEST_CASE("tensor-core kernels that read blocks by columns are exact for every type") {
  const auto check = [](BlockShape block, Types types, const Config& config) {
    Problem problem = mma_problem(block, 33, types);
    problem.operation = Operation::grad_input;
    check_kernel(problem, kA100, config, {33, 9});
  };
  check({32, 32}, kHalf, mma_config(32, OperandA::x, 3, 4));
  check({16, 64}, kHalfToFloat, mma_config(24, OperandA::w, 3, 1));
  check({64, 16}, kBrain, mma_config(16, OperandA::w, 2, 1));
  check({8, 128}, kTf32, mma_config(32, OperandA::x, 2, 4));
  check({8, 16}, kTf32, mma_config(16, OperandA::w, 2, 1));
  check({16, 8}, kBrain, mma_config(48, OperandA::x, 2, 3));
}

TEST_CASE("feature-major tensor-core kernels are exact for every type, by rows and by columns") {
  const auto check = [](BlockShape block, Types types, Operation operation, const Config& config,
                        const Target& target = kA100) {
    Problem problem = mma_problem(block, 49, types);
    problem.operation = operation;
    problem.order = ActivationOrder::feature_major;
    check_kernel(problem, target, config, {49, 3});
  };
  check({32, 32}, kHalf, Operation::forward, mma_config(32, OperandA::x, 3, 4));
  check({16, 16}, kBrain, Operation::grad_input, mma_config(16, OperandA::w, 3, 1));
  check({16, 16}, kTf32, Operation::forward, mma_config(16, OperandA::w, 3, 1));
  check({8, 8}, kTf32, Operation::grad_input, mma_config(64, OperandA::x, 2, 1));
  check({128, 32}, kHalfToFloat, Operation::grad_input, mma_config(64, OperandA::x, 2, 8));
  check({64, 32}, kHalf, Operation::forward, mma_config(32, OperandA::x, 2, 2),
        {Target::Kind::cuda, "sm_75", 6});
}

TEST_CASE("feature-major tensor-core kernels are exact where a tile's batch rows are no power of two") {
  for (const auto& [tile_n, operand_a] : {std::pair{24, OperandA::w}, {48, OperandA::x}}) {
    Problem problem = mma_problem({32, 64}, 40, kHalf);
    problem.order = ActivationOrder::feature_major;
    check_kernel(problem, kA100, mma_config(tile_n, operand_a, 3, 1), {40, 23});
  }
}

TEST_CASE("tensor-core kernels are exact for any number of stages") {
  for (const std::int32_t stages : {1, 4})
    for (const OperandA operand_a : {OperandA::x, OperandA::w})
      check_kernel(mma_problem({16, 16}, 33, kHalf), kA100, mma_config(16, operand_a, stages, 2), {33, 16});
}

TEST_CASE("tensor-core kernels are exact for any grid of warps") {
  for (const std::int32_t outputs : {16, 32, 64})
    for (const OperandA operand_a : {OperandA::x, OperandA::w}) {
      Config config = mma_config(32, operand_a, 2, 64 / outputs);
      config.tile_out = outputs;
      check_kernel(mma_problem({64, 32}, 33, outputs == 32 ? kHalfToFloat : kHalf), kA100, config, {33});
    }
  check_kernel(mma_problem({16, 32}, 48, kHalf), kA100, mma_config(48, OperandA::x, 2, 3), {48});
}

TEST_CASE("f16 kernels are exact through registers where there is no asynchronous copy") {
  const Target turing{Target::Kind::cuda, "sm_75", 6};
  for (const std::int32_t stages : {1, 2})
    for (const BlockShape block : {BlockShape{8, 8}, {32, 32}, {16, 128}})
      check_kernel(mma_problem(block, 33, kHalf), turing, mma_config(16, OperandA::x, stages, 1), {33, 7});
}

TEST_CASE("tensor-core kernels are exact where rows are split, whatever batch came before") {
  for (const Types types : {kHalf, kBrain, kTf32}) {
    Config config = mma_config(16, types.dtype == DType::bf16 ? OperandA::w : OperandA::x, 3, 1);
    config.split = 3;
    const Problem problem = mma_problem({16, 32}, Batch::up_to(50), types);
    REQUIRE(make_schedule(problem, kA100, config, 50).counters > 0);
    check_kernel(problem, kA100, config, {50, 1, 33, 50, 17});
  }
}

TEST_CASE("a grid that is lower than the batch tiles still computes all of them, on tensor cores too") {
  const auto check_low = [](Types types, const Target& target, OperandA operand_a, std::int32_t stages) {
    check_kernel(mma_problem({16, 32}, Batch::up_to(70), types), target, mma_config(16, operand_a, stages, 1),
                 {70, 33}, 2);
  };
  check_low(kHalf, kA100, OperandA::x, 1);
  check_low(kBrain, kA100, OperandA::w, 2);
  check_low(kTf32, kA100, OperandA::x, 4);
  check_low(kHalf, {Target::Kind::cuda, "sm_75", 6}, OperandA::x, 2);
}

}  // namespace
}  // namespace sparsekiln::cuda

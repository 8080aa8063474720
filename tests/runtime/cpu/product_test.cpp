#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "compiler/cpu/level.h"
#include "compiler/cpu/packed_weight.h"
#include "compiler/cpu/passes.h"
#include "tests/runtime/cpu/product_fixture.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::array<std::int64_t, 13> kBatches = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100};

constexpr std::array kOperations = {Operation::forward, Operation::grad_input};
constexpr std::array kOperands = {DType::f32, DType::bf16, DType::f16};
/// The types of x and W, and of y.
constexpr std::array kTypes = {std::pair{DType::f32, DType::f32}, std::pair{DType::bf16, DType::f32},
                               std::pair{DType::bf16, DType::bf16}, std::pair{DType::f16, DType::f32},
                               std::pair{DType::f16, DType::f16}};

/// A layout whose only row of outputs, of either operation, has `length` blocks.
Layout one_row(Operation operation, int length) {
  std::string text;
  for (int i = 0; i < length; ++i) text += i > 0 && operation == Operation::grad_input ? "/1" : "1";
  return grid(text);
}

/// Empty first, middle and last rows, an empty column, a full row, a row of one block.
const char* const kAwkward = "000000/101101/000000/111111/000001/010100/000000";

/// Emitted for `target`, compiled for `assembled`.
void check_exact(const Problem& problem, const Target& target, const Config& config, const Target& assembled,
                 std::span<const std::int64_t> batches) {
  const auto binary = build_for(problem, target, config, assembled);
  const auto module = open_device()->load(binary);
  for (const std::int64_t n : batches) {
    Operands operands(problem, n, static_cast<std::uint32_t>(n));
    run(*module, *binary, operands);
    CAPTURE(target.to_string());
    CAPTURE(name(problem.operation));
    CAPTURE(name(problem.dtype));
    CAPTURE(to_string(problem.block));
    CAPTURE(to_string(config));
    CAPTURE(n);
    CHECK(wrong_elements(problem, operands) == 0);
  }
}

void check_exact(const Problem& problem, const Target& target, const Config& config,
                 std::span<const std::int64_t> batches) {
  check_exact(problem, target, config, target, batches);
}

TEST_CASE("every block shape and batch size is exact on small integers") {
  constexpr std::array<std::int32_t, 5> kSides = {8, 16, 32, 64, 128};
  const std::string level = runnable_levels()[runnable_levels().size() - 2];
  std::size_t turn = 0;
  for (const Operation operation : kOperations)
    for (const std::int32_t out : kSides)
      for (const std::int32_t in : kSides) {
        const DType dtype = kOperands[turn % kOperands.size()];
        check_exact(product_of(grid("0110/1001/0000/1111"), {out, in}, 128, dtype, DType::f32, operation),
                    {Target::Kind::cpu, level, 2}, vector_config(turn++ % 2 == 0 ? 32 : 16), kBatches);
      }
}

/// Every level, operation and pair of types with every block, each with one of the tiles in turn: every tile
/// with all of a level, of an operation, of a pair of types and of a block.
void check_levels(std::span<const BlockShape> blocks, std::array<std::int32_t, 3> tiles,
                  std::span<const std::int64_t> batches) {
  std::size_t turn = 0;
  for (const std::string& level : runnable_levels())
    for (const Operation operation : kOperations)
      for (const auto& [dtype, out_dtype] : kTypes) {
        for (std::size_t i = 0; i < blocks.size(); ++i)
          check_exact(product_of(grid(kAwkward), blocks[i], 128, dtype, out_dtype, operation),
                      {Target::Kind::cpu, level, 2}, vector_config(tiles[(turn + i) % tiles.size()]),
                      batches);
        ++turn;
      }
}

TEST_CASE("every level and type of this host is exact on awkward layouts") {
  check_levels(std::array<BlockShape, 3>{{{8, 8}, {16, 32}, {32, 16}}}, {16, 48, 64},
               std::array<std::int64_t, 2>{1, 100});
}

TEST_CASE("what is emitted for AVX-512 is exact, assembled for the vectors that this host has") {
  const Target emitted{Target::Kind::cpu, "x86-64-v4", 8};
  const Target assembled{Target::Kind::cpu, host_level(), 8};
  for (const Operation operation : kOperations)
    for (const DType dtype : kOperands)
      for (const BlockShape block : {BlockShape{8, 8}, {16, 32}, {32, 16}, {128, 64}})
        for (const std::int32_t tile_n : {16, 32, 48})
          check_exact(product_of(grid(kAwkward), block, 128, dtype, DType::f32, operation), emitted,
                      vector_config(tile_n), assembled, std::array<std::int64_t, 3>{1, 17, 100});
}

TEST_CASE("tiles of few batch rows are exact on every level and type of this host, whatever the batch") {
  check_levels(std::array<BlockShape, 5>{{{8, 8}, {8, 64}, {16, 32}, {64, 8}, {128, 128}}}, {1, 2, 4},
               std::array<std::int64_t, 4>{1, 2, 5, 9});
}

TEST_CASE("tiles of few batch rows for AVX-512 are exact, assembled for the vectors that this host has") {
  for (const Operation operation : kOperations)
    for (const DType dtype : kOperands)
      for (const BlockShape block : {BlockShape{8, 8}, {16, 16}, {32, 32}})
        for (const std::int32_t tile_n : {1, 2, 4})
          check_exact(product_of(grid(kAwkward), block, 16, dtype, DType::f32, operation),
                      {Target::Kind::cpu, "x86-64-v4", 2}, vector_config(tile_n),
                      {Target::Kind::cpu, host_level(), 2}, std::array<std::int64_t, 3>{1, 3, 16});
}

TEST_CASE("rows split between workers are combined exactly in tiles of few batch rows") {
  const Target target{Target::Kind::cpu, host_level(), 8};
  for (const Operation operation : kOperations)
    for (const DType dtype : kOperands)
      for (const BlockShape block : {BlockShape{8, 8}, {64, 16}}) {
        const Problem problem = product_of(one_row(operation, 32), block, 16, dtype, DType::f32, operation);
        for (const std::int32_t tile_n : {1, 2, 4}) {
          CHECK(make_schedule(problem, target, vector_config(tile_n, 4), 1).counters > 0);
          check_exact(problem, target, vector_config(tile_n, 4), std::array<std::int64_t, 3>{1, 3, 16});
        }
      }
}

/// Runs a binary that reads the weight packed, and leaves the operands as they were but for y.
void run_packed(const std::shared_ptr<const Binary>& binary, const Problem& problem, const Target& target,
                const Config& config, Operands& operands) {
  const auto module = open_device()->load(binary);
  Values packed(problem.dtype, operands.w.size());
  pack_weight(problem.layout.blocks(), problem.block, problem.dtype,
              register_tile(level_of(target), problem.block.out, problem.dtype, config), operands.w.data(),
              packed.data());
  Launch launch = operands.launch(module->workspace(nullptr, binary->entries[0].workspace_bytes(operands.n)));
  launch.w = packed.data();
  module->launch(0, launch);
}

TEST_CASE("packed blocks of 16 outputs are exact on every level of this host, whatever the batch") {
  for (const std::string& level : runnable_levels())
    for (const std::int32_t in : {8, 16, 64, 128})
      for (const std::int32_t tile_n : {16, 32, 48, 128})
        for (const DType out_dtype : {DType::f32, DType::bf16}) {
          Config config = vector_config(tile_n);
          config.packed = true;
          const DType dtype = out_dtype;  // along outputs for f32, and the other form beside it
          const Problem problem = product_of(grid(kAwkward), {16, in}, 128, dtype, out_dtype);
          const Target target{Target::Kind::cpu, level, 2};
          const auto binary = build_for(problem, target, config);
          for (const std::int64_t n : kBatches) {
            Operands operands(problem, n, static_cast<std::uint32_t>(n));
            run_packed(binary, problem, target, config, operands);
            CAPTURE(level);
            CAPTURE(in);
            CAPTURE(tile_n);
            CAPTURE(n);
            CHECK(wrong_elements(problem, operands) == 0);
          }
        }
}

TEST_CASE("rows split between workers are combined exactly along outputs") {
  const Problem problem = product_of(grid("11111111111111111111111111111111"), {16, 16}, 64);
  const Target target{Target::Kind::cpu, host_level(), 8};
  Config config = vector_config(32, 4);
  config.packed = true;
  CHECK(make_schedule(problem, target, config, 1).counters > 0);
  const auto binary = build_for(problem, target, config);
  for (const std::int64_t n : {1, 31, 64}) {
    Operands operands(problem, n, 4);
    run_packed(binary, problem, target, config, operands);
    CHECK(wrong_elements(problem, operands) == 0);
  }
}

TEST_CASE("vectors of outputs and vectors of batch rows give the same bits") {
  const Problem problem = product_of(grid(kAwkward), {16, 32}, 64);
  const Target target{Target::Kind::cpu, host_level(), 1};
  Operands operands(problem, 37, 9);
  std::minstd_rand random(3);
  const auto draw = [&] { return static_cast<float>(random()) / 1e9F - 1.0F; };
  for (std::size_t i = 0; i < operands.x.size(); ++i) operands.x.set(i, draw());
  for (std::size_t i = 0; i < operands.w.size(); ++i) operands.w.set(i, draw());
  const auto results = [&](std::int32_t tile_out) {
    Config config = vector_config(32);
    config.packed = true;
    config.tile_out = tile_out;
    run_packed(build_for(problem, target, config), problem, target, config, operands);
    return std::vector<std::byte>(operands.y.data(), operands.y.data() + operands.y.size() * 4);
  };
  CHECK(results(0) == results(3));
}

TEST_CASE("a batch tile with one worker packs x by itself, and has one pass") {
  const Problem problem = product_of(grid(kAwkward), {8, 16}, 128);
  const Target one{Target::Kind::cpu, host_level(), 1};
  const std::int32_t lanes = level_of(one).lanes;
  for (const std::int32_t tile_n : {lanes, 2 * lanes, 4 * lanes}) {
    CHECK(build_for(problem, one, vector_config(tile_n))->entries[0].passes.size() == 1);
    check_exact(problem, one, vector_config(tile_n), kBatches);
  }
  const Target many{Target::Kind::cpu, host_level(), 64};
  CHECK(build_for(problem, many, vector_config(32, 4))->entries[0].passes.size() == 2);
}

/// The gradient of the input by its definition: each element is one chain of multiply-adds in float32, in the
/// order of W.
std::vector<float> chains(const Problem& problem, Operands& operands) {
  const auto [out, in] = problem.block;
  const std::vector<float> w = operands.w.all();
  const std::vector<float> dy = operands.x.all();
  std::vector<float> dx = operands.y.all();
  for (std::int64_t batch_row = 0; batch_row < operands.n; ++batch_row)
    for (std::int64_t column = 0; column < problem.layout.cols() * in; ++column)
      dx[static_cast<std::size_t>(batch_row * operands.y_stride + column)] = 0;
  for (std::int32_t row = 0; row < problem.layout.rows(); ++row)
    for (std::int32_t b = problem.layout.crow()[static_cast<std::size_t>(row)];
         b < problem.layout.crow()[static_cast<std::size_t>(row) + 1]; ++b)
      for (std::int32_t k = 0; k < out; ++k)
        for (std::int32_t i = 0; i < in; ++i)
          for (std::int64_t batch_row = 0; batch_row < operands.n; ++batch_row) {
            const std::int64_t to =
                batch_row * operands.y_stride + problem.layout.col()[static_cast<std::size_t>(b)] * in + i;
            float& sum = dx[static_cast<std::size_t>(to)];
            sum = std::fma(
                w[(static_cast<std::size_t>(b) * out + k) * in + i],
                dy[static_cast<std::size_t>(batch_row * operands.x_stride + std::int64_t{row} * out + k)],
                sum);
          }
  return dx;
}

TEST_CASE("an element of the gradient of the input is one chain in the order of W, whatever its windows") {
  std::string text;
  for (int row = 0; row < 70; ++row) {
    text += row == 0 ? "" : "/";
    for (int column = 0; column < 48; ++column)
      text += row % 9 != 4 && (row * 7 + column * column) % 3 != 0 ? '1' : '0';
  }
  std::minstd_rand random(5);
  const auto draw = [&] { return static_cast<float>(random()) / 1e9F - 1.0F; };
  for (const BlockShape block : {BlockShape{8, 8}, {16, 16}, {32, 32}, {64, 16}}) {
    const Problem problem = product_of(grid(text), block, 32, DType::f32, DType::f32, Operation::grad_input);
    Operands operands(problem, 32, 9);
    for (std::size_t i = 0; i < operands.x.size(); ++i) operands.x.set(i, draw());
    for (std::size_t i = 0; i < operands.w.size(); ++i) operands.w.set(i, draw());
    const std::vector<float> expected = chains(problem, operands);
    for (const std::string& level : runnable_levels()) {
      CAPTURE(level);
      CAPTURE(to_string(block));
      const Target target{Target::Kind::cpu, level, 1};
      if (!level_of(target).fused) continue;  // rounds products, too
      const Geometry geometry(Spmm(problem), level_of(target), vector_config(32));
      REQUIRE(geometry.group_items > 1);
      const std::int64_t items = std::min(problem.layout.cols(), geometry.group_items);
      REQUIRE(problem.layout.blocks() * items / problem.layout.cols() > geometry.window_steps);
      const auto binary = build_for(problem, target, vector_config(32));
      run(*open_device()->load(binary), *binary, operands);
      CHECK(operands.y.all() == expected);
    }
  }
}

TEST_CASE("rows that wait for their neighbours are written, in whatever order a worker has them") {
  // Lengths that differ make the schedule deal rows out longest first: neighbours go to different workers.
  std::string text;
  for (int row = 0; row < 37; ++row) {
    text += row == 0 ? "" : "/";
    for (int column = 0; column < 24; ++column) text += column <= row * 11 % 23 ? '1' : '0';
  }
  for (const std::int32_t workers : {1, 2, 3, 7})
    for (const BlockShape block : {BlockShape{8, 8}, {16, 8}})
      check_exact(product_of(grid(text), block, 64), {Target::Kind::cpu, host_level(), workers},
                  vector_config(32), std::array<std::int64_t, 3>{1, 33, 64});
}

TEST_CASE("rows longer than a chunk, and than its multiples, are exact") {
  const Target one{Target::Kind::cpu, host_level(), 1};
  for (const int length : {1, 7, 8, 9, 16, 17, 33, 65}) {
    const std::string row(static_cast<std::size_t>(length), '1');
    for (const std::int32_t tile_n : {level_of(one).lanes, 32, 48})
      check_exact(product_of(grid(row + "/" + row), {8, 8}, 64), one, vector_config(tile_n),
                  std::array<std::int64_t, 2>{5, 50});
  }
}

TEST_CASE("rows split between workers are combined exactly, whatever the batch") {
  for (const Operation operation : kOperations) {
    // The point of the case: at least one of them is split.
    const Problem problem =
        product_of(one_row(operation, 32), {32, 32}, 32, DType::f32, DType::f32, operation);
    const Target target{Target::Kind::cpu, host_level(), 8};
    CHECK(make_schedule(problem, target, vector_config(32), 32).counters > 0);
    for (const Layout& layout : {grid("1"), one_row(operation, 32), grid(kAwkward)})
      for (const DType dtype : kOperands)
        for (const BlockShape block : {BlockShape{8, 8}, {32, 32}, {64, 16}})
          check_exact(product_of(layout, block, 128, dtype, DType::f32, operation),
                      {Target::Kind::cpu, host_level(), 64}, vector_config(32),
                      std::array<std::int64_t, 4>{1, 31, 33, 100});
  }
}

TEST_CASE("an empty layout gives zeros") {
  check_exact(product_of(grid("000/000"), {32, 32}, 64), {Target::Kind::cpu, host_level(), 2},
              vector_config(32), kBatches);
}

TEST_CASE("a batch of nothing does nothing") {
  const Problem problem = product_of(grid("11"), {32, 32}, 32);
  const auto binary = build_for(problem, {Target::Kind::cpu, host_level(), 2}, vector_config(32));
  const auto module = open_device()->load(binary);
  module->launch(0, {nullptr, nullptr, nullptr, nullptr, 0, 64, 32});
}

TEST_CASE("NaN and Inf in x reach the outputs that a product of present blocks gives, and no others") {
  const Problem problem = product_of(grid(kAwkward), {16, 32}, 64);
  for (const std::string& level : runnable_levels()) {
    const auto binary = build_for(problem, {Target::Kind::cpu, level, 2}, vector_config(32));
    const auto module = open_device()->load(binary);
    Operands operands(problem, 33, 5);
    for (std::size_t i = 0; i < operands.w.size(); ++i)
      if (operands.w.get(i) == 0) operands.w.set(i, 1);
    operands.x.set(0, std::numeric_limits<float>::infinity());
    operands.x.set(static_cast<std::size_t>(3 * operands.x_stride + 40),
                   std::numeric_limits<float>::quiet_NaN());
    operands.x.set(static_cast<std::size_t>(32 * operands.x_stride + 191),
                   -std::numeric_limits<float>::infinity());
    run(*module, *binary, operands);
    CHECK(wrong_elements(problem, operands) == 0);
  }
}

TEST_CASE("random inputs stay within the bound of a chain of k roundings") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Problem problem = product_of(grid(kAwkward), {32, 32}, 64, dtype);
    const auto binary = build_for(problem, {Target::Kind::cpu, host_level(), 2}, vector_config(32));
    const auto module = open_device()->load(binary);
    Operands operands(problem, 64, 9);
    std::minstd_rand random(3);
    const auto draw = [&] { return static_cast<float>(random()) / 1e9F - 1.0F; };
    for (std::size_t i = 0; i < operands.x.size(); ++i) operands.x.set(i, draw());
    for (std::size_t i = 0; i < operands.w.size(); ++i) operands.w.set(i, draw());
    run(*module, *binary, operands);
    const std::vector<double> expected = reference(problem, operands);
    double worst = 0;
    for (std::int64_t batch_row = 0; batch_row < 64; ++batch_row)
      for (std::int64_t o = 0; o < problem.out_features(); ++o)
        worst = std::max(
            worst, std::abs(expected[static_cast<std::size_t>(batch_row * problem.out_features() + o)] -
                            operands.y.get(static_cast<std::size_t>(batch_row * operands.y_stride + o))));
    CHECK(worst > 0);  // they are rounded, so an exact result would mean nothing was compared
    CHECK(worst < 2e-4);
  }
}

/// Two products, whose sum a pass rounds to what it stores.
using Sum = std::pair<float, float>;

std::vector<float> stored(const std::string& level, std::int32_t tile_n, DType dtype,
                          const std::array<Sum, 8>& sums) {
  const Problem problem = product_of(grid("1"), {8, 8}, 16, dtype, dtype);
  const auto binary = build_for(problem, {Target::Kind::cpu, level, 1}, vector_config(tile_n));
  const auto module = open_device()->load(binary);
  Operands operands(problem, 1, 1);
  for (std::size_t i = 0; i < operands.w.size(); ++i) operands.w.set(i, 0);
  for (std::size_t i = 0; i < 8; ++i) operands.x.set(i, 1);
  for (std::size_t out = 0; out < sums.size(); ++out) {
    operands.w.set(out * 8, sums[out].first);
    operands.w.set(out * 8 + 1, sums[out].second);
  }
  run(*module, *binary, operands);
  std::vector<float> result = operands.y.all();
  result.resize(sums.size());
  return result;
}

TEST_CASE("results are rounded to nearest even, to infinity beyond the largest, and NaN stays NaN") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  // bf16 has 8 bits: between 256 and 258 lies 257, and the even significand is 256.
  constexpr float kLargest = 0x1.fep127F;
  constexpr std::array<Sum, 8> kBf16 = {
      Sum{256, 1},          {258, 1},  {256, 1.5F}, {-256, -1},
      {kLargest, kLargest}, {kNan, 1}, {-kInf, 1},  {0x1p-125F, -0x1p-126F}};
  const std::vector<float> bf16 = {256, 260, 258, -256, kInf, 0, -kInf, 0x1p-126F};
  // f16 has 11 bits, and below 2^-14 a spacing of 2^-24.
  constexpr std::array<Sum, 8> kF16 = {Sum{2048, 1}, {2050, 1}, {2048, 1.5F},  {-2048, -1},
                                       {65504, 16},  {kNan, 1}, {-65504, -15}, {0x1p-14F, -0x1p-24F}};
  const std::vector<float> f16 = {2048, 2052, 2050, -2048, kInf, 0, -65504, 0x1.ff8p-15F};
  for (const std::string& level : runnable_levels())
    for (const std::int32_t tile_n : {1, 16})
      for (const DType dtype : {DType::bf16, DType::f16}) {
        CAPTURE(level);
        CAPTURE(tile_n);
        CAPTURE(name(dtype));
        std::vector<float> got = stored(level, tile_n, dtype, dtype == DType::bf16 ? kBf16 : kF16);
        CHECK(std::isnan(got[5]));
        got[5] = 0;
        CHECK(got == (dtype == DType::bf16 ? bf16 : f16));
      }
}

TEST_CASE("every f16 is read as it is, on every level") {
  // Each is an output's only product that is not zero.
  std::string text = "1";
  for (std::int32_t row = 1; row < 65536 / 128; ++row) text += "/1";
  const Problem problem = product_of(grid(text), {128, 8}, 16, DType::f16, DType::f32);
  for (const std::string& level : runnable_levels())
    for (const std::int32_t tile_n : {1, 16}) {
      const auto binary = build_for(problem, {Target::Kind::cpu, level, 1}, vector_config(tile_n));
      const auto module = open_device()->load(binary);
      Operands operands(problem, 1, 1);
      for (std::size_t i = 0; i < 8; ++i) operands.x.set(i, i == 0 ? 1.0F : 0.0F);
      for (std::size_t i = 0; i < operands.w.size(); ++i) operands.w.set(i, 0);
      for (std::size_t i = 0; i < 65536; ++i)
        reinterpret_cast<std::uint16_t*>(operands.w.data())[8 * i] = static_cast<std::uint16_t>(i);
      run(*module, *binary, operands);
      std::int64_t wrong = 0;
      for (std::size_t i = 0; i < 65536; ++i) {
        const float want = operands.w.get(8 * i);
        const float got = operands.y.get(i);
        wrong += std::isnan(want) ? !std::isnan(got) : got != want;
      }
      CAPTURE(level);
      CAPTURE(tile_n);
      CHECK(wrong == 0);
    }
}

TEST_CASE("launches are bit-identical whatever the threads") {
  for (const std::int32_t threads : {1, 2, 5}) {
    CAPTURE(threads);
    const Problem problem =
        product_of(grid("11111111111111111111111111111111/00100000000000000000000000000001"), {32, 32}, 64);
    // The schedule is that of five workers for all: only who runs it changes.
    auto binary = std::make_shared<Binary>(
        *build_for(problem, {Target::Kind::cpu, host_level(), 5}, vector_config(32, 2)));
    binary->target.workers = threads;
    const auto module = open_device()->load(binary);
    Operands operands(problem, 64, 2);
    std::minstd_rand random(7);
    for (std::size_t i = 0; i < operands.x.size(); ++i)
      operands.x.set(i, static_cast<float>(random()) / 1e9F - 1.0F);
    for (std::size_t i = 0; i < operands.w.size(); ++i)
      operands.w.set(i, static_cast<float>(random()) / 1e9F - 1.0F);
    static std::vector<std::byte> first;
    const std::size_t bytes = operands.y.size() * 4;
    for (int turn = 0; turn < 20; ++turn) {
      run(*module, *binary, operands);
      if (first.empty()) first.assign(operands.y.data(), operands.y.data() + bytes);
      CHECK(std::memcmp(first.data(), operands.y.data(), bytes) == 0);
    }
  }
}

TEST_CASE("launches from several threads at once do not disturb each other") {
  const Problem problem =
      product_of(grid("11111111111111111111111111111111/01010000000000000000000000001100"), {16, 16}, 128);
  const auto binary = build_for(problem, {Target::Kind::cpu, host_level(), 4}, vector_config(32));
  const auto module = open_device()->load(binary);
  std::array<std::int64_t, 4> wrong{};
  {
    std::vector<std::jthread> callers;
    for (std::size_t caller = 0; caller < wrong.size(); ++caller)
      callers.emplace_back([&, caller] {
        for (std::uint32_t turn = 0; turn < 25; ++turn) {
          Operands operands(problem, static_cast<std::int64_t>(1 + (turn * 13 + caller * 29) % 100), turn);
          run(*module, *binary, operands);
          wrong[caller] += wrong_elements(problem, operands);
        }
      });
  }
  for (const std::int64_t count : wrong) CHECK(count == 0);
}

}  // namespace
}  // namespace sparsekiln::cpu

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>

#include "compiler/cpu/level.h"
#include "compiler/cpu/packed_weight.h"
#include "oracle/poisoned_output.h"
#include "oracle/spmm_check.h"
#include "oracle/spmm_inputs.h"
#include "tests/runtime/cpu/product_fixture.h"

// Everything around a product: epilogues, block scales, derivatives, feature-major activations, ragged edges.

namespace sparsekiln::cpu {
namespace {

/// A copy that ends where memory that cannot be read begins, or less than `alignment` bytes before it.
class GuardedCopy {
 public:
  explicit GuardedCopy(const std::vector<std::byte>& bytes, std::size_t alignment = 16) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    size_ = (bytes.size() / page + 2) * page;
    memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory_ != MAP_FAILED);
    auto* guard = static_cast<std::byte*>(memory_) + size_ - page;
    REQUIRE(mprotect(guard, page, PROT_NONE) == 0);
    data_ = guard - (bytes.size() + alignment - 1) / alignment * alignment;
    if (!bytes.empty()) std::memcpy(data_, bytes.data(), bytes.size());
  }
  GuardedCopy(const GuardedCopy&) = delete;
  GuardedCopy& operator=(const GuardedCopy&) = delete;
  ~GuardedCopy() { munmap(memory_, size_); }
  [[nodiscard]] const void* data() const { return data_; }

 private:
  void* memory_ = nullptr;
  std::size_t size_ = 0;
  std::byte* data_ = nullptr;
};

/// A weight in the order in which a kernel reads it.
std::vector<std::byte> as_read(const Problem& problem, const Binary& binary,
                               const std::vector<std::byte>& weight) {
  const Config& config = binary.plan.front().config;
  if (!config.packed || weight.empty()) return weight;
  std::vector<std::byte> packed(weight.size());
  pack_weight(problem.layout.blocks(), problem.block, problem.dtype,
              register_tile(level_of(binary.target), problem.block.out, problem.dtype, config), weight.data(),
              packed.data());
  return packed;
}

CheckResult run_guarded(const Problem& problem, const Binary& binary, const HostInputs& inputs) {
  const auto module = open_device()->load(std::make_shared<Binary>(binary));
  PoisonedOutput output(problem, inputs.n);
  if (problem.epilogue.scale) output.set(inputs.y);
  const auto alignment = static_cast<std::size_t>(problem.alignment);
  const GuardedCopy x(inputs.x, alignment), z(inputs.of("z").bytes, alignment),
      residual(inputs.of("residual").bytes, alignment), w(as_read(problem, binary, inputs.w)),
      v(as_read(problem, binary, inputs.of("v").bytes)), bias(inputs.of("bias").bytes, 1),
      v_bias(inputs.of("v_bias").bytes, 1), block_scales(inputs.of("block_scales").bytes, 1);
  // y is aligned as little as was promised.
  const auto offset = static_cast<std::size_t>(problem.alignment == 16 ? 0 : problem.alignment);
  std::vector<std::byte> memory(output.image().size() + 64);
  auto aligned = (reinterpret_cast<std::uintptr_t>(memory.data()) + 31) / 32 * 32;
  auto* image = reinterpret_cast<std::byte*>(aligned) + offset;
  std::memcpy(image, output.image().data(), output.image().size());

  Launch launch;
  launch.x = x.data();
  launch.w = w.data();
  launch.y = output.address(image);
  launch.workspace = module->workspace(nullptr, binary.entries[0].workspace_bytes(inputs.n));
  launch.n = inputs.n;
  launch.x_stride = inputs.x_stride;
  launch.y_stride = output.row_stride();
  launch.v = v.data();
  launch.bias = bias.data();
  launch.v_bias = v_bias.data();
  launch.residual = residual.data();
  launch.residual_stride = inputs.of("residual").stride;
  launch.z = z.data();
  launch.z_stride = inputs.of("z").stride;
  launch.block_scales = block_scales.data();
  launch.set_scale(inputs.alpha, inputs.beta);
  module->launch(0, launch);
  std::memcpy(output.image().data(), image, output.image().size());
  return check(problem, inputs, output, adder_of(Spmm(problem), binary.plan));
}

/// Long, short, empty and full rows; the last row and column have blocks.
const char* const kGrid = "0110101/0000000/1111111/0000001/1011001/0100010/1000011";
constexpr std::int32_t kSide = 7;  ///< blocks

constexpr std::array<Epilogue, 4> kEpilogues = {
    Epilogue{}, Epilogue{.scale = true, .bias = true, .activation = Activation::gelu, .residual = true},
    Epilogue{.bias = true, .activation = Activation::silu, .glu = true},
    Epilogue{.scale = true, .activation = Activation::gelu_tanh, .glu = true, .residual = true}};
constexpr std::array<BlockShape, 5> kBlocks = {BlockShape{8, 8}, {16, 8}, {8, 32}, {32, 16}, {64, 64}};
constexpr std::array<std::int64_t, 5> kBatches = {1, 3, 16, 29, 66};
constexpr std::array<std::int32_t, 6> kTiles = {1, 2, 4, 16, 48, 64};
constexpr std::array kTypes = {std::pair{DType::f32, DType::f32}, std::pair{DType::bf16, DType::bf16},
                               std::pair{DType::f16, DType::f32}, std::pair{DType::bf16, DType::f32},
                               std::pair{DType::f16, DType::f16}};

/// Problem number `turn` of a sequence in which most things meet most others.
Problem some_problem(std::size_t turn, Operation operation, ActivationOrder order) {
  const auto& [dtype, out_dtype] = kTypes[turn % kTypes.size()];
  const BlockShape block = kBlocks[(turn / 3) % kBlocks.size()];
  Problem problem = product_of(grid(kGrid), block, 66, dtype, out_dtype, operation);
  problem.order = order;
  problem.block_scales = turn % 3 == 1;
  if (turn % 4 >= 2) {
    problem.cut_in_features = std::int64_t{kSide} * block.in - static_cast<std::int64_t>(1 + turn % 7);
    problem.cut_out_features = std::int64_t{kSide} * block.out - static_cast<std::int64_t>(1 + turn % 5);
  }
  problem.alignment = turn % 2 == 0 ? 16 : static_cast<std::int32_t>(size_of(out_dtype));
  if (operation == Operation::forward)
    problem.epilogue = kEpilogues[(turn / 2) % kEpilogues.size()];
  else
    problem.derivative = static_cast<Activation>((turn / 2) % 5);
  return problem;
}

void check_ends(const std::string& emitted, const std::string& assembled, std::size_t turns) {
  std::size_t turn = 0;
  for (std::size_t i = 0; i < turns; ++i)
    for (const Operation operation : {Operation::forward, Operation::grad_input})
      for (const ActivationOrder order : {ActivationOrder::batch_major, ActivationOrder::feature_major}) {
        ++turn;
        const Problem problem = some_problem(turn, operation, order);
        // Independent of what the problem is: each round of tiles begins with another operation and order.
        const std::int32_t tile_n = kTiles[(turn + turn / kTiles.size()) % kTiles.size()];
        Config config = vector_config(tile_n, turn % 5 == 0 ? 4 : 1);
        const auto workers = static_cast<std::int32_t>(1 + turn / 3 % 4);
        const auto binary = build_for(problem, {Target::Kind::cpu, emitted, workers}, config,
                                      {Target::Kind::cpu, assembled, workers});
        const std::int64_t n = kBatches[turn % kBatches.size()];
        for (const Inputs kind : {Inputs::small_integers, Inputs::random}) {
          const CheckResult check_result = run_guarded(problem, *binary, make_inputs(problem, n, kind, turn));
          CAPTURE(emitted);
          CAPTURE(turn);
          CAPTURE(n);
          CHECK_MESSAGE(check_result.ok, check_result.first_failure);
        }
      }
}

TEST_CASE("products with everything around them are right on every level, and read nothing beyond") {
  for (const std::string& level : runnable_levels()) check_ends(level, level, 8);
}

TEST_CASE("what is emitted around products for AVX-512 is right, assembled for this host's vectors") {
  check_ends("x86-64-v4", host_level(), 8);
}

/// Fewer inputs than blocks have: their weights are copied, and a vector may be longer than a small block.
void check_cut_blocks(const std::string& emitted, const std::string& assembled) {
  for (const Operation operation : {Operation::forward, Operation::grad_input})
    for (const auto& [dtype, out_dtype] : kTypes)
      for (const BlockShape block : {BlockShape{8, 8}, {16, 8}})
        for (const std::int32_t tile_n : {1, 16}) {
          Problem problem = product_of(grid("101/011"), block, 17, dtype, out_dtype, operation);
          problem.cut_in_features = 3 * block.in - 6;
          problem.cut_out_features = 2 * block.out - 2;
          problem.alignment = static_cast<std::int32_t>(size_of(out_dtype));
          const auto binary = build_for(problem, {Target::Kind::cpu, emitted, 2}, vector_config(tile_n),
                                        {Target::Kind::cpu, assembled, 2});
          const CheckResult check_result =
              run_guarded(problem, *binary, make_inputs(problem, 17, Inputs::small_integers, 1));
          CAPTURE(emitted);
          CAPTURE(to_string(block));
          CAPTURE(tile_n);
          CHECK_MESSAGE(check_result.ok, check_result.first_failure);
        }
}

TEST_CASE("partial edge blocks are exact on every level and type of this host") {
  for (const std::string& level : runnable_levels()) check_cut_blocks(level, level);
}

TEST_CASE("partial edge blocks are exact as emitted for AVX-512") {
  check_cut_blocks("x86-64-v4", host_level());
}

TEST_CASE("weights beyond the features of partial edge blocks may be anything") {
  for (const Operation operation : {Operation::forward, Operation::grad_input})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const auto& [tile_n, packed, block_scales] : {std::tuple{1, false, false},
                                                         {1, true, false},
                                                         {4, true, false},
                                                         {16, false, false},
                                                         {16, true, false},
                                                         {1, false, true},
                                                         {4, false, true},
                                                         {4, true, true},
                                                         {16, false, true}}) {
        if (packed && operation != Operation::forward) continue;
        Problem problem = product_of(grid(kGrid), {16, 16}, 66, dtype, DType::f32, operation);
        problem.block_scales = block_scales;
        problem.cut_in_features = kSide * 16 - 5;
        problem.cut_out_features = kSide * 16 - 3;
        HostInputs inputs = make_inputs(problem, 20, Inputs::small_integers, 1);
        const Layout& layout = problem.layout;
        std::int64_t planted = 0;
        for (std::int32_t row = 0; row < layout.rows(); ++row)
          for (std::int32_t b = layout.crow()[static_cast<std::size_t>(row)];
               b < layout.crow()[static_cast<std::size_t>(row) + 1]; ++b)
            for (std::int64_t i = 0; i < 256; ++i) {
              const std::int64_t out = row * 16 + i / 16;
              const std::int64_t in = layout.col()[static_cast<std::size_t>(b)] * 16 + i % 16;
              if (out < problem.cut_out_features && in < problem.cut_in_features) continue;
              store(dtype, std::numeric_limits<float>::quiet_NaN(), inputs.w.data(), b * 256 + i);
              ++planted;
            }
        REQUIRE(planted > 0);
        Config config = vector_config(tile_n);
        config.packed = packed;
        const auto binary = build_for(problem, {Target::Kind::cpu, host_level(), 2}, config);
        const CheckResult check_result = run_guarded(problem, *binary, inputs);
        CAPTURE(tile_n);
        CAPTURE(packed);
        CAPTURE(block_scales);
        CHECK_MESSAGE(check_result.ok, check_result.first_failure);
      }
}

TEST_CASE("neither a block whose scale is zero nor its x is used") {
  for (const Operation operation : {Operation::forward, Operation::grad_input})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      Problem problem = product_of(grid(kGrid), {16, 8}, 66, dtype, DType::f32, operation);
      problem.block_scales = true;
      HostInputs inputs = make_inputs(problem, 20, Inputs::small_integers, 1);
      const Spmm product(problem);
      auto* block_scales = reinterpret_cast<float*>(inputs.at("block_scales").bytes.data());
      // x of the product's first column is NaN, and so is every block that is multiplied with it.
      for (std::int32_t row = 0; row < product.layout.rows(); ++row) {
        const std::int32_t b = product.layout.crow()[static_cast<std::size_t>(row)];
        if (b == product.layout.crow()[static_cast<std::size_t>(row) + 1] ||
            product.layout.col()[static_cast<std::size_t>(b)] != 0)
          continue;
        const std::int32_t block = product.block_of_weight(b);
        block_scales[block] = row % 2 == 0 ? 0.0F : -0.0F;
        for (std::int64_t i = 0; i < 128; ++i)
          store(dtype, std::numeric_limits<float>::quiet_NaN(), inputs.w.data(), block * 128 + i);
      }
      for (std::int64_t batch_row = 0; batch_row < inputs.n; ++batch_row)
        for (std::int64_t k = 0; k < product.block.in; ++k)
          store(dtype, std::numeric_limits<float>::quiet_NaN(), inputs.x.data(),
                batch_row * inputs.x_stride + k);
      for (const std::int32_t tile_n : {1, 4, 16}) {
        const auto binary = build_for(problem, {Target::Kind::cpu, host_level(), 2}, vector_config(tile_n));
        const CheckResult check_result = run_guarded(problem, *binary, inputs);
        CAPTURE(tile_n);
        CHECK_MESSAGE(check_result.ok, check_result.first_failure);
      }
    }
}

TEST_CASE("y is not read where beta is zero") {
  Problem problem = product_of(grid(kGrid), {16, 8}, 66);
  problem.epilogue = {.scale = true};
  for (const std::int32_t tile_n : {1, 16}) {
    HostInputs inputs = make_inputs(problem, 20, Inputs::small_integers, 1);
    inputs.beta = 0;
    for (std::size_t i = 0; i < inputs.y.bytes.size() / 4; ++i)
      store(DType::f32, std::numeric_limits<float>::quiet_NaN(), inputs.y.bytes.data(),
            static_cast<std::int64_t>(i));
    const auto binary = build_for(problem, {Target::Kind::cpu, host_level(), 2}, vector_config(tile_n));
    const CheckResult check_result = run_guarded(problem, *binary, inputs);
    CHECK_MESSAGE(check_result.ok, check_result.first_failure);
  }
}

}  // namespace
}  // namespace sparsekiln::cpu

// Runs emitted kernels on this machine (see host_cuda.h) and compares every bit with a sequential loop.

#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/compiler/cuda/host_cuda.h"
#include "tests/compiler/cuda/simt_cases.h"

namespace sparsekiln::cuda {
namespace {

/// Floats that end where readable memory ends: one access beyond them is a fault.
class GuardedFloats {
 public:
  explicit GuardedFloats(std::size_t count) : count_(count) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t used = (count * sizeof(float) + page - 1) / page * page;
    bytes_ = used + page;
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::runtime_error("mmap failed");
    mprotect(static_cast<char*>(memory_) + used, page, PROT_NONE);
    data_ = reinterpret_cast<float*>(static_cast<char*>(memory_) + used) - count;
  }
  ~GuardedFloats() { munmap(memory_, bytes_); }
  GuardedFloats(const GuardedFloats&) = delete;
  GuardedFloats& operator=(const GuardedFloats&) = delete;
  [[nodiscard]] float* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return count_; }
  float& operator[](std::size_t i) { return data_[i]; }

 private:
  std::size_t count_;
  std::size_t bytes_ = 0;
  void* memory_ = nullptr;
  float* data_ = nullptr;
};

constexpr float kPoison = -12345.0F;

void fill(GuardedFloats& floats, std::mt19937& random) {
  for (std::size_t i = 0; i < floats.size(); ++i)
    floats[i] = static_cast<float>(static_cast<std::int32_t>(random())) * 0x1p-31F;
}

struct Operands {
  const Problem& problem;
  std::int64_t x_stride;
  std::int64_t y_stride;
  const float* x;
  const float* w;
};

/// One output by the documented order: a chain of fused multiply-adds a part, the parts added in ascending
/// order.
float expected(const Operands& operands, const Schedule& schedule, std::int64_t n, std::int64_t out) {
  const BlockShape block = operands.problem.block;
  const std::int64_t row = out / block.out;
  float total = 0;
  for (const Item& item : schedule.items) {  // parts of a row ascend in the list
    if (item.tile != row) continue;
    float sum = 0;
    for (std::int32_t step = item.first_step; step < item.first_step + item.steps; ++step) {
      const std::int64_t column = schedule.steps[static_cast<std::size_t>(step)].operand[1];
      const bool feature_major = operands.problem.feature_major();
      const float* const x = operands.x + (feature_major ? column * block.in * operands.x_stride + n
                                                         : n * operands.x_stride + column * block.in);
      const std::int64_t next = feature_major ? operands.x_stride : 1;
      const float* const w = operands.w + (std::int64_t{step} * block.out + out % block.out) * block.in;
      for (std::int32_t k = 0; k < block.in; ++k) sum = std::fma(x[k * next], w[k], sum);
    }
    total = item.part == 0 ? sum : total + sum;
  }
  return total;
}

/// Runs every entry for several n, one after the other on one workspace that is never cleared between them,
/// with asynchronous copies that land late and early.
void check_module(const Problem& problem, const Target& target, const Plan& plan,
                  std::initializer_list<std::int32_t> batches, std::int32_t max_grid_y = 65535) {
  std::vector<Schedule> schedules;
  const Source source = emit_plan(problem, target, plan, &schedules);
  const HostModule module(source);
  std::mt19937 random(7);
  const auto in = static_cast<std::size_t>(problem.in_features());
  const auto out = static_cast<std::size_t>(problem.out_features());
  GuardedFloats w(static_cast<std::size_t>(problem.layout.blocks()) * problem.block.out * problem.block.in);
  fill(w, random);
  std::int64_t workspace_bytes = 0;
  for (const Entry& entry : source.entries)
    workspace_bytes = std::max(workspace_bytes, entry.workspace_bytes(entry.up_to));
  GuardedFloats workspace(static_cast<std::size_t>(workspace_bytes) / sizeof(float));
  for (std::size_t e = 0; e < source.entries.size(); ++e) {
    for (const std::int32_t n : batches) {
      if (n > plan[e].up_to) continue;
      CAPTURE(to_string(plan[e].config));
      CAPTURE(n);
      const bool feature_major = problem.feature_major();
      const auto entries = static_cast<std::size_t>(n);
      const std::size_t whole = (entries + 3) / 4 * 4;  // rows begin at multiples of 16 bytes
      const std::size_t x_stride = (feature_major ? whole : in) + 4;
      const std::size_t y_stride = (feature_major ? whole : out) + 8;
      GuardedFloats x(((feature_major ? in : entries) - 1) * x_stride + (feature_major ? whole : in));
      GuardedFloats y(((feature_major ? out : entries) - 1) * y_stride + (feature_major ? whole : out));
      fill(x, random);
      const HostModule::Arguments arguments{x.data(),
                                            w.data(),
                                            y.data(),
                                            workspace.data(),
                                            n,
                                            static_cast<std::int64_t>(x_stride),
                                            static_cast<std::int64_t>(y_stride)};
      const Operands operands{problem, arguments.x_stride, arguments.y_stride, x.data(), w.data()};
      std::vector<float> want(y.size(), kPoison);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i / y_stride);
        const auto within = static_cast<std::int64_t>(i % y_stride);
        if (i % y_stride < (feature_major ? entries : out))
          want[i] = feature_major ? expected(operands, schedules[e], within, row)
                                  : expected(operands, schedules[e], row, within);
      }
      for (const HostModule::Copies copies : {HostModule::Copies::late, HostModule::Copies::early}) {
        std::fill_n(y.data(), y.size(), kPoison);
        const std::string fault =
            module.run(source.entries[e], arguments, static_cast<unsigned>(n), copies, max_grid_y);
        REQUIRE(fault == "");
        CHECK(std::memcmp(want.data(), y.data(), y.size() * sizeof(float)) == 0);
      }
    }
  }
}

TEST_CASE("feature-major kernels on CUDA cores give the sums of the documented order") {
  for (const char* arch : {"sm_80", "sm_75"}) {
    Problem problem = skewed_problem({16, 32}, 33);
    problem.order = ActivationOrder::feature_major;
    Config config;
    config.tile_n = 16;
    config.tile_out = 4;
    config.stages = 2;
    config.warps = 1;
    check_module(problem, {Target::Kind::cuda, arch, 6}, {{33, config}}, {33, 6});
  }
}

/// Entries of every stage count that the architecture has, both table forms, rows whole and split.
Plan varied_plan(const Problem& problem, const Target& target) {
  Plan plan;
  const std::int32_t most = target.compute_capability() >= 80 ? 3 : 2;
  for (std::int32_t stages = 1; stages <= most; ++stages) {
    const std::int32_t tile_n = std::vector{8, 32, 16}[static_cast<std::size_t>(stages) - 1];
    Config config = fitting_config(problem.block, target, tile_n, stages,
                                   stages % 2 == 0 ? TableForm::global : TableForm::constant);
    config.split = stages;
    plan.push_back({stages == most ? 64 : 8 * stages, config});
  }
  return plan;
}

bool splits_rows(const Problem& problem, const Target& target, const Plan& plan) {
  bool splits = false;
  for (const RangedConfig& range : plan)
    splits |= make_schedule(problem, target, range.config, range.up_to).counters > 0;
  return splits;
}

TEST_CASE("kernels give the bits of the documented order, through asynchronous copies") {
  const Target target{Target::Kind::cuda, "sm_80", 6};
  for (const BlockShape block : {BlockShape{8, 8}, {8, 32}, {64, 16}, {32, 32}, {16, 128}, {128, 64}}) {
    CAPTURE(to_string(block));
    const Problem problem = skewed_problem(block, Batch::up_to(64));
    const Plan plan = varied_plan(problem, target);
    REQUIRE(splits_rows(problem, target, plan));
    check_module(problem, target, plan, {64, 1, 7, 8, 9, 15, 33});
  }
}

TEST_CASE(
    "kernels give the bits of the documented order, through registers where there is no asynchronous copy") {
  const Target target{Target::Kind::cuda, "sm_75", 6};
  for (const BlockShape block : {BlockShape{16, 8}, {32, 64}, {128, 32}}) {
    CAPTURE(to_string(block));
    const Problem problem = skewed_problem(block, Batch::up_to(64));
    const Plan plan = varied_plan(problem, target);
    REQUIRE(splits_rows(problem, target, plan));
    check_module(problem, target, plan, {64, 1, 7, 9, 15});
  }
}

TEST_CASE("rows stay whole where one worker has them all, and a full row is one chain") {
  const Target target{Target::Kind::cuda, "sm_90", 1};
  const Problem problem = skewed_problem({32, 32}, 15);
  const Plan plan{{15, fitting_config(problem.block, target, 16, 2, TableForm::constant)}};
  REQUIRE(!splits_rows(problem, target, plan));
  check_module(problem, target, plan, {15});
}

TEST_CASE("an empty layout writes zeros") {
  const Target target{Target::Kind::cuda, "sm_90", 4};
  Problem problem = skewed_problem({16, 16}, 9);
  problem.layout = Layout::from_mask(3, 2, std::vector<std::uint8_t>(6, 0));
  for (const std::int32_t stages : {1, 2})
    check_module(problem, target,
                 {{9, fitting_config(problem.block, target, 8, stages, TableForm::constant)}}, {9});
}

TEST_CASE("a grid that is lower than the batch tiles still computes all of them") {
  const Target target{Target::Kind::cuda, "sm_80", 6};
  const Problem problem = skewed_problem({16, 32}, Batch::up_to(64));
  check_module(problem, target, varied_plan(problem, target), {64, 33}, 2);
}

}  // namespace
}  // namespace sparsekiln::cuda

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

/// A workspace of a given size on the device with only the counters zeroed, and memory after it that must not
/// be written.
class GuardedWorkspace {
 public:
  GuardedWorkspace(const Kernel& kernel, std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)),
        memory_(Suite::current().device(), bytes_ + kGuard),
        image_(bytes_ + kGuard) {
    std::fill(image_.begin() + std::min(kernel.workspace_counter_bytes(), bytes), image_.begin() + bytes,
              kPoison);
    std::fill(image_.begin() + bytes, image_.end(), kCanary);
    memory_.copy_in(image_.data());
  }

  [[nodiscard]] std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(memory_.data()), bytes_};
  }
  void give(Operands& operands) const {
    operands.workspace = memory_.data();
    operands.workspace_size = static_cast<std::int64_t>(bytes_);
  }
  [[nodiscard]] bool guard_holds() {
    memory_.copy_out(image_.data());
    return std::all_of(image_.begin() + static_cast<std::ptrdiff_t>(bytes_), image_.end(),
                       [](std::byte byte) { return byte == kCanary; });
  }

 private:
  static constexpr std::size_t kGuard = 4096;
  static constexpr std::byte kPoison{0xff};  // floats of it are NaN
  static constexpr std::byte kCanary{0xa5};
  std::size_t bytes_;
  DeviceMemory memory_;
  std::vector<std::byte> image_;
};

/// Matrices of float32 on the device, [matrices, n, features], with a `gap` of elements after each. They hold
/// small integers.
class Matrices {
 public:
  Matrices(std::int64_t matrices, std::int64_t n, std::int64_t features, std::int64_t gap = 0)
      : matrices_(matrices),
        n_(n),
        features_(features),
        step_(n * features + gap),
        host_(static_cast<std::size_t>(matrices * step_)),
        memory_(Suite::current().device(), host_.size() * sizeof(float)) {
    for (std::size_t i = 0; i < host_.size(); ++i) host_[i] = static_cast<float>(i * 7 % 5) - 2;
    memory_.copy_in(host_.data());
  }

  [[nodiscard]] TensorView view() const {
    TensorView all;
    all.data = memory_.data();
    all.rank = 3;
    const std::array<std::int64_t, 3> shape{matrices_, n_, features_};
    const std::array<std::int64_t, 3> stride{step_, features_, 1};
    std::copy(shape.begin(), shape.end(), all.shape);
    std::copy(stride.begin(), stride.end(), all.stride);
    return all;
  }
  /// One of the matrices, with two dimensions.
  [[nodiscard]] TensorView view(std::int64_t matrix) const {
    return sparsekiln::view(static_cast<float*>(memory_.data()) + matrix * step_, DType::f32, n_, features_);
  }
  [[nodiscard]] const std::vector<float>& fetch() {
    memory_.copy_out(host_.data());
    return host_;
  }

 private:
  std::int64_t matrices_, n_, features_, step_;
  std::vector<float> host_;
  DeviceMemory memory_;
};

/// More workers than the layouts here have rows, so that some rows are split; on a GPU so few workers that
/// large batches are split less than smaller ones, and take less.
Options split_options(BlockShape block, Batch batch, Precision precision = {}) {
  Options options = Suite::current().options(block, batch, precision);
  options.target = Suite::current().target_with(Suite::current().on_cpu() ? 7 : 16);
  return options;
}

/// Why a launch was refused; empty if it was not.
std::string refusal(const Kernel& kernel, const Operands& operands) {
  try {
    kernel(operands);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  return "";
}

/// Launches matrices with a workspace that has `bytes`, and one by one without: that must give the same, with
/// nothing written after the workspace.
void check_matrices(const Kernel& kernel, std::int64_t matrices, std::int64_t n, std::int64_t gap,
                    std::int64_t bytes) {
  const OperandContract& contract = kernel.binary().operands;
  const Matrices x(matrices, n, contract.in_features, gap);
  const Matrices w(contract.blocks, contract.block.out, contract.block.in);
  Matrices y(matrices, n, contract.out_features, gap);
  Matrices expected(matrices, n, contract.out_features, gap);
  for (std::int64_t matrix = 0; matrix < matrices; ++matrix)
    kernel({.x = x.view(matrix), .w = w.view(), .y = expected.view(matrix)});
  GuardedWorkspace workspace(kernel, bytes);
  Operands operands{.x = x.view(), .w = w.view(), .y = y.view()};
  workspace.give(operands);
  CHECK(refusal(kernel, operands) == "");
  Suite::current().device()->synchronize();
  CHECK(y.fetch() == expected.fetch());
  CHECK(workspace.guard_holds());
  operands.workspace_size -= 1;
  CHECK(refusal(kernel, operands) != "");
}

}  // namespace

TEST_CASE("workspace_bytes is the maximum over all smaller batches, whatever the layout and the operation") {
  int taken = 0;
  int falling = 0;  // batches that take less than a smaller one
  for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight})
    for (const std::int32_t side : {8, 32}) {
      Options options = split_options({side, side}, Batch::up_to(300));
      options.operation = operation;
      options.specialization = Specialization::attached;
      Kernel kernel = compile(patterns::random(3, 64, 0.6, 7), options);
      for (const double density : {0.9, 0.3, 0.01}) {
        kernel.relayout(patterns::random(3, 64, density, 7));
        CAPTURE(name(operation));
        CAPTURE(side);
        CAPTURE(density);
        std::int64_t most = 0;
        std::size_t entry = 0;
        const std::vector<Entry>& entries = kernel.binary().entries;
        for (std::int64_t n = 0; n <= 300; ++n) {
          CAPTURE(n);
          if (entries[entry].up_to < n) ++entry;
          const std::int64_t bytes = entries[entry].workspace_bytes(n);
          falling += bytes < most;
          most = std::max(most, bytes);
          REQUIRE(kernel.workspace_bytes(n) == most);
        }
        taken += most > 0;
      }
    }
  CHECK(taken > 0);
  if (!Suite::current().on_cpu()) CHECK(falling > 0);  // otherwise this tests little
}

TEST_CASE(
    "a workspace of workspace_bytes(n) bytes serves every batch up to n, and nothing after it is written") {
  const std::vector<Precision> precisions = Suite::current().precisions();
  for (const Precision& precision : {precisions[0], precisions[1]}) {
    const Options options = split_options({32, 32}, Batch::up_to(258), precision);
    const Layout layout = patterns::random(3, 400, 0.6, 7);  // of rows long enough to be split
    const Kernel kernel = compile(layout, options);
    const Problem problem = make_problem(layout, options);
    CAPTURE(precision.to_string());
    for (const std::int64_t most : {258, 129, 33}) {
      CAPTURE(most);
      CHECK(kernel.workspace_bytes(most) > 0);
      GuardedWorkspace workspace(kernel, kernel.workspace_bytes(most));
      for (const std::int64_t n : {258, 1, 129, 0, 33}) {
        if (n > most) continue;
        CAPTURE(n);
        const HostInputs inputs = make_inputs(problem, n, Inputs::small_integers, 3);
        PoisonedOutput output(problem, n);
        launch(kernel, problem, inputs, output, workspace.bytes());
        const CheckResult check_result =
            check(problem, inputs, output, adder_of(problem, kernel.binary().plan));
        CHECK_MESSAGE(check_result.ok, check_result.first_failure);
        CHECK(workspace.guard_holds());
      }
    }
  }
}

TEST_CASE("one workspace serves images of every batch, of entries that split rows and of others") {
  const Layout layout = patterns::random(2, 2, 1, 7);
  int mixed = 0;
  for (const Operation operation : {Operation::forward, Operation::grad_input})
    for (const ActivationOrder order : {ActivationOrder::batch_major, ActivationOrder::feature_major}) {
      const Precision precision = Suite::current().precisions()[1];
      Options options = Suite::current().options({16, 16}, Batch::up_to(64), precision);
      options.operation = operation;
      options.order = order;
      options.convolution = parse_convolution("kernel=3x3 padding=1 input=8x8");
      const Kernel kernel = compile(layout, options);
      const Problem problem = make_problem(layout, options);
      CAPTURE(name(operation));
      CAPTURE(name(order));
      bool splits = false;
      bool does_not = false;
      for (const Entry& entry : kernel.binary().entries) {
        (entry.workspace.bytes_per_tile > 0 ? splits : does_not) = true;
        if (entry.workspace != Workspace{})
          CHECK(entry.workspace.counter_bytes == kernel.workspace_counter_bytes());
      }
      mixed += splits && does_not;
      GuardedWorkspace workspace(kernel, kernel.workspace_bytes(64));
      for (const std::int64_t n : {1, 64, 1, 8, 1, 1}) {
        CAPTURE(n);
        const HostInputs inputs = make_inputs(problem, n, Inputs::small_integers, 3);
        PoisonedOutput output(problem, n);
        launch(kernel, problem, inputs, output, workspace.bytes());
        const CheckResult check_result =
            check(problem, inputs, output, adder_of(problem, kernel.binary().plan));
        CHECK_MESSAGE(check_result.ok, check_result.first_failure);
        CHECK(workspace.guard_holds());
      }
    }
  if (!Suite::current().on_cpu()) CHECK(mixed == 4);  // otherwise this tests little
}

TEST_CASE("one workspace serves every batch of gradients whose sums are in it, after counters of any entry") {
  const Layout layout = patterns::random(40, 3, 0.8, 7);
  for (const char* const epilogue : {"layer_norm+multiply+add+relu+residual", "layer_norm+lstm"})
    for (const Specialization specialization : {Specialization::baked, Specialization::attached}) {
      Options options = split_options({16, 16}, Batch::up_to(130), {.dtype = DType::f16});
      options.operation = Operation::grad_input;
      options.epilogue = parse_epilogue(epilogue);
      options.specialization = specialization;
      const Kernel kernel = compile(layout, options);
      const Problem problem = make_problem(layout, options);
      CAPTURE(std::string(epilogue));
      CAPTURE(name(specialization));
      const auto& entries = kernel.binary().entries;
      CHECK(std::all_of(entries.begin(), entries.end(),
                        [](const Entry& entry) { return entry.workspace.sums_of_one > 0; }));
      CHECK(kernel.workspace_counter_bytes() > 0);  // else no row is split, and this tests little
      GuardedWorkspace workspace(kernel, kernel.workspace_bytes(130));
      for (const std::int64_t n : {1, 130, 1, 40, 3, 130}) {
        CAPTURE(n);
        const HostInputs inputs = make_inputs(problem, n, Inputs::random, 3);
        PoisonedOutput output(problem, n);
        output.hold(inputs);
        launch(kernel, problem, inputs, output, workspace.bytes());
        const CheckResult check_result =
            check(problem, inputs, output, adder_of(problem, kernel.binary().plan));
        CHECK_MESSAGE(check_result.ok, check_result.first_failure);
        CHECK(workspace.guard_holds());
      }
    }
}

TEST_CASE("a workspace that is a byte too small, or has no stated size, is refused with a reason") {
  const Options options = split_options({32, 32}, Batch::up_to(258));
  const Kernel kernel = compile(patterns::random(3, 64, 0.6, 7), options);
  const OperandContract& contract = kernel.binary().operands;
  const Matrices w(contract.blocks, 32, 32);
  for (const std::int64_t n : {258, 129, 5}) {
    const Matrices x(1, n, contract.in_features);
    const Matrices y(1, n, contract.out_features);
    Operands operands{.x = x.view(0), .w = w.view(), .y = y.view(0)};
    const std::int64_t bytes = kernel.workspace_bytes(n);
    GuardedWorkspace workspace(kernel, bytes);
    workspace.give(operands);
    for (const std::int64_t size : {bytes - 1, std::int64_t{0}, std::int64_t{-1}}) {
      operands.workspace_size = size;
      const std::string message = fmt::format(
          "workspace: workspace_size is {} bytes, and a launch with a batch of {} takes {}: dense memory of "
          "workspace_bytes({}) bytes would work",
          size, n, bytes, n);
      CHECK(refusal(kernel, operands) == message);
    }
    operands.workspace_size = bytes;
    CHECK(refusal(kernel, operands) == "");
    Suite::current().device()->synchronize();
    CHECK(workspace.guard_holds());
  }
}

TEST_CASE("matrices take the workspace of one if the kernel computes them one by one") {
  const Layout layout = patterns::random(3, 64, 0.6, 7);
  const Kernel fixed = compile(layout, split_options({32, 32}, 64));
  check_matrices(fixed, 3, 64, 0, fixed.workspace_bytes(64));
  check_matrices(fixed, 3, 64, 32, fixed.workspace_bytes(64));
  const Kernel dynamic = compile(layout, split_options({32, 32}, Batch::up_to(258)));
  check_matrices(dynamic, 2, 129, 32, dynamic.workspace_bytes(129));
  check_matrices(dynamic, 3, 129, 0, dynamic.workspace_bytes(129));
}

TEST_CASE("matrices that are one product take the workspace of all their rows") {
  const Kernel kernel = compile(patterns::random(3, 64, 0.6, 7), split_options({32, 32}, Batch::up_to(258)));
  check_matrices(kernel, 2, 129, 0, kernel.workspace_bytes(258));
  check_matrices(kernel, 3, 5, 0, kernel.workspace_bytes(15));
}

TEST_CASE("the workspace for all rows is enough for matrices that are launched one by one") {
  const Kernel kernel = compile(patterns::random(3, 64, 0.6, 7), split_options({32, 32}, Batch::up_to(258)));
  const OperandContract& contract = kernel.binary().operands;
  const Matrices w(contract.blocks, 32, 32);
  const Matrices x(2, 129, contract.in_features, 32);
  const Matrices y(2, 129, contract.out_features, 32);
  GuardedWorkspace workspace(kernel, kernel.workspace_bytes(258));
  Operands operands{.x = x.view(), .w = w.view(), .y = y.view()};
  workspace.give(operands);
  CHECK(refusal(kernel, operands) == "");
  Suite::current().device()->synchronize();
  CHECK(workspace.guard_holds());
}

TEST_CASE("the gradient of the weight of eight pairs stays within its workspace") {
  Options options = split_options({16, 16}, Batch::up_to(100));
  options.operation = Operation::grad_weight;
  const Kernel kernel = compile(patterns::random(12, 12, 0.7, 2), options);
  const OperandContract& contract = kernel.binary().operands;
  for (const std::int64_t n : {100, 64, 3}) {
    const Matrices x(8, n, contract.in_features, 32);
    const Matrices dy(8, n, contract.out_features, 32);
    Matrices dw(contract.blocks, 16, 16);
    Matrices expected(contract.blocks, 16, 16);
    kernel({.x = x.view(), .dy = dy.view(), .dw = expected.view()});
    GuardedWorkspace workspace(kernel, kernel.workspace_bytes(n));
    Operands operands{.x = x.view(), .dy = dy.view(), .dw = dw.view()};
    workspace.give(operands);
    CHECK(refusal(kernel, operands) == "");
    Suite::current().device()->synchronize();
    CHECK(dw.fetch() == expected.fetch());
    CHECK(workspace.guard_holds());
  }
}

namespace {

/// Two layouts with the same number of blocks: the rows of the first are equal, and the second has all its
/// work in one row.
struct TwoLayouts {
  Layout even = patterns::block_diagonal(16, 16, 16);
  Layout uneven = [] {
    std::vector<std::uint8_t> mask(256, 0);
    std::fill_n(mask.begin(), 16, std::uint8_t{1});
    return Layout::from_mask(16, 16, mask);
  }();
  Kernel kernel = [this] {
    Options options = split_options({32, 32}, 40);
    options = Suite::current().with_splits(options, even);
    options.specialization = Specialization::attached;
    return compile(even, options);
  }();
};

}  // namespace

TEST_CASE("the workspace of the previous layout is refused if the next layout takes more") {
  TwoLayouts layouts;
  Kernel& kernel = layouts.kernel;
  const Kernel before = kernel;
  kernel.relayout(layouts.uneven);
  const std::int64_t bytes = before.workspace_bytes(40);
  REQUIRE(bytes < kernel.workspace_bytes(40));
  const Matrices x(1, 40, 512);
  const Matrices w(16, 32, 32);
  const Matrices y(1, 40, 512);
  GuardedWorkspace workspace(kernel, bytes);
  Operands operands{.x = x.view(0), .w = w.view(), .y = y.view(0)};
  workspace.give(operands);
  CHECK(refusal(kernel, operands).starts_with("workspace: "));
  if (bytes > 0) CHECK(refusal(before, operands) == "");
  Suite::current().device()->synchronize();
  CHECK(workspace.guard_holds());
}

TEST_CASE("threads that launch copies while another changes the layout never write beyond their workspace") {
  constexpr int kLaunches = 60;  // of each thread
  TwoLayouts layouts;
  Kernel& shared = layouts.kernel;
  std::mutex changing;  // protects `shared`: a handle is not copied while it is being replaced
  const auto copy = [&] {
    const std::lock_guard lock(changing);
    return shared;
  };
  const Matrices x(1, 40, 512);
  const Matrices w(16, 32, 32);
  std::atomic<int> left = 2 * kLaunches;
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      const Matrices y(1, 40, 512);
      Operands operands{.x = x.view(0), .w = w.view(), .y = y.view(0)};
      for (int launch = 0; launch < kLaunches; ++launch) {
        const Kernel asked = copy();
        GuardedWorkspace workspace(asked, std::max<std::int64_t>(asked.workspace_bytes(40), 64));
        workspace.give(operands);
        const std::string message = refusal(copy(), operands);  // perhaps that of the other layout
        Suite::current().device()->synchronize();
        if (!workspace.guard_holds() || !(message.empty() || message.starts_with("workspace: "))) ++wrong;
        --left;
      }
    });
  for (int turn = 0; left > 0; ++turn) {
    Kernel next = copy();
    next.relayout(turn % 2 == 0 ? layouts.uneven : layouts.even);
    const std::lock_guard lock(changing);
    std::swap(shared, next);
  }
  threads.clear();
  CHECK(wrong == 0);
}

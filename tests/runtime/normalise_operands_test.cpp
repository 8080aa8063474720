#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

#include "tests/runtime/contract_memory.h"

// What runtime/operand_check.h takes for a layer normalisation, and for its gradient.

namespace sparsekiln {
namespace {

constexpr std::int64_t kFeatures = 32;  ///< of a group
constexpr std::int64_t kBlocks = 5;

/// The operands of a normalised layer of up to 4 batch rows: of one group, or of the four gates of a cell.
class Memory : public ContractMemory {
 public:
  explicit Memory(Operation operation = Operation::forward, bool cell = false)
      : ContractMemory(16), groups_(cell ? 4 : 1) {
    contract.operation = operation;
    contract.batch = Batch::up_to(4);
    contract.block = {16, 8};
    contract.in_features = kFeatures;
    contract.out_features = groups_ * kFeatures;
    contract.epilogue.layer_norm = true;
    contract.epilogue.lstm = cell;
    contract.epilogue.multiply = true;
    contract.epilogue.add = !cell;
    contract.epilogue.residual = operation == Operation::grad_input;
    contract.blocks = contract.weight_blocks(kBlocks);
  }
  [[nodiscard]] TensorView matrix(std::size_t part, std::int64_t n, std::int64_t features,
                                  DType type = DType::f32) const {
    return view(place(part), type, n, features);
  }
  /// The operands of n rows.
  [[nodiscard]] Operands rows(std::int64_t n) const {
    const DType type = contract.out_dtype;
    const std::int64_t all = groups_ * kFeatures;
    const bool cell = contract.epilogue.lstm;
    Operands operands{.w = dense_view(place(0), {kBlocks, 16, 8}),
                      .bias = view(place(1), type, all),
                      .gain = view(place(2), type, all),
                      .sums = matrix(3, n, all, type),
                      .statistics = matrix(4, n, 2 * groups_),
                      .multiplier = matrix(5, n, kFeatures, type)};
    if (!cell) operands.addend = matrix(6, n, kFeatures, type);
    if (cell) operands.c_before = matrix(7, n, kFeatures);
    if (cell) operands.c = matrix(8, n, kFeatures);
    if (contract.operation == Operation::forward) {
      operands.x = matrix(9, n, kFeatures, type);
      operands.y = matrix(10, n, kFeatures, type);
      return operands;
    }
    operands.dy = matrix(9, n, all, type);
    operands.dx = matrix(10, n, all, type);
    operands.residual = matrix(11, n, kFeatures, type);
    operands.dnorm = matrix(12, 3, 2 * all);
    if (cell) {
      operands.dc = matrix(13, n, kFeatures);
      operands.dc_before = matrix(14, n, kFeatures);
    } else {
      operands.dmultiplier = matrix(13, n, kFeatures, type);
      operands.daddend = matrix(14, n, kFeatures, type);
    }
    return operands;
  }

 private:
  std::int64_t groups_;
};

struct Matrix {
  const char* name;
  TensorView Operands::* operand;
  std::int64_t features;
};
constexpr Matrix kForward[]{{"y", &Operands::y, kFeatures},
                            {"sums", &Operands::sums, kFeatures},
                            {"multiplier", &Operands::multiplier, kFeatures},
                            {"addend", &Operands::addend, kFeatures}};
constexpr Matrix kForwardOfCell[]{{"y", &Operands::y, kFeatures},
                                  {"sums", &Operands::sums, 4 * kFeatures},
                                  {"multiplier", &Operands::multiplier, kFeatures},
                                  {"c_before", &Operands::c_before, kFeatures},
                                  {"c", &Operands::c, kFeatures}};
constexpr Matrix kGradient[]{
    {"dx", &Operands::dx, kFeatures},          {"residual", &Operands::residual, kFeatures},
    {"sums", &Operands::sums, kFeatures},      {"multiplier", &Operands::multiplier, kFeatures},
    {"addend", &Operands::addend, kFeatures},  {"dmultiplier", &Operands::dmultiplier, kFeatures},
    {"daddend", &Operands::daddend, kFeatures}};
constexpr Matrix kGradientOfCell[]{
    {"dx", &Operands::dx, 4 * kFeatures},     {"residual", &Operands::residual, kFeatures},
    {"sums", &Operands::sums, 4 * kFeatures}, {"multiplier", &Operands::multiplier, kFeatures},
    {"dc", &Operands::dc, kFeatures},         {"dc_before", &Operands::dc_before, kFeatures}};

TEST_CASE("a layer normalisation is launched with its matrices, and its product with the sums as y") {
  const Memory memory;
  Operands operands = memory.rows(3);
  operands.multiplier.stride[0] = 2 * kFeatures;
  operands.statistics.stride[0] = 3;
  operands.epsilon = 0.1;
  const CheckedOperands checked = memory.check(operands);
  CHECK(checked.matrices == 1);
  const LaunchOperands& launch = checked.first;
  CHECK(launch.n == 3);
  CHECK(launch.y == operands.sums.data);
  CHECK(launch.y_stride == kFeatures);
  const LaunchNormalisation& normalisation = launch.normalisation;
  CHECK(normalisation.y.data == operands.y.data);
  CHECK(normalisation.sums.data == operands.sums.data);
  CHECK(normalisation.statistics.data == operands.statistics.data);
  CHECK(normalisation.statistics.stride == 3);
  CHECK(normalisation.multiplier.stride == 2 * kFeatures);
  CHECK(normalisation.addend.data == operands.addend.data);
  CHECK(normalisation.gain == operands.gain.data);
  CHECK(normalisation.bias == operands.bias.data);
  CHECK(normalisation.features == kFeatures);
  CHECK(normalisation.epsilon64 == 0.1);
  CHECK(normalisation.epsilon == 0.1F);
}

TEST_CASE("the gradient of a layer normalisation is launched with what it adds to, in parts") {
  const Memory memory(Operation::grad_input);
  const Operands operands = memory.rows(4);
  const LaunchOperands launch = memory.check(operands).first;
  CHECK(launch.x == operands.dy.data);
  CHECK(launch.y == operands.dx.data);
  CHECK(launch.residual == operands.residual.data);
  CHECK(launch.normalisation.y.data == operands.dx.data);
  CHECK(launch.normalisation.dh.data == operands.dx.data);
  CHECK(launch.normalisation.dmultiplier.data == operands.dmultiplier.data);
  CHECK(launch.normalisation.daddend.data == operands.daddend.data);
  CHECK(launch.normalisation.dnorm.data == operands.dnorm.data);
  CHECK(launch.normalisation.dnorm.stride == 2 * kFeatures);
  CHECK(launch.normalisation.parts == 3);
}

TEST_CASE("a cell whose gates are normalised has four groups of sums, and one of all else") {
  const Memory memory(Operation::forward, true);
  const Operands operands = memory.rows(4);
  const LaunchOperands launch = memory.check(operands).first;
  CHECK(launch.y == operands.sums.data);
  CHECK(launch.y_stride == 4 * kFeatures);
  CHECK(launch.v == nullptr);
  CHECK(launch.normalisation.features == kFeatures);
  CHECK(launch.normalisation.statistics.stride == 8);
  CHECK(launch.cell.c.data == operands.c.data);
  const Memory back(Operation::grad_input, true);
  const Operands gradient = back.rows(4);
  const LaunchOperands launched = back.check(gradient).first;
  CHECK(launched.x_stride == 4 * kFeatures);
  CHECK(launched.y_stride == 4 * kFeatures);
  CHECK(launched.residual_stride == kFeatures);
  CHECK(launched.normalisation.dnorm.stride == 8 * kFeatures);
  CHECK(launched.cell.dc_before.data == gradient.dc_before.data);
}

TEST_CASE("the operands of a layer normalisation are refused by name, with the shape that the kernel takes") {
  const auto check_each = [](const Memory& memory, std::span<const Matrix> matrices) {
    for (const auto& [name, operand, features] : matrices) {
      CAPTURE(std::string(name));
      const std::string begin = std::string(name) + ": ";
      Operands operands = memory.rows(3);
      operands.*operand = TensorView();
      CHECK(memory.refusal(operands).starts_with(begin + "it was not given"));
      operands = memory.rows(3);
      (operands.*operand).shape[1] = 24;
      CHECK(memory.refusal(operands) == begin + "rank 2 and shape [3, 24], but the kernel takes [n, " +
                                            std::to_string(features) + "], or a batch of such matrices");
      operands = memory.rows(3);
      (operands.*operand).shape[0] = 2;
      CHECK(memory.refusal(operands).starts_with(begin));
      operands = memory.rows(3);
      (operands.*operand).dtype = DType::f16;
      CHECK(memory.refusal(operands).starts_with(begin + "its type is f16"));
      operands = memory.rows(3);
      (operands.*operand).stride[0] += 2;
      CHECK(memory.refusal(operands).starts_with(begin + "strides ["));
      operands = memory.rows(3);
      (operands.*operand).data = static_cast<std::byte*>((operands.*operand).data) + 8;
      CHECK(memory.refusal(operands).ends_with("is not aligned to 16 bytes"));
    }
  };
  check_each(Memory(), kForward);
  check_each(Memory(Operation::forward, true), kForwardOfCell);
  check_each(Memory(Operation::grad_input), kGradient);
  check_each(Memory(Operation::grad_input, true), kGradientOfCell);
}

TEST_CASE("a layer normalisation is refused without its gain, its bias, its statistics or dnorm") {
  for (const bool cell : {false, true}) {
    const std::int64_t groups = cell ? 4 : 1;
    const Memory memory(Operation::grad_input, cell);
    for (const auto& [name, operand] : {std::pair{"gain", &Operands::gain},
                                        {"bias", &Operands::bias},
                                        {"statistics", &Operands::statistics},
                                        {"dnorm", &Operands::dnorm}}) {
      Operands operands = memory.rows(3);
      operands.*operand = TensorView();
      CHECK(memory.refusal(operands).starts_with(std::string(name) + ": it was not given"));
      operands = memory.rows(3);
      (operands.*operand).dtype = DType::f64;
      CHECK(memory.refusal(operands).starts_with(std::string(name) + ": its type is f64"));
    }
    Operands operands = memory.rows(3);
    operands.gain.shape[0] += 1;
    CHECK(memory.refusal(operands).starts_with("gain: rank 1, shape [" +
                                               std::to_string(groups * kFeatures + 1) + "]"));
    CHECK(memory.refusal(operands).ends_with("takes dense [" + std::to_string(groups * kFeatures) + "]"));
    operands = memory.rows(3);
    operands.bias = memory.matrix(1, 1, groups * kFeatures);
    CHECK(memory.refusal(operands).starts_with("bias: rank 2"));
    operands = memory.rows(3);
    operands.statistics.shape[1] = 3;
    CHECK(memory.refusal(operands) == "statistics: rank 2 and shape [3, 3], but the kernel takes [n, " +
                                          std::to_string(2 * groups) + "], or a batch of such matrices");
  }
}

TEST_CASE("statistics need no alignment but that of their elements") {
  const Memory memory;
  Operands operands = memory.rows(3);
  operands.statistics.data = static_cast<std::byte*>(operands.statistics.data) + 4;
  operands.statistics.stride[0] = 5;
  CHECK(memory.refusal(operands).empty());
  operands.statistics.data = static_cast<std::byte*>(operands.statistics.data) + 2;
  CHECK(memory.refusal(operands).ends_with("is not aligned to 4 bytes"));
}

TEST_CASE("statistics and dnorm of f16 kernels are float32") {
  Memory memory(Operation::grad_input);
  memory.contract.dtype = memory.contract.out_dtype = DType::f16;
  Operands operands = memory.rows(3);
  operands.w.dtype = DType::f16;
  CHECK(memory.refusal(operands).empty());
  operands.statistics.dtype = DType::f16;
  CHECK(memory.refusal(operands) == "statistics: its type is f16, the kernel was compiled for f32");
}

TEST_CASE("dnorm has one part or more, each a dense row") {
  const Memory memory(Operation::grad_input);
  Operands operands = memory.rows(3);
  for (const std::int64_t parts : {1, 2, 16}) {
    operands.dnorm = memory.matrix(12, parts, 2 * kFeatures);
    CHECK(memory.check(operands).first.normalisation.parts == parts);
  }
  const std::string takes = ", but the kernel takes dense [";
  operands.dnorm = memory.matrix(12, 0, 2 * kFeatures);
  CHECK(memory.refusal(operands).find(takes + "1, 64]: a row for each part, of which there is one or more") !=
        std::string::npos);
  operands.dnorm = memory.matrix(12, 3, kFeatures);
  CHECK(memory.refusal(operands).find(takes + "3, 64]") != std::string::npos);
  operands.dnorm = memory.matrix(12, 3, 2 * kFeatures);
  operands.dnorm.stride[0] += 4;
  CHECK(memory.refusal(operands).starts_with("dnorm: "));
  operands.dnorm = view(memory.place(12), DType::f32, 2 * kFeatures);
  CHECK(memory.refusal(operands).starts_with("dnorm: rank 1"));
}

TEST_CASE("epsilon is a number from 0 on") {
  const Memory memory;
  Operands operands = memory.rows(3);
  CHECK(operands.epsilon == 1e-5);
  operands.epsilon = 0;
  CHECK(memory.refusal(operands).empty());
  operands.epsilon = -1e-9;
  CHECK(memory.refusal(operands) == "epsilon: -1e-09 is what is added to a variance; 0 or more would work");
  operands.epsilon = std::nan("");
  CHECK(memory.refusal(operands).starts_with("epsilon: nan is"));
}

TEST_CASE("what a layer normalisation computes overlaps nothing else") {
  const auto check_each = [](const Memory& memory, std::vector<Matrix> computed, std::vector<Matrix> read) {
    for (const Matrix& own : computed) {
      for (const Matrix& other : read) {
        CAPTURE(std::string(own.name));
        CAPTURE(std::string(other.name));
        Operands operands = memory.rows(3);
        (operands.*own.operand).data = static_cast<std::byte*>((operands.*other.operand).data);
        CHECK(memory.refusal(operands) ==
              std::string(own.name) + ": it overlaps " + other.name +
                  ", which the kernel reads while it writes; memory of its own would work");
      }
      for (const Matrix& other : computed) {
        if (other.operand == own.operand) continue;
        CAPTURE(std::string(own.name));
        CAPTURE(std::string(other.name));
        Operands operands = memory.rows(3);
        (operands.*own.operand).data = (operands.*other.operand).data;
        const std::string refusal = memory.refusal(operands);
        CHECK(refusal.find("which is computed as well") != std::string::npos);
        CHECK(refusal.find(own.name) != std::string::npos);
        CHECK(refusal.find(other.name) != std::string::npos);
      }
    }
  };
  const Matrix gain{"gain", &Operands::gain, 0};
  const Matrix bias{"bias", &Operands::bias, 0};
  const Matrix w{"w", &Operands::w, 0};
  const Matrix x{"x", &Operands::x, 0};
  const Matrix dy{"dy", &Operands::dy, 0};
  const Matrix sums{"sums", &Operands::sums, 0};
  const Matrix statistics{"statistics", &Operands::statistics, 0};
  const Matrix multiplier{"multiplier", &Operands::multiplier, 0};
  const Matrix addend{"addend", &Operands::addend, 0};
  const Matrix residual{"residual", &Operands::residual, 0};
  const Matrix dnorm{"dnorm", &Operands::dnorm, 0};
  check_each(Memory(), {{"y", &Operands::y, 0}, sums, statistics}, {x, w, gain, bias, multiplier, addend});
  check_each(Memory(Operation::grad_input),
             {{"dmultiplier", &Operands::dmultiplier, 0}, {"daddend", &Operands::daddend, 0}, dnorm},
             {dy, w, gain, bias, multiplier, addend, sums, statistics, residual});
  check_each(Memory(Operation::grad_input), {{"dx", &Operands::dx, 0}, dnorm},
             {dy, w, gain, bias, multiplier, addend, sums, statistics});
  check_each(Memory(Operation::forward, true), {{"c", &Operands::c, 0}, sums, statistics},
             {x, w, gain, bias, multiplier});
  check_each(Memory(Operation::grad_input, true), {{"dc_before", &Operands::dc_before, 0}, dnorm},
             {dy, w, gain, bias, multiplier, sums, statistics, {"c", &Operands::c, 0}});
}

TEST_CASE("the state of a cell whose gates are normalised may be in place, and so may its residual") {
  const Memory forward(Operation::forward, true);
  Operands operands = forward.rows(3);
  operands.c = operands.c_before;
  CHECK(forward.refusal(operands).empty());
  const Memory back(Operation::grad_input, true);
  operands = back.rows(3);
  operands.dc_before = operands.dc;
  operands.residual.data = operands.dx.data;
  operands.residual.stride[0] = 4 * kFeatures;
  CHECK(back.refusal(operands).empty());
  operands.residual.data = static_cast<std::byte*>(operands.dx.data) + kFeatures * 4;
  CHECK(back.refusal(operands).starts_with("dx: it overlaps residual"));
}

TEST_CASE(
    "matrices of a batch that are one matrix are one launch of a layer normalisation, and others are "
    "refused") {
  const Memory memory;
  Operands batch = memory.rows(4);
  for (TensorView Operands::* const operand :
       {&Operands::x, &Operands::y, &Operands::sums, &Operands::statistics, &Operands::multiplier,
        &Operands::addend})
    batch.*operand = dense_view((batch.*operand).data, {2, 2, (batch.*operand).shape[1]});
  const CheckedOperands checked = memory.check(batch);
  CHECK(checked.matrices == 1);
  CHECK(checked.first.n == 4);
  for (TensorView Operands::* const operand : {&Operands::x, &Operands::statistics, &Operands::addend}) {
    Operands apart = batch;
    (apart.*operand).stride[0] *= 2;
    CHECK(memory.refusal(apart) ==
          "x: its matrices are not one matrix of a batch that the kernel takes, as those of a layer "
          "normalisation must be; a launch for each would work");
  }
}

TEST_CASE("a launch of no batch rows computes nothing, and leaves dnorm as it is") {
  for (const Operation operation : {Operation::forward, Operation::grad_input})
    for (const bool cell : {false, true}) {
      const Memory memory(operation, cell);
      CHECK(memory.check(memory.rows(0)).matrices == 0);
    }
}

}  // namespace
}  // namespace sparsekiln

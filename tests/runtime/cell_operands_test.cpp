#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

#include "tests/runtime/contract_memory.h"

// What runtime/operand_check.h takes for the cell of an LSTM, and for its gradients.

namespace sparsekiln {
namespace {

constexpr std::int64_t kFeatures = 32;
constexpr std::int64_t kBlocks = 5;

/// The operands of an LSTM's cell of up to 4 batch rows, whose layer is square.
class Memory : public ContractMemory {
 public:
  explicit Memory(Operation operation = Operation::forward) : ContractMemory(9) {
    contract.operation = operation;
    contract.batch = Batch::up_to(4);
    contract.block = {16, 8};
    contract.in_features = contract.out_features = kFeatures;
    contract.epilogue.lstm = true;
    contract.epilogue.keep = operation == Operation::forward;
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
    const TensorView w = dense_view(place(0), {4, kBlocks, 16, 8});
    if (contract.operation == Operation::forward)
      return {.x = matrix(1, n, kFeatures, type),
              .w = w,
              .y = matrix(2, n, kFeatures, type),
              .projection = matrix(3, n, 4 * kFeatures, type),
              .activations = matrix(4, n, 4 * kFeatures, type),
              .c_before = matrix(5, n, kFeatures),
              .c = matrix(6, n, kFeatures)};
    return {.w = w,
            .dy = matrix(1, n, 4 * kFeatures, type),
            .dx = matrix(2, n, 4 * kFeatures, type),
            .residual = matrix(3, n, kFeatures, type),
            .activations = matrix(4, n, 4 * kFeatures, type),
            .c_before = matrix(5, n, kFeatures),
            .c = matrix(6, n, kFeatures),
            .dc = matrix(7, n, kFeatures),
            .dc_before = matrix(8, n, kFeatures)};
  }
};

struct CellOperand {
  const char* name;
  TensorView Operands::* operand;
  std::int64_t features;
};

TEST_CASE("a cell is launched with its matrices, their strides, and its four weights") {
  const Memory memory;
  Operands operands = memory.rows(3);
  operands.c.stride[0] = 2 * kFeatures;
  const CheckedOperands checked = memory.check(operands);
  CHECK(checked.matrices == 1);
  const LaunchOperands& launch = checked.first;
  CHECK(launch.n == 3);
  CHECK(launch.cell.features == kFeatures);
  CHECK(launch.cell.projection.data == operands.projection.data);
  CHECK(launch.cell.projection.stride == 4 * kFeatures);
  CHECK(launch.cell.activations.data == operands.activations.data);
  CHECK(launch.cell.c_before.data == operands.c_before.data);
  CHECK(launch.cell.c.data == operands.c.data);
  CHECK(launch.cell.c.stride == 2 * kFeatures);
  const auto apart = static_cast<const std::byte*>(launch.v) - static_cast<const std::byte*>(launch.w);
  CHECK(apart == kBlocks * 16 * 8 * 4);
  operands.w = view(operands.w.data, DType::f32, 4 * kBlocks, 16, 8);
  CHECK(memory.check(operands).first.v == launch.v);
}

TEST_CASE("the weights of a cell of an empty layout may have four axes, three, or be left out") {
  for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight}) {
    Memory memory(operation);
    memory.contract.blocks = 0;
    Operands operands = memory.rows(3);
    TensorView& weight = operation == Operation::grad_weight ? operands.dw : operands.w;
    if (operation == Operation::grad_weight)
      operands = {.x = memory.matrix(1, 3, kFeatures), .dy = memory.matrix(2, 3, 4 * kFeatures)};
    for (const TensorView& given : {dense_view(memory.place(0), {4, 0, 16, 8}),
                                    dense_view(memory.place(0), {0, 16, 8}), TensorView()}) {
      weight = given;
      CHECK(memory.refusal(operands).empty());
    }
    weight = dense_view(memory.place(0), {0, 4, 16, 8});
    CHECK(memory.refusal(operands).ends_with("dense [0, 16, 8] or [4, 0, 16, 8], or no such operand"));
  }
}

TEST_CASE("the gradient of a cell reads and computes four gates, and is launched with its matrices") {
  const Memory memory(Operation::grad_input);
  const Operands operands = memory.rows(4);
  const LaunchOperands launch = memory.check(operands).first;
  CHECK(launch.x == operands.dy.data);
  CHECK(launch.x_stride == 4 * kFeatures);
  CHECK(launch.y_stride == 4 * kFeatures);
  CHECK(launch.residual_stride == kFeatures);
  CHECK(launch.cell.features == kFeatures);
  CHECK(launch.cell.dc.data == operands.dc.data);
  CHECK(launch.cell.dc_before.data == operands.dc_before.data);
}

TEST_CASE("the operands of a cell are refused by name, with the shape that the kernel takes") {
  const auto check_each = [](const Memory& memory, const std::vector<CellOperand>& matrices) {
    for (const auto& [name, operand, features] : matrices) {
      CAPTURE(name);
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
      if (operand != &Operands::dy)  // whose rows the others must have
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
  check_each(Memory(), {{"projection", &Operands::projection, 4 * kFeatures},
                        {"activations", &Operands::activations, 4 * kFeatures},
                        {"c_before", &Operands::c_before, kFeatures},
                        {"c", &Operands::c, kFeatures}});
  check_each(Memory(Operation::grad_input), {{"dy", &Operands::dy, 4 * kFeatures},
                                             {"dx", &Operands::dx, 4 * kFeatures},
                                             {"residual", &Operands::residual, kFeatures},
                                             {"activations", &Operands::activations, 4 * kFeatures},
                                             {"c_before", &Operands::c_before, kFeatures},
                                             {"c", &Operands::c, kFeatures},
                                             {"dc", &Operands::dc, kFeatures},
                                             {"dc_before", &Operands::dc_before, kFeatures}});
}

TEST_CASE("the state of a cell is float32 where the gates are f16, and no less aligned than its elements") {
  Memory memory;
  memory.contract.dtype = memory.contract.out_dtype = DType::f16;
  memory.contract.alignment = 2;
  Operands operands = memory.rows(3);
  operands.w.dtype = DType::f16;
  CHECK(memory.refusal(operands).empty());
  operands.c.data = static_cast<std::byte*>(operands.c.data) + 2;
  CHECK(memory.refusal(operands).ends_with("is not aligned to 4 bytes"));
  operands = memory.rows(3);
  operands.w.dtype = operands.c_before.dtype = DType::f16;
  CHECK(memory.refusal(operands) == "c_before: its type is f16, the kernel was compiled for f32");
}

TEST_CASE(
    "the weights of a cell are four of the layout, in one axis of all blocks or with one of the gates") {
  const Memory memory;
  const std::string takes = ", but the kernel takes dense [20, 16, 8] or [4, 5, 16, 8]";
  const auto refusal = [&](const std::vector<std::int64_t>& shape) {
    Operands operands = memory.rows(1);
    operands.w = dense_view(operands.w.data, shape);
    return memory.refusal(operands);
  };
  CHECK(refusal({4, 5, 16, 8}).empty());
  CHECK(refusal({20, 16, 8}).empty());
  CHECK(refusal({5, 16, 8}) == "w: rank 3 and shape [5, 16, 8]" + takes);
  CHECK(refusal({5, 4, 16, 8}) == "w: rank 4 and shape [5, 4, 16, 8]" + takes);
  CHECK(refusal({1, 20, 16, 8}) == "w: rank 4 and shape [1, 20, 16, 8]" + takes);
}

TEST_CASE("c may be where c_before is, at the same stride, and overlaps nothing else") {
  const Memory memory;
  Operands operands = memory.rows(3);
  operands.c = operands.c_before;
  CHECK(memory.refusal(operands).empty());
  operands.c.stride[0] = 2 * kFeatures;
  CHECK(memory.refusal(operands).starts_with("c: it overlaps c_before"));
  operands = memory.rows(3);
  operands.c.data = static_cast<std::byte*>(operands.c_before.data) + 16;
  CHECK(memory.refusal(operands).starts_with("c: it overlaps c_before"));
  for (const auto& [name, other] : {std::pair{"x", &Operands::x},
                                    {"w", &Operands::w},
                                    {"y", &Operands::y},
                                    {"projection", &Operands::projection},
                                    {"activations", &Operands::activations}}) {
    CAPTURE(name);
    operands = memory.rows(3);
    operands.c.data = (operands.*other).data;
    CHECK(memory.refusal(operands).find(std::string("c: it overlaps ") + name) == 0);
  }
  for (TensorView Operands::* const other : {&Operands::x, &Operands::projection, &Operands::c_before}) {
    operands = memory.rows(3);
    operands.activations.data = (operands.*other).data;
    CHECK(memory.refusal(operands).starts_with("activations: it overlaps "));
  }
  operands = memory.rows(3);
  operands.y.data = operands.c_before.data;
  CHECK(memory.refusal(operands).starts_with("y: it overlaps c_before"));
}

TEST_CASE("dc_before may be where dc is, at the same stride, and overlaps nothing else") {
  const Memory memory(Operation::grad_input);
  Operands operands = memory.rows(3);
  operands.dc_before = operands.dc;
  CHECK(memory.refusal(operands).empty());
  operands.dc_before.stride[0] = 2 * kFeatures;
  CHECK(memory.refusal(operands).starts_with("dc_before: it overlaps dc"));
  for (const auto& [name, other] : {std::pair{"dy", &Operands::dy},
                                    {"w", &Operands::w},
                                    {"dx", &Operands::dx},
                                    {"residual", &Operands::residual},
                                    {"activations", &Operands::activations},
                                    {"c_before", &Operands::c_before},
                                    {"c", &Operands::c}}) {
    CAPTURE(name);
    operands = memory.rows(3);
    operands.dc_before.data = (operands.*other).data;
    CHECK(memory.refusal(operands).find(std::string("dc_before: it overlaps ") + name) == 0);
  }
  operands = memory.rows(3);
  operands.dx.data = operands.activations.data;
  CHECK(memory.refusal(operands).starts_with("dx: it overlaps activations"));
}

TEST_CASE("the residual of a gradient of a cell may be the first gate of dx, at the same stride") {
  const Memory memory(Operation::grad_input);
  Operands operands = memory.rows(3);
  operands.residual.data = operands.dx.data;
  CHECK(memory.refusal(operands).starts_with("dx: it overlaps residual"));
  operands.residual.stride[0] = 4 * kFeatures;
  CHECK(memory.refusal(operands).empty());
  operands.residual.data = static_cast<std::byte*>(operands.dx.data) + kFeatures * 4;
  CHECK(memory.refusal(operands).starts_with("dx: it overlaps residual"));
}

TEST_CASE("matrices of a batch that are one matrix are one launch of a cell, and others are refused") {
  const Memory memory;
  const auto split = [](const TensorView& rows) {
    return dense_view(rows.data, {2, rows.shape[0] / 2, rows.shape[1]});
  };
  const Operands rows = memory.rows(4);
  Operands batch = rows;
  for (TensorView Operands::* const operand : {&Operands::x, &Operands::y, &Operands::projection,
                                               &Operands::activations, &Operands::c_before, &Operands::c})
    batch.*operand = split(rows.*operand);
  const CheckedOperands checked = memory.check(batch);
  CHECK(checked.matrices == 1);
  CHECK(checked.first.n == 4);
  CHECK(checked.first.cell.c.stride == kFeatures);
  for (TensorView Operands::* const operand : {&Operands::x, &Operands::c}) {
    Operands apart = batch;
    (apart.*operand).stride[0] *= 2;
    CHECK(memory.refusal(apart) ==
          "x: its matrices are not one matrix of a batch that the kernel takes, as those of an LSTM's cell "
          "must be; a launch for each would work");
  }
}

TEST_CASE("c is not where c_before is if their matrices are at other distances") {
  const Memory memory;
  const Operands rows = memory.rows(4);
  Operands batch = rows;
  for (TensorView Operands::* const operand : {&Operands::x, &Operands::y, &Operands::projection,
                                               &Operands::activations, &Operands::c_before, &Operands::c})
    batch.*operand = dense_view((rows.*operand).data, {4, 1, (rows.*operand).shape[1]});
  batch.c = batch.c_before;
  CHECK(memory.refusal(batch).empty());
  batch.c.stride[0] *= 2;
  CHECK(memory.refusal(batch).starts_with("c: it overlaps c_before"));
}

TEST_CASE("the gradient of the weights of a cell takes x and the gradients of four gates") {
  Memory memory(Operation::grad_weight);
  Operands operands{.x = memory.matrix(1, 3, kFeatures),
                    .dy = memory.matrix(2, 3, 4 * kFeatures),
                    .dw = dense_view(memory.place(0), {4, kBlocks, 16, 8})};
  CHECK(memory.refusal(operands).empty());
  operands.dy = memory.matrix(2, 3, kFeatures);
  CHECK(memory.refusal(operands).starts_with("dy: rank 2 and shape [3, 32], but the kernel takes [n, 128]"));
}

}  // namespace
}  // namespace sparsekiln

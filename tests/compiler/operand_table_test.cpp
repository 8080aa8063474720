#include "compiler/operand_table.h"

#include <algorithm>
#include <string>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>
#include <sparsekiln/layout.h>

namespace sparsekiln {
namespace {

/// Whether a problem of one block may be like this.
bool is_valid(const Computation& what) {
  Problem problem;
  static_cast<Computation&>(problem) = what;
  problem.layout = Layout::from_mask(4, 4, std::vector<std::uint8_t>(16, 1));
  try {
    validate(problem);
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST_CASE("the operands of every epilogue and operation have room, and one main output") {
  std::size_t most = 0;
  std::size_t valid = 0;
  for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight})
    for (unsigned parts = 0; parts < 1U << kEpilogueParts.size(); ++parts)
      for (const bool all : {false, true}) {
        Computation what{.operation = operation, .block = {16, 16}};
        for (std::size_t i = 0; i < kEpilogueParts.size(); ++i)
          what.epilogue.*kEpilogueParts[i].part = (parts >> i & 1) != 0;
        if (what.epilogue.glu) what.epilogue.activation = Activation::silu;
        const bool gradient = operation != Operation::forward;
        if (all && gradient && !what.epilogue.lstm && !what.epilogue.layer_norm)
          what.derivative = Activation::relu;
        what.block_scales = all && !what.epilogue.lstm;
        what.bias_gradient = what.block_scale_gradient =
            all && operation == Operation::grad_weight && what.block_scales;
        if (!is_valid(what)) continue;
        ++valid;
        const TakenOperands taken(what);  // throws where there is no room
        most = std::max(most, static_cast<std::size_t>(taken.end() - taken.begin()));
        CHECK(std::count_if(taken.begin(), taken.end(),
                            [](const OperandRow* row) { return row->is_main(); }) == 1);
        for (const OperandRow* row : taken) {
          CAPTURE(row->name);
          if (row->is_main()) CHECK(row->computed(what));
          // A gradient of the weight takes no activations but those of its pairs.
          if (operation == Operation::grad_weight && row->form == OperandForm::activation)
            CHECK((row->name == "x" || row->name == "dy" || row->name == "z"));
        }
      }
  CHECK(valid > 50);
  CHECK(most > 10);
}

TEST_CASE("an operand is found by its name or alias, and another name is refused with a list") {
  for (const OperandRow& row : operand_rows()) {
    CHECK(&operand_row(row.name) == &row);
    if (!row.alias.empty()) CHECK(&operand_row(row.alias) == &row);
  }
  CHECK(operand_row("gates").name == "block_scales");
  std::string message;
  try {
    static_cast<void>(operand_row("weight"));
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message.starts_with("there is no operand 'weight': x, dy, w, y, "));
}

TEST_CASE("dense operands have the extents that follow from a contract") {
  OperandContract contract;
  contract.block = {16, 8};
  contract.in_features = 24;
  contract.out_features = 40;
  contract.blocks = 7;
  contract.edge_situations = 9;
  const auto extents = [&](Per per) {
    const DenseExtents dense = extents_of(per, contract);
    return std::vector<std::int64_t>(dense.extents.begin(), dense.extents.begin() + dense.rank);
  };
  using Extents = std::vector<std::int64_t>;
  CHECK(extents(Per::feature) == Extents{40});
  CHECK(extents(Per::gradient) == Extents{40});
  CHECK(extents(Per::block_row) == Extents{3});
  CHECK(extents(Per::block) == Extents{7});
  CHECK(extents(Per::situation) == Extents{9, 40});
  contract.operation = Operation::grad_input;
  contract.epilogue = {.lstm = true, .layer_norm = true};
  CHECK(extents(Per::feature) == Extents{4 * 24});
  CHECK(extents(Per::part) == Extents{1, 2 * 4 * 24});
}

}  // namespace
}  // namespace sparsekiln

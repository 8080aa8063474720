#include "compiler/attach.h"

#include <algorithm>
#include <cstring>
#include <string>

#include <doctest/doctest.h>
#include <sparsekiln/patterns.h>

#include "compiler/cuda/emit.h"
#include "compiler/cuda/tables.h"
#include "tests/compiler/cuda/mma_cases.h"

namespace sparsekiln::cuda {
namespace {

const Target kTarget{Target::Kind::cuda, "sm_80", 24};

Plan attached_plan(BlockShape block, Batch batch) {
  Config config = fitting_config(block, kTarget, 8, 2, TableForm::attached);
  config.split = 2;
  Plan plan{{batch.bound(), config}};
  if (batch.dynamic()) {
    config.tile_n = 16;
    plan = {{8, plan.front().config}, {batch.bound(), config}};
  }
  return plan;
}

/// As build_binary makes it, without the code.
Binary shared_binary(const Problem& problem, const Plan& plan) {
  Binary binary;
  binary.target = kTarget;
  binary.plan = plan;
  binary.operands.block = problem.block;
  binary.operands.batch = problem.batch;
  binary.operands.dtype = problem.dtype;
  binary.operands.out_dtype = problem.out_dtype;
  binary.entries = emit(problem, kTarget, plan, {}).entries;
  binary.code = {std::byte{1}};
  return binary;
}

Source emit_baked(const Problem& problem, Plan plan) {
  for (RangedConfig& range : plan) range.config.table = TableForm::global;
  return emit(problem, kTarget, plan, make_schedules(problem, kTarget, plan));
}

template <typename Element>
bool lies_at(const TableImage& image, std::size_t array, const std::vector<Element>& elements) {
  const auto offset = static_cast<std::size_t>(image.offsets[array]);
  const std::size_t bytes = elements.size() * sizeof(Element);
  return offset % 16 == 0 && offset + bytes <= image.bytes.size() &&
         (bytes == 0 || std::memcmp(image.bytes.data() + offset, elements.data(), bytes) == 0);
}

std::string refusal(const Layout& layout, const Binary& shared) {
  try {
    (void)attach(layout, shared);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  return "";
}

TEST_CASE("an image holds the tables of the layout's schedule, each at its offset") {
  for (const std::int32_t rows : {1, 2, 4})
    for (const std::int32_t merge : {1, 2}) {
      CAPTURE(rows);
      CAPTURE(merge);
      const Problem problem = mma_problem({16, 16}, 8, kHalf);
      Plan plan{{8, mma_config(16, OperandA::x, 2, 1)}};
      plan[0].config.table = TableForm::attached;
      plan[0].config.rows = rows;
      plan[0].config.merge = merge;
      const Binary binary = attach(problem.layout, shared_binary(problem, plan));
      const Schedule schedule = make_schedule(problem, kTarget, plan[0].config, 8);
      const Tables tables = make_tables(schedule, chunk_shape(problem, kTarget, plan[0].config));
      const TableImage& image = binary.entries[0].tables;
      CHECK(lies_at(image, 0, tables.worker_begin));
      CHECK(lies_at(image, 1, tables.steps));
      CHECK(lies_at(image, 2, tables.more_blocks));
      CHECK(lies_at(image, 3, tables.item_ends));
      CHECK(lies_at(image, 4, tables.rows));
      CHECK(lies_at(image, 5, tables.splits));
      CHECK(lies_at(image, 6, tables.parts));
      CHECK(image.counters == schedule.counters);
      CHECK(image.bytes.size() % 16 == 0);
    }
}

TEST_CASE("an attached layout has the workers and the workspace of the baked one, in every range of n") {
  for (const Batch batch : {Batch(8), Batch::up_to(100)}) {
    const Problem problem = skewed_problem({16, 16}, batch);
    const Plan plan = attached_plan(problem.block, batch);
    const Binary binary = attach(problem.layout, shared_binary(problem, plan));
    const Source baked = emit_baked(problem, plan);
    REQUIRE(binary.entries.size() == baked.entries.size());
    for (std::size_t i = 0; i < binary.entries.size(); ++i) {
      CAPTURE(i);
      CHECK(binary.entries[i].workers == baked.entries[i].workers);
      CHECK(binary.entries[i].workspace == baked.entries[i].workspace);
      CHECK(binary.entries[i].workspace.counter_bytes > 0);  // else no row is split, and this tests little
    }
  }
}

TEST_CASE("the contract names the layout's features and blocks, and the code stays") {
  const Problem problem = skewed_problem({16, 32}, 8);
  const Binary shared = shared_binary(problem, attached_plan(problem.block, 8));
  CHECK(shared.lacks_layout());
  const Binary binary = attach(problem.layout, shared);
  CHECK_FALSE(binary.lacks_layout());
  CHECK(binary.operands.out_features == 4 * 16);
  CHECK(binary.operands.in_features == 23 * 32);
  CHECK(binary.operands.blocks == problem.layout.blocks());
  CHECK(binary.code == shared.code);
  CHECK(binary.plan == shared.plan);
}

TEST_CASE("attaching a layout leaves nothing of the previous one") {
  const Problem problem = skewed_problem({16, 16}, Batch::up_to(40));
  const Binary shared = shared_binary(problem, attached_plan(problem.block, problem.batch));
  const Layout other = patterns::random(9, 7, 0.5, 3);
  CHECK(attach(other, attach(problem.layout, shared)) == attach(other, shared));
  CHECK_FALSE(attach(other, shared) == attach(problem.layout, shared));
}

TEST_CASE("a layout without blocks, and one without rows, can be attached") {
  const Problem problem = skewed_problem({16, 16}, 8);
  const Binary shared = shared_binary(problem, attached_plan(problem.block, 8));
  const Binary none = attach(Layout::from_mask(3, 4, std::vector<std::uint8_t>(12, 0)), shared);
  CHECK(none.entries[0].workers > 0);
  CHECK(none.operands.out_features == 48);
  CHECK_FALSE(attach(Layout(), shared).lacks_layout());
}

/// A strided convolution with block scales.
Problem convolution_of(Operation operation, const Layout& layout) {
  Problem problem = mma_problem({16, 16}, 2, kHalf);
  problem.layout = layout;
  problem.operation = operation;
  problem.block_scales = true;
  problem.convolution = parse_convolution("kernel=3x3 stride=2 padding=1 input=9x8");
  problem.epilogue.edge_bias = operation == Operation::forward;
  return problem;
}

TEST_CASE("the code of an attached convolution does not depend on the layout that it is made for") {
  for (const Operation operation : {Operation::forward, Operation::grad_input}) {
    Plan plan{{2, mma_config(16, OperandA::x, 2, 1)}};
    plan[0].config.table = TableForm::attached;
    const auto text_for = [&](const Layout& layout) {
      return emit(convolution_of(operation, layout), kTarget, plan, {}).text;
    };
    const std::string text = text_for(patterns::random(3, 4, 0.5, 1));
    CHECK(text == text_for(patterns::random(9, 7, 0.2, 2)));
    CHECK(text.find("block / 9") != std::string::npos);  // the scale of a block of values
  }
}

TEST_CASE("rows of a convolution that scatters say their block row and their class, whatever the layout") {
  const Layout layout = patterns::random(5, 3, 0.7, 1);
  const Spmm product(convolution_of(Operation::grad_input, layout));
  const Config config = mma_config(16, OperandA::x, 2, 1);
  const Schedule schedule = make_schedule(product, kTarget, config, 2);
  const ChunkShape chunk = chunk_shape(product, kTarget, config);
  const Tables plain = make_tables(schedule, chunk);
  const Tables tables = make_tables(product, schedule, chunk);
  CHECK(tables.steps == plain.steps);
  REQUIRE(tables.rows.size() == plain.rows.size());
  constexpr std::int32_t kClasses = 4;  // of a stride of 2 x 2
  for (std::size_t i = 0; i < tables.rows.size(); ++i) {
    CHECK(tables.rows[i] / kClasses == plain.rows[i] % 3);  // 3 blocks of input features
    CHECK(tables.rows[i] % kClasses == plain.rows[i] / 3);
  }
  CHECK(std::ranges::max(tables.rows) == 3 * kClasses - 1);
}

TEST_CASE("code that has its layout in it takes no other") {
  const Problem problem = skewed_problem({16, 16}, 8);
  Plan plan = attached_plan(problem.block, 8);
  Binary binary = shared_binary(problem, plan);
  binary.plan[0].config.table = TableForm::constant;
  CHECK(refusal(problem.layout, binary).find("table=attached would work") != std::string::npos);
}

}  // namespace
}  // namespace sparsekiln::cuda

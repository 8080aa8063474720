#include "emulator/machine/wgmma.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "emulator/machine/async_proxy.h"
#include "emulator/machine/block.h"
#include "emulator/machine/warp.h"
#include "emulator/program/async_registers.h"

namespace sparsekiln::emulator {
namespace {

WarpMatrix& matrix_of(const Warp& warp) { return warp.block->matrix.warps[warp.index]; }

/// Whether the program has a wgmma.mma_async at all.
bool has_matrix(const Warp& warp) { return !warp.block->matrix.warps.empty(); }

std::string code_at(const Warp& warp, std::uint32_t pc) {
  return describe_code(warp.block->grid.program, pc);
}

[[noreturn]] void fail(FaultKind kind, const Warp& warp, const Instruction& instruction,
                       const std::string& what) {
  fault(kind, warp, instruction, std::countr_zero(warp.active), what);
}

// ---- what the warps of a warpgroup execute ----

std::string of_warp(std::uint32_t warp) { return "warp " + std::to_string(warp) + " of the block"; }

void check_step(const Warp& warp, const Instruction& instruction, const WarpgroupStep& before,
                const WarpgroupStep& now) {
  if (before.pc != now.pc)
    fail(FaultKind::invalid_operation, warp, instruction,
         "the warps of a warpgroup must execute the same wgmma instructions in the same order, but where "
         "this one "
         "has it another has " +
             code_at(warp, before.pc));
  const auto check = [&](const char* what, std::uint64_t mine, std::uint64_t other) {
    if (mine == other) return;
    fail(FaultKind::invalid_operation, warp, instruction,
         std::string(what) + " must be the same in all warps of a warpgroup: " + hex(mine) + " here, " +
             hex(other) + " in another");
  };
  check("the descriptor of A", now.a, before.a);
  check("the descriptor of B", now.b, before.b);
  check("scale-d", now.accumulates ? 1 : 0, before.accumulates ? 1 : 0);
}

/// A warp executes its next wgmma instruction: the others of its warpgroup must do the same. Gives the step
/// that they share.
WarpgroupStep& follow(const Warp& warp, const Instruction& instruction, const WarpgroupStep& step) {
  Block& block = *warp.block;
  const std::uint32_t first = warp.index / kWarpgroupWarps * kWarpgroupWarps;
  if ((first + kWarpgroupWarps) * kLanes > block.grid.threads)
    fail(FaultKind::invalid_operation, warp, instruction,
         "needs a whole warpgroup, four warps from a multiple of four on; the block has " +
             std::to_string(block.grid.threads) + " threads");
  WarpgroupSteps& group = block.matrix.groups[warp.index / kWarpgroupWarps];
  const std::uint64_t number = group.executed[warp.index - first]++;
  for (std::uint32_t w = 0; w < kWarpgroupWarps; ++w)
    if (group.executed[w] <= number && block.warps[first + w].live == 0)
      fail(FaultKind::invalid_operation, warp, instruction,
           "all warps of a warpgroup must execute it, but " + of_warp(first + w) + " has ended");
  if (number - group.first == group.steps.size())
    group.steps.push_back(step);
  else
    check_step(warp, instruction, group.steps[number - group.first], step);
  while (*std::min_element(group.executed.begin(), group.executed.end()) > group.first + 1) {
    group.steps.pop_front();
    ++group.first;
  }
  return group.steps[number - group.first];
}

// ---- registers ----

AsyncRegister& register_at(WarpMatrix& matrix, std::uint32_t row) {
  return matrix.registers[row / kAsyncRowBytes];
}

bool in_flight(const WarpMatrix& matrix, const AsyncRegister& accessed) {
  return accessed.group > matrix.awaited;
}

[[noreturn]] void report_not_awaited(const Warp& warp, const Instruction& instruction,
                                     const AsyncRegister& accessed) {
  const bool committed = accessed.group <= matrix_of(warp).committed;
  fail(FaultKind::registers_not_awaited, warp, instruction,
       std::string(accessed.shape == AsyncRegister::kFragment ? "a register of A" : "an accumulator") +
           " is accessed while a wgmma may be using it: no wgmma.wait_group has waited for its group" +
           (committed ? "" : ", which is not committed") + "; that is " + code_at(warp, accessed.pc));
}

/// `shape`: what the wgmma that is issued makes of the register.
void check_access(const Warp& warp, const Instruction& instruction, const AsyncRegister& accessed,
                  std::uint32_t shape) {
  const WarpMatrix& matrix = matrix_of(warp);
  const bool fragments = shape == AsyncRegister::kFragment;
  const char* const what = fragments ? "a register of A" : "an accumulator";
  if (accessed.accessed == matrix.fences)
    fail(FaultKind::registers_not_fenced, warp, instruction,
         std::string(what) + " was accessed by another instruction" +
             (matrix.fences == 0 ? ", and the warp has executed no wgmma.fence"
                                 : " after the last wgmma.fence of the warp"));
  if (accessed.shape == 0 || accessed.shape == shape) return;
  const bool changes_use = fragments || accessed.shape == AsyncRegister::kFragment;
  if (changes_use && in_flight(matrix, accessed)) report_not_awaited(warp, instruction, accessed);
  if (accessed.fenced == matrix.fences)
    fail(FaultKind::registers_not_fenced, warp, instruction,
         std::string(what) + " was accessed by a wgmma of another shape after the last wgmma.fence: " +
             code_at(warp, accessed.pc));
}

void access(Warp& warp, const Instruction& instruction, std::span<const std::uint32_t> rows,
            std::uint32_t shape) {
  WarpMatrix& matrix = matrix_of(warp);
  const std::uint32_t pc = pc_of(warp, instruction);
  for (const std::uint32_t row : rows) {
    AsyncRegister& accessed = register_at(matrix, row);
    check_access(warp, instruction, accessed, shape);
    accessed.group = matrix.committed + 1;
    accessed.fenced = matrix.fences;
    accessed.shape = shape;
    accessed.pc = pc;
    accessed.copied = false;
  }
}

/// Runs what is queued up to and with a group, in the order of issue.
void run_queued(Warp& warp, std::uint32_t group) {
  std::vector<MatrixOperation>& queued = matrix_of(warp).queued;
  auto next = queued.begin();
  for (; next != queued.end() && next->group <= group; ++next) next->run(warp, *next);
  queued.erase(queued.begin(), next);
}

/// A mov gives a register another name: what holds for the one holds for the other.
void copy_register(Warp& warp, const Instruction& instruction) {
  WarpMatrix& matrix = matrix_of(warp);
  AsyncRegister& to = register_at(matrix, instruction.operands[0]);
  const AsyncRegister& from = register_at(matrix, instruction.operands[1]);
  if (in_flight(matrix, to) && !to.copied) report_not_awaited(warp, instruction, to);
  if (in_flight(matrix, from)) run_queued(warp, from.group);
  to = from;
  to.copied = true;
}

/// Calls use(warp) for the warps of a warpgroup.
template <class Use>
void each_of_group(const Warp& warp, Use use) {
  const std::uint32_t first = warp.index / kWarpgroupWarps * kWarpgroupWarps;
  for (std::uint32_t w = first; w < first + kWarpgroupWarps && w < warp.block->grid.warps; ++w)
    use(warp.block->warps[w]);
}

/// Whether all warps of a warpgroup that have not ended have committed a group: it is one operation of all of
/// them, which cannot end before each has issued it.
bool all_committed(const Warp& warp, std::uint32_t group) {
  bool all = true;
  each_of_group(warp, [&](const Warp& other) {
    all = all && (other.live == 0 || matrix_of(other).committed >= group);
  });
  return all;
}

/// The warp runs the instruction once more when another of its warpgroup has committed a group.
void suspend(Warp& warp, const Instruction& instruction) {
  matrix_of(warp).suspended = true;
  warp.state = WarpState::waiting;
  warp.block->ready &= ~(1u << warp.index);
  warp.pc = pc_of(warp, instruction);
}

}  // namespace

Agent matrix_agent(const Warp& warp) {
  return {.block = warp.block->index,
          .slot = agent_slot(*warp.block, AgentKind::warpgroup_matrix, warp.index / kWarpgroupWarps),
          .time = matrix_of(warp).committed + 1};
}

WarpgroupStep& check_matrix(Warp& warp, const MatrixOperation& operation, const MatrixRegisters& registers) {
  const Instruction& instruction = *operation.instruction;
  WarpgroupStep& step = follow(warp, instruction,
                               {.pc = pc_of(warp, instruction),
                                .a = operation.a,
                                .b = operation.b,
                                .accumulates = operation.accumulates});
  access(warp, instruction, registers.a, AsyncRegister::kFragment);
  access(warp, instruction, registers.sums, registers.shape);
  return step;
}

void queue_matrix(Warp& warp, const MatrixOperation& operation) {
  WarpMatrix& matrix = matrix_of(warp);
  matrix.queued.push_back(operation);
  matrix.queued.back().group = matrix.committed + 1;
  if (draw(warp) % 2 == 0) run_queued(warp, matrix.committed + 1);
}

void fence_matrix(Warp& warp, const Instruction& instruction) {
  if (!has_matrix(warp)) return;
  (void)follow(warp, instruction, {.pc = pc_of(warp, instruction)});
  ++matrix_of(warp).fences;
}

void commit_matrix(Warp& warp, const Instruction& instruction) {
  if (!has_matrix(warp)) return;
  (void)follow(warp, instruction, {.pc = pc_of(warp, instruction)});
  ++matrix_of(warp).committed;
  each_of_group(warp, [](Warp& other) {
    if (!std::exchange(matrix_of(other).suspended, false)) return;
    other.block->wake(1u << other.index);
  });
}

void wait_matrix(Warp& warp, const Instruction& instruction, std::uint32_t pending) {
  if (!has_matrix(warp)) return;
  WarpMatrix& matrix = matrix_of(warp);
  const bool waits = matrix.committed > matrix.awaited + pending;
  if (waits && !all_committed(warp, matrix.committed - pending)) return suspend(warp, instruction);
  (void)follow(warp, instruction, {.pc = pc_of(warp, instruction)});
  if (!waits) return;
  matrix.awaited = matrix.committed - pending;
  each_of_group(warp, [&](Warp& other) { run_queued(other, matrix.awaited); });
  Agent agent = matrix_agent(warp);
  agent.time = matrix.awaited;
  learn_of(warp, kAllLanes, agent);
}

void report_matrix(const Block& block) {
  for (std::uint32_t w = 0; w < block.matrix.warps.size(); ++w) {
    const Warp& warp = block.warps[w];
    if (block.matrix.warps[w].suspended)
      fail(FaultKind::barrier_not_reached, warp, block.grid.program.code[warp.pc],
           "waits for a group of wgmma that another warp of its warpgroup never commits");
  }
}

void touch_async_registers(Warp& warp, const Instruction& instruction, Mask mask) {
  if ((instruction.traits & kCopiesRegister) != 0 && mask == kAllLanes) {
    copy_register(warp, instruction);
    return;
  }
  WarpMatrix& matrix = matrix_of(warp);
  for (std::uint32_t i = 0; i < instruction.operand_count; ++i) {
    const std::uint32_t number = instruction.operands[i] / kAsyncRowBytes;
    if (number >= matrix.registers.size()) continue;
    AsyncRegister& touched = matrix.registers[number];
    if (in_flight(matrix, touched)) report_not_awaited(warp, instruction, touched);
    touched.accessed = matrix.fences;
  }
}

void end_matrix(const Warp& warp) {
  const Block& block = *warp.block;
  if (block.matrix.groups.empty()) return;
  const std::uint32_t group = warp.index / kWarpgroupWarps;
  const WarpgroupSteps& steps = block.matrix.groups[group];
  const std::uint64_t executed = steps.executed[warp.index % kWarpgroupWarps];
  if (executed - steps.first >= steps.steps.size()) return;
  const std::uint32_t pc = steps.steps[executed - steps.first].pc;
  const Instruction& last = block.grid.program.code[warp.pc == 0 ? 0 : warp.pc - 1];
  fault(FaultKind::invalid_operation, warp, last, 0,
        "all warps of a warpgroup must execute the same wgmma instructions, but " + of_warp(warp.index) +
            " has ended without " + code_at(warp, pc));
}

}  // namespace sparsekiln::emulator

#include "emulator/machine/report.h"

#include <bit>

#include "emulator/machine/block.h"
#include "emulator/machine/warp.h"

namespace sparsekiln::emulator {
namespace {

std::string place(const std::uint32_t (&at)[3]) {
  return "(" + std::to_string(at[0]) + "," + std::to_string(at[1]) + "," + std::to_string(at[2]) + ")";
}

}  // namespace

const char* name(FaultKind kind) {
  switch (kind) {
    case FaultKind::out_of_bounds:
      return "out of bounds";
    case FaultKind::misaligned:
      return "misaligned";
    case FaultKind::unwritten_read:
      return "read of unwritten memory";
    case FaultKind::race:
      return "race";
    case FaultKind::barrier_not_reached:
      return "barrier not reached";
    case FaultKind::copy_not_awaited:
      return "asynchronous copy not awaited";
    case FaultKind::copy_overwritten:
      return "asynchronous copy overwritten";
    case FaultKind::deadlock:
      return "deadlock";
    case FaultKind::divergence_not_supported:
      return "divergence not supported";
    case FaultKind::trap:
      return "trap";
    case FaultKind::invalid_operation:
      return "invalid operation";
  }
  return "fault";
}

std::string describe_code(const Program& program, std::uint32_t pc) {
  if (pc >= program.code.size() || program.code[pc].statement >= program.function.statements.size())
    return "the end of the kernel";
  const ptx::Statement& statement = program.statement(program.code[pc]);
  std::string text = text_of(program.function, statement) + " at PTX line " + std::to_string(statement.line);
  if (statement.source.line != 0 && statement.source.file < program.files.size())
    text += ", " + program.files[statement.source.file] + ":" + std::to_string(statement.source.line);
  return text;
}

std::string describe_thread(const Site& site) {
  return "thread " + place(site.thread) + " of block " + place(site.block);
}

std::string describe(const Site& site) {
  return "kernel " + site.program->function.name + ", block " + place(site.block) + ", thread " +
         place(site.thread) + ": " + describe_code(*site.program, site.pc);
}

Site site_of(const Block& block, std::uint32_t block_number, std::uint32_t warp, int lane, std::uint32_t pc) {
  Site site;
  site.program = &block.grid.program;
  site.pc = pc;
  block.grid.block_place(block_number, site.block);
  block.grid.thread_place(warp * kLanes + static_cast<std::uint32_t>(lane), site.thread);
  return site;
}

Site site_of(const Warp& warp, const Instruction& instruction, int lane) {
  return site_of(*warp.block, warp.block->index, warp.index, lane, pc_of(warp, instruction));
}

void fault(FaultKind kind, const Warp& warp, const Instruction& instruction, int lane,
           const std::string& what) {
  throw Fault(kind,
              std::string(name(kind)) + ": " + what + "; " + describe(site_of(warp, instruction, lane)));
}

void fault_missing(const Warp& warp, const Instruction& instruction, int lane, Mask missing) {
  const Mask parted = missing & ~warp.active;
  const std::string who = "lane " + std::to_string(std::countr_zero(parted != 0 ? parted : missing)) +
                          " is in the member mask of lane " + std::to_string(lane) +
                          " but does not execute the instruction with it";
  if (parted == 0) fault(FaultKind::barrier_not_reached, warp, instruction, lane, who);
  fault(FaultKind::divergence_not_supported, warp, instruction, lane,
        who + ": it is on another side of a branch, and in the emulator lanes meet only after the branch");
}

}  // namespace sparsekiln::emulator

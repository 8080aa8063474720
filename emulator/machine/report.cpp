#include "emulator/machine/report.h"

#include <cstdio>

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
    case FaultKind::launch_not_awaited:
      return "earlier launch not awaited";
    case FaultKind::registers_not_awaited:
      return "registers of a wgmma not awaited";
    case FaultKind::registers_not_fenced:
      return "registers of a wgmma not fenced";
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

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace sparsekiln::emulator

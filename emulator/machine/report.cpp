#include "emulator/machine/report.h"

#include <cstdio>
#include <iterator>

namespace sparsekiln::emulator {
namespace {

std::string place(const std::uint32_t (&at)[3]) {
  return "(" + std::to_string(at[0]) + "," + std::to_string(at[1]) + "," + std::to_string(at[2]) + ")";
}

}  // namespace

const char* name(FaultKind kind) {
  static constexpr const char* kNames[] = {
      "out of bounds",
      "misaligned",
      "read of unwritten memory",
      "race",
      "barrier not reached",
      "asynchronous copy not awaited",
      "asynchronous copy overwritten",
      "earlier launch not awaited",
      "registers of a wgmma not awaited",
      "registers of a wgmma not fenced",
      "deadlock",
      "divergence not supported",
      "trap",
      "invalid operation",
  };
  static_assert(std::size(kNames) == static_cast<std::size_t>(FaultKind::invalid_operation) + 1);
  return kNames[static_cast<std::size_t>(kind)];
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

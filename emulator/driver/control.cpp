#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

#include "emulator/driver/call.h"

// What control.h promises.

using namespace sparsekiln::driver;
namespace emulator = sparsekiln::emulator;

namespace {

/// A line with one space where it has white space, and none at its ends.
std::string tidy(std::string_view line) {
  std::string text;
  for (const char letter : line) {
    const bool space = letter == ' ' || letter == '\t' || letter == '\r';
    if (space && (text.empty() || text.back() == ' ')) continue;
    text += space ? ' ' : letter;
  }
  if (text.ends_with(' ')) text.pop_back();
  return text;
}

/// The lines of a text, each of them tidy.
std::vector<std::string> tidy_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(tidy(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// Calls `use` for the instructions of one kernel, in the order of its text.
void tell(const KernelCounters& kernel, void (*use)(const EmulatorLine*, void*), void* with) {
  const emulator::Program& program = *kernel.program;
  const std::vector<std::string> lines = tidy_lines(*kernel.text);
  std::vector<std::size_t> order(std::min(program.code.size(), kernel.counters.size()));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return program.code[a].statement < program.code[b].statement;
  });
  for (const std::size_t pc : order) {
    const emulator::LineCounters& counted = kernel.counters[pc];
    const emulator::Instruction& instruction = program.code[pc];
    if (counted.executed == 0 || instruction.statement >= program.function.statements.size()) continue;
    const sparsekiln::ptx::Statement& statement = program.statement(instruction);
    const auto number = static_cast<std::size_t>(statement.line);
    const bool has_file = statement.source.line != 0 && statement.source.file < program.files.size();
    EmulatorLine line{};
    line.kernel = program.function.name.c_str();
    line.ptx_line = static_cast<unsigned>(statement.line);
    line.instruction = number >= 1 && number <= lines.size() ? lines[number - 1].c_str() : "";
    line.source_file = has_file ? program.files[statement.source.file].c_str() : "";
    line.source_line = statement.source.line;
    line.kind = emulator::name(instruction.kind);
    line.executed = counted.executed;
    line.global_requests = counted.global_requests;
    line.global_sectors = counted.global_sectors;
    line.global_bytes = counted.global_bytes;
    line.shared_wavefronts = counted.shared_wavefronts;
    line.shared_ideal = counted.shared_ideal;
    line.tensor_operations = counted.tensor_operations;
    line.divergent = counted.divergent;
    use(&line, with);
  }
}

/// Allocates nothing: an answer of zeros for want of memory would be one that nothing leaked.
EmulatorHeld held_now() {
  EmulatorHeld held{};
  held.allocations = process().host_memory.size();
  process().contexts.each([&](const Context& context) { held.allocations += context.memory.allocations(); });
  process().modules.each([&](const Module& module) { held.allocations -= module.globals.size(); });
  held.modules = process().modules.size() + process().libraries.size();
  held.streams = process().streams.size();
  held.events = process().events.size();
  held.graphs = process().graphs.size() + process().executables.size();
  return held;
}

/// No exception crosses this interface, which has no results to say what failed: `otherwise` where one came.
template <class Body, class Value>
Value contained(Value otherwise, Body body) noexcept {
  try {
    return body();
  } catch (...) {
    return otherwise;
  }
}
template <class Body>
void contained(Body body) noexcept {
  contained(0, [&] {
    body();
    return 0;
  });
}

}  // namespace

void emulatorSetSeed(uint64_t seed) {
  contained([&] { process().seed = seed; });
}
uint64_t emulatorSeed() {
  return contained(uint64_t{0}, [] { return process().seed.load(); });
}

void emulatorSetChecks(unsigned checks) {
  contained([&] { process().checks = checks & EMULATOR_CHECK_ALL; });
}
unsigned emulatorChecks() {
  return contained(0u, [] { return process().checks.load(); });
}

void emulatorSetThreads(int threads) {
  contained([&] { process().threads = std::max(0, threads); });
}

const char* emulatorLastReport() {
  return contained("", [] {
    // Shared, not copied: the fault may have been a lack of memory.
    thread_local std::shared_ptr<const std::string> kept;
    const std::lock_guard lock(process().report_mutex);
    kept = process().report;
    return kept == nullptr ? "" : kept->c_str();
  });
}

void emulatorResetCounters() {
  contained([] {
    const std::lock_guard lock(process().report_mutex);
    process().counters.clear();
  });
}

void emulatorCounters(void (*use)(const EmulatorLine* line, void* with), void* with) {
  if (use == nullptr) return;
  contained([&] {
    std::vector<KernelCounters> kernels;
    {
      const std::lock_guard lock(process().report_mutex);
      kernels = process().counters;
    }
    for (const KernelCounters& kernel : kernels) tell(kernel, use, with);
  });
}

void emulatorFailCall(int kind, unsigned n, int result) {
  if (kind < 0 || kind >= EMULATOR_FAULT_KINDS) return;
  contained([&] {
    const std::lock_guard lock(process().fault_mutex);
    process().faults[static_cast<std::size_t>(kind)] = {n, static_cast<CUresult>(result)};
  });
}

EmulatorHeld emulatorHeld() { return contained(EmulatorHeld{}, held_now); }

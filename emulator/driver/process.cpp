#include "emulator/driver/process.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace sparsekiln::driver {
namespace {

constexpr std::string_view kFaultNames[] = {"allocate", "load", "launch", "synchronize", "copy"};
static_assert(std::size(kFaultNames) == EMULATOR_FAULT_KINDS);

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

/// The text before the next `separator`, which is taken off.
std::string_view take(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

template <class Number>
Number number(std::string_view text, Number otherwise) {
  Number value = otherwise;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc{} && end == text.data() + text.size() ? value : otherwise;
}

/// "all", "none", "unwritten,races". A word that is not known asks for all: a slip must not turn checks off.
unsigned parse_checks(std::string_view text) {
  if (text.empty() || text == "all") return EMULATOR_CHECK_ALL;
  unsigned checks = 0;
  while (!text.empty()) {
    const std::string_view name = take(text, ',');
    if (name != "unwritten" && name != "races" && name != "counters" && name != "none")
      return EMULATOR_CHECK_ALL;
    if (name == "unwritten") checks |= EMULATOR_CHECK_UNWRITTEN;
    if (name == "races") checks |= EMULATOR_CHECK_RACES;
    if (name == "counters") checks |= EMULATOR_CHECK_COUNTERS;
  }
  return checks;
}

/// Kernels that were unloaded and whose counters are kept: their programs are large, and a process may load
/// thousands.
constexpr std::ptrdiff_t kUnloadedKept = 64;

/// Makes room for one more if there are too many kernels that are no longer loaded.
void forget_oldest(std::vector<KernelCounters>& counters) {
  const auto unloaded = [](const KernelCounters& kernel) { return kernel.program.use_count() == 1; };
  if (std::count_if(counters.begin(), counters.end(), unloaded) < kUnloadedKept) return;
  counters.erase(std::min_element(counters.begin(), counters.end(), [&](const auto& a, const auto& b) {
    return std::pair(!unloaded(a), a.last_run) < std::pair(!unloaded(b), b.last_run);
  }));
}

}  // namespace

Process::Process() : primaries(devices().size()) {
  for (Primary& primary : primaries) primary.handle = reinterpret_cast<CUcontext>(next_handle());
  seed = number<std::uint64_t>(variable("SPARSEKILN_EMULATOR_SEED"), 0);
  checks = parse_checks(variable("SPARSEKILN_EMULATOR_CHECKS"));
  threads = std::max(0, number(variable("SPARSEKILN_EMULATOR_THREADS"), 0));
  blocking_launches = variable("CUDA_LAUNCH_BLOCKING") == "1";
  // launch:3:700
  std::string_view fault = variable("SPARSEKILN_EMULATOR_FAULT");
  const std::string_view kind = take(fault, ':');
  const auto* const found = std::find(std::begin(kFaultNames), std::end(kFaultNames), kind);
  if (found == std::end(kFaultNames)) return;
  PlannedFault& planned = faults[static_cast<std::size_t>(found - std::begin(kFaultNames))];
  planned.after = number(take(fault, ':'), 0u);
  planned.result = static_cast<CUresult>(number(take(fault, ':'), int{CUDA_ERROR_UNKNOWN}));
}

CUresult Process::planned_fault(int kind) {
  const std::lock_guard lock(fault_mutex);
  PlannedFault& planned = faults[static_cast<std::size_t>(kind)];
  if (planned.after == 0 || --planned.after != 0) return CUDA_SUCCESS;
  return planned.result;
}

void Process::set_report(std::string text) {
  auto kept = std::make_shared<const std::string>(std::move(text));
  const std::lock_guard lock(report_mutex);
  report = std::move(kept);
}

void Process::count(const Function& function, const emulator::Counters& added) {
  const std::lock_guard lock(report_mutex);
  const auto same = [&](const KernelCounters& kernel) {
    return kernel.program == function.program ||
           (kernel.program->function.name == function.program->function.name &&
            *kernel.text == *function.text);
  };
  auto found = std::find_if(counters.begin(), counters.end(), same);
  if (found == counters.end()) {
    forget_oldest(counters);
    counters.push_back({function.program, function.text, emulator::Counters(function.program->code.size())});
    found = counters.end() - 1;
  }
  found->last_run = ++runs;
  const std::size_t size = std::min(found->counters.size(), added.size());
  for (std::size_t pc = 0; pc < size; ++pc) found->counters[pc] += added[pc];
}

void Process::destroy(CUcontext handle) {
  const std::shared_ptr<Context> context = contexts.remove(handle);
  if (context == nullptr) return;
  const auto belongs = [&](const auto& object) { return object.context == context; };
  // The last references go here, outside the registries' locks.
  const auto gone_streams = streams.remove_if(belongs);
  {
    const std::lock_guard lock(capturing);
    for (const auto& stream : gone_streams) {
      if (stream->capture != nullptr) stream->capture->invalidated = true;
      std::erase(captures, stream->capture);
    }
  }
  events.remove_if(belongs);
  executables.remove_if(belongs);
  functions.remove_if(belongs);
  host_memory.remove_if(belongs);
  for (const auto& library : libraries.all()) {
    const std::lock_guard lock(library->mutex);
    library->modules.erase(handle);
  }
  const std::lock_guard lock(context->work);  // launches know the variables that go now
  modules.remove_if(belongs);
}

std::uint64_t next_base() {
  // 4 TiB apart, below 0x4b00'0000'0000: programs and their libraries lie above 0x5500'0000'0000.
  constexpr std::uint64_t kApart = 0x0400'0000'0000;
  constexpr std::uint64_t kPlaces = 17;
  static std::atomic<std::uint64_t> made = 0;
  return emulator::kGlobalBase + kApart * (made.fetch_add(1) % kPlaces);
}

Process& process() {
  static Process* const kept = new Process;  // outlives whatever calls at the end of the process
  return *kept;
}

bool& in_host_function() {
  thread_local bool runs = false;
  return runs;
}

ContextStack& context_stack() {
  thread_local ContextStack stack;  // zero at start
  return stack;
}

}  // namespace sparsekiln::driver

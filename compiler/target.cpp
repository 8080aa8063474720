#include <sparsekiln/target.h>

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>
#include <sched.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "compiler/cpu_levels.h"
#include "compiler/host_threads.h"
#ifdef SPARSEKILN_CPU
#include "compiler/cpu/object.h"
#endif

namespace sparsekiln {
namespace {

struct Preset {
  std::string_view name;
  std::string_view arch;
  std::int32_t workers;
};

/// Streaming multiprocessors by NVIDIA's data sheets and architecture white papers (Turing TU104 2018, Ampere
/// GA100 2020 and GA102 2021, Ada AD102 2022, Hopper GH100 2022, Blackwell 2025). The first of an
/// architecture is its default.
constexpr std::array kGpus{
    Preset{"t4", "sm_75", 40},     Preset{"rtx2080ti", "sm_75", 68},  Preset{"a100", "sm_80", 108},
    Preset{"a30", "sm_80", 56},    Preset{"rtx3090", "sm_86", 82},    Preset{"a10", "sm_86", 72},
    Preset{"a40", "sm_86", 84},    Preset{"orin", "sm_87", 16},       Preset{"rtx4090", "sm_89", 128},
    Preset{"l4", "sm_89", 58},     Preset{"l40s", "sm_89", 142},      Preset{"h100", "sm_90", 132},
    Preset{"h200", "sm_90", 132},  Preset{"h100-pcie", "sm_90", 114}, Preset{"b200", "sm_100", 148},
    Preset{"b300", "sm_103", 160}, Preset{"thor", "sm_110", 20},      Preset{"rtx5090", "sm_120", 170},
    Preset{"gb10", "sm_121", 48},
};

constexpr std::int32_t kMaxWorkers = 1 << 16;

std::string known() {
  std::string presets;
  for (const Preset& gpu : kGpus) presets += fmt::format("{}, ", gpu.name);
  return fmt::format("one of cpu, {}{}, or sm_75 and later, each with :WORKERS at will", presets,
                     cpu::level_names());
}

/// The digits of "sm_90a" as 90; 0 where the text is no architecture.
int capability_of(std::string_view arch) {
  if (!arch.starts_with("sm_")) return 0;
  int capability = 0;
  const char* const end = arch.data() + arch.size();
  const auto [rest, status] = std::from_chars(arch.data() + 3, end, capability);
  if (status != std::errc{} || arch[3] == '0') return 0;
  const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  const bool plain = suffix.empty();
  const bool specific = (suffix == "a" && capability >= 90) || (suffix == "f" && capability >= 100);
  return capability >= 75 && capability < 1000 && (plain || specific) ? capability : 0;
}

std::int32_t usual_workers(std::string_view arch) {
  const int capability = capability_of(arch);
  for (const Preset& gpu : kGpus)
    if (capability_of(gpu.arch) == capability) return gpu.workers;
  return 108;  // A100's: a middle size, for an architecture without a part in the table
}

}  // namespace

std::int32_t host_threads() noexcept {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

Target Target::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  Target target;
  target.workers = 0;
  const auto preset =
      std::find_if(kGpus.begin(), kGpus.end(), [&](const Preset& gpu) { return gpu.name == name; });
  if (name == "cpu") {
    target = host();
  } else if (cpu::find_level(name) != nullptr) {
    target = {Kind::cpu, std::string(name), host_threads()};
  } else if (preset != kGpus.end()) {
    target = {Kind::cuda, std::string(preset->arch), preset->workers};
  } else if (capability_of(name) != 0) {
    target = {Kind::cuda, std::string(name), usual_workers(name)};
  } else {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("target '{}' is not known: {}", printable(text), known()));
  }
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), target.workers);
    if (status != std::errc{} || end != digits.data() + digits.size() || target.workers < 1 ||
        target.workers > kMaxWorkers)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("target '{}': the number of workers after the colon is 1 to {}",
                              printable(text), kMaxWorkers));
  }
  return target;
}

Target Target::host() {
#ifdef SPARSEKILN_CPU
  return {Kind::cpu, cpu::host_level(), host_threads()};
#else
  throw Error(
      ErrorKind::invalid_argument,
      "target 'cpu': this build of Sparsekiln has no LLVM (meson option cpu); a CUDA target would work");
#endif
}

int Target::compute_capability() const { return kind == Kind::cuda ? capability_of(arch) : 0; }

std::string Target::to_string() const { return fmt::format("{}:{}", arch, workers); }

}  // namespace sparsekiln

#include "compiler/cuda/architectures.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#include <fmt/format.h>

namespace sparsekiln::cuda {
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

}  // namespace

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

namespace {

std::int32_t usual_workers(std::string_view arch) {
  const int capability = capability_of(arch);
  for (const Preset& gpu : kGpus)
    if (capability_of(gpu.arch) == capability) return gpu.workers;
  return 108;  // A100's: a middle size, for an architecture without a part in the table
}

}  // namespace

std::optional<Target> find_target(std::string_view name) {
  for (const Preset& gpu : kGpus)
    if (gpu.name == name) return Target{Target::Kind::cuda, std::string(gpu.arch), gpu.workers};
  if (capability_of(name) == 0) return std::nullopt;
  return Target{Target::Kind::cuda, std::string(name), usual_workers(name)};
}

std::string target_names() {
  std::string names;
  for (const Preset& gpu : kGpus) names += fmt::format("{}, ", gpu.name);
  return names + "sm_75 and later";
}

}  // namespace sparsekiln::cuda

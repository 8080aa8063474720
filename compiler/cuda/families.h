#pragma once

#include <span>
#include <string>

#include "compiler/cuda/family.h"

namespace sparsekiln::cuda {

/// Every family of kernels for a kind of problem, in the order in which the tuner tries them. Where several
/// offer a default config for a problem, the last is chosen.
[[nodiscard]] std::span<const SpmmFamily* const> spmm_families();
[[nodiscard]] std::span<const SddmmFamily* const> sddmm_families();

/// Those for a problem, by its type.
[[nodiscard]] inline std::span<const SpmmFamily* const> families_for(const Spmm&) { return spmm_families(); }
[[nodiscard]] inline std::span<const SddmmFamily* const> families_for(const Sddmm&) {
  return sddmm_families();
}

/// The family of a variant for a problem; null where there is none.
template <class Computed>
[[nodiscard]] auto find_family(const Computed& computed, Variant variant) {
  const auto families = families_for(computed);
  for (const auto* const family : families)
    if (family->variant == variant) return family;
  return decltype(families.front() + 0){};
}

/// "simt, mma and stream"
template <class Computed>
[[nodiscard]] std::string variants_for(const Computed& computed) {
  const auto families = families_for(computed);
  std::string text;
  for (std::size_t i = 0; i < families.size(); ++i) {
    text += i == 0 ? "" : i + 1 < families.size() ? ", " : " and ";
    text += name(families[i]->variant);
  }
  return text;
}

/// What the kernels of a plan are compiled for: the target's architecture, or the one that a family of theirs
/// needs instructions of: sm_90a for sm_90.
[[nodiscard]] std::string code_arch(const Target& target, const Plan& plan);

/// Whether warpgroups of sm_90a multiply in kernels of a variant.
[[nodiscard]] bool on_warpgroups(Variant variant);

/// Whether kernels of a variant multiply on tensor cores. `ieee`: float32 with math ieee.
[[nodiscard]] bool on_tensor_cores(Variant variant, bool ieee);

}  // namespace sparsekiln::cuda

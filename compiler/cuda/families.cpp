#include "compiler/cuda/families.h"

#include <algorithm>
#include <array>

#include "compiler/cuda/family_lists.h"

namespace sparsekiln::cuda {

// Each is defined in the file of its name. The lists are meson.build's.
extern const SpmmFamily SPARSEKILN_SPMM_FAMILIES;
extern const SddmmFamily SPARSEKILN_SDDMM_FAMILIES;

namespace {

template <class... Family>
constexpr auto addresses_of(const Family&... families) {
  return std::array{&families...};
}
constexpr auto kSpmmFamilies = addresses_of(SPARSEKILN_SPMM_FAMILIES);
constexpr auto kSddmmFamilies = addresses_of(SPARSEKILN_SDDMM_FAMILIES);

}  // namespace

std::span<const SpmmFamily* const> spmm_families() { return kSpmmFamilies; }
std::span<const SddmmFamily* const> sddmm_families() { return kSddmmFamilies; }

std::string code_arch(const Target& target, const Plan& plan) {
  for (const RangedConfig& range : plan) {
    const auto is_specific = [&](const auto* family) {
      return family->variant == range.config.variant && !family->specific_arch.empty();
    };
    if (const auto at = std::ranges::find_if(kSpmmFamilies, is_specific); at != kSpmmFamilies.end())
      return std::string((*at)->specific_arch);
    if (const auto at = std::ranges::find_if(kSddmmFamilies, is_specific); at != kSddmmFamilies.end())
      return std::string((*at)->specific_arch);
  }
  return target.arch;
}

bool on_warpgroups(Variant variant) {
  const auto is_specific = [&](const auto* family) {
    return family->variant == variant && !family->specific_arch.empty();
  };
  return std::ranges::any_of(kSpmmFamilies, is_specific) || std::ranges::any_of(kSddmmFamilies, is_specific);
}

bool on_tensor_cores(Variant variant, bool ieee) {
  const auto multiplies = [&](const auto* family) {
    return family->variant == variant && family->arithmetic != Arithmetic::cuda_cores;
  };
  return !ieee && (std::any_of(kSpmmFamilies.begin(), kSpmmFamilies.end(), multiplies) ||
                   std::any_of(kSddmmFamilies.begin(), kSddmmFamilies.end(), multiplies));
}

}  // namespace sparsekiln::cuda

#include "autotune/cuda_defaults.h"

#include <optional>
#include <ranges>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/families.h"

namespace sparsekiln::cuda {
namespace {

template <class Computed>
Config chosen_default(const Computed& computed, const Target& target, std::int64_t n) {
  for (const auto* const family : families_for(computed) | std::views::reverse)
    if (const std::optional<Config> config = family->tuning->default_config(computed, target, n))
      return *config;
  throw Error(ErrorKind::internal,
              fmt::format("no family of kernels has a default config for {} with math {}",
                          name(computed.dtype), name(computed.math)));
}

}  // namespace

Config default_config(const Spmm& problem, const Target& target, std::int64_t n) {
  return chosen_default(problem, target, n);
}

Config default_config(const Sddmm& gradient, const Target& target, std::int64_t n) {
  return chosen_default(gradient, target, n);
}

}  // namespace sparsekiln::cuda

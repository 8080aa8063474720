#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <sparsekiln/target.h>

namespace sparsekiln::cuda {

/// The compute capability × 10 of an architecture, 90 for "sm_90a"; 0 where the text is none.
[[nodiscard]] int capability_of(std::string_view arch);

/// The target of a GPU's name ("h100") or an architecture, with the multiprocessors of that GPU, or of the
/// usual one of the architecture.
[[nodiscard]] std::optional<Target> find_target(std::string_view name);

/// "t4, … sm_75 and later"
[[nodiscard]] std::string target_names();

}  // namespace sparsekiln::cuda

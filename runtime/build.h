#pragma once

#include <optional>

#include <sparsekiln/compile.h>

#include "runtime/build_job.h"

namespace sparsekiln {

/// Validates, and chooses the plan. Throws as `build` does.
[[nodiscard]] BuildJob job_of(const Layout& layout, const Options& options);

[[nodiscard]] Built build(const BuildJob& job);
/// The same, but that a Binary made for attached tables lacks its layout, as it is stored.
[[nodiscard]] Built build_without_layout(const BuildJob& job);
/// What packs and store have of it; makes nothing.
[[nodiscard]] std::optional<Built> find_built(const BuildJob& job);

}  // namespace sparsekiln

#pragma once

#include <filesystem>
#include <optional>

#include <sparsekiln/compile.h>

namespace sparsekiln {

/// What is to be built, decided: `build` of the public face is `build(job_of(layout, options))`.
struct BuildJob {
  Problem problem;
  Target target;
  Plan plan;
  std::filesystem::path cache_dir;
};
/// Validates, and chooses the plan. Throws as `build` does.
[[nodiscard]] BuildJob job_of(const Layout& layout, const Options& options);

[[nodiscard]] Built build(const BuildJob& job);
/// What the store has of it; makes nothing.
[[nodiscard]] std::optional<Built> find_built(const BuildJob& job);

}  // namespace sparsekiln

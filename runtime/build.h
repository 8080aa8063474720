#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include <sparsekiln/compile.h>

namespace sparsekiln {

/// What is not asked for a Binary, as a device has refused the code that it gave. Without the store the code
/// is compiled anew, and takes its place there.
enum class Refused : std::uint8_t { nothing, packs, packs_and_store };

/// What is to be built, decided: `build` of the public face is `build(job_of(layout, options))`.
struct BuildJob {
  Problem problem;
  Target target;
  Plan plan;
  std::filesystem::path cache_dir;
  std::vector<std::filesystem::path> packs = {};
  bool environment_packs = true;  ///< whether those of SPARSEKILN_PACKS follow
  Require require = Require::anything;
  bool pinned = false;  ///< the caller chose the plan
  Refused refused = Refused::nothing;
};
/// Validates, and chooses the plan. Throws as `build` does.
[[nodiscard]] BuildJob job_of(const Layout& layout, const Options& options);

[[nodiscard]] Built build(const BuildJob& job);
/// What packs and store have of it; makes nothing.
[[nodiscard]] std::optional<Built> find_built(const BuildJob& job);

}  // namespace sparsekiln

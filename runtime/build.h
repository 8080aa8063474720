#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <sparsekiln/compile.h>

#include "cache/store.h"
#include "compiler/toolchain.h"

namespace sparsekiln {

/// What is to be built, decided: `build` of the public face is `build(job_of(layout, options))`.
struct BuildJob {
  Problem problem;
  Target target;
  Plan plan;
  std::filesystem::path cache_dir;
  std::vector<std::filesystem::path> packs = {};
  bool environment_packs = true;  ///< whether those of SPARSEKILN_PACKS follow
  Require require = Require::anything;
  bool pinned = false;       ///< the caller chose the plan
  Toolchain toolchain = {};  ///< whose driver is to load it: toolchain_for
  /// Whose code a device has refused: an entry that has it is passed over in a pack, and made anew in the
  /// store.
  std::vector<std::shared_ptr<const Binary>> refused = {};
};
/// What will load the code of a target, asked for as Options::target: this machine's driver; any where the
/// cpu or the emulator runs it, and on a machine without a driver.
[[nodiscard]] Toolchain toolchain_for(const Target& target, std::string_view asked);

/// Validates, and chooses the plan. Throws as `build` does.
[[nodiscard]] BuildJob job_of(const Layout& layout, const Options& options);

/// The store of a folder, as Options::cache_dir: one for the life of the process, so that its counters and
/// its memory are shared.
[[nodiscard]] std::shared_ptr<cache::Store> store_in(const std::filesystem::path& folder);

[[nodiscard]] Built build(const BuildJob& job);
/// The same, but that a Binary made for attached tables lacks its layout, as it is stored.
[[nodiscard]] Built build_without_layout(const BuildJob& job);
/// What packs and store have of it; makes nothing.
[[nodiscard]] std::optional<Built> find_built(const BuildJob& job);

}  // namespace sparsekiln

#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include <sparsekiln/compile.h>

#include "compiler/toolchain.h"

namespace sparsekiln {

/// A build whose choices are decided: `build` of the public face is `build(job_of(layout, options))`.
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
  /// Binaries whose code a device has refused: an entry that has such code is passed over in a pack, and is
  /// compiled again in the store.
  std::vector<std::shared_ptr<const Binary>> refused = {};
};

/// What will load the code of a target, asked for as Options::target: this machine's driver; any where the
/// cpu or the emulator runs it, and on a machine without a driver.
[[nodiscard]] Toolchain toolchain_for(const Target& target, std::string_view asked);

/// The job that `options` ask for on `layout`, validated; its plan is still empty (runtime/plan_choice.h).
/// Throws `invalid_argument` for options that contradict each other, and what make_problem and resolve_target
/// throw.
[[nodiscard]] BuildJob job_without_plan(const Layout& layout, const Options& options);

}  // namespace sparsekiln

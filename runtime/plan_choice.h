#pragma once

#include "runtime/build_job.h"

namespace sparsekiln {

/// The plan for a job that has none yet: the config that `options` pin; for code that serves every layout the
/// default that no layout decides; else what was tuned, now where `options` ask for that; else the default
/// for the layout. With Require::prebuilt, and nothing pinned, the nearest to it that the job's packs hold.
/// Throws `invalid_argument` where code that serves every layout is asked for and the problem has none.
[[nodiscard]] Plan plan_for(const BuildJob& job, const Options& options);

}  // namespace sparsekiln

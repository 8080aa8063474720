#include "runtime/build_job.h"

#include <string>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/backend.h"
#include "compiler/computation_fields.h"
#include "runtime/backend.h"

namespace sparsekiln {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::invalid_argument, why); }

/// What does not go together, whatever the problem is.
void check_options(const Options& options) {
  const bool compiles = options.require == Require::anything;
  const std::string_view require = name(options.require);
  if (options.specialization == Specialization::tiered && !compiles)
    refuse(
        fmt::format("tiered and {0}: a tiered kernel is compiled while it runs, and {0} never compiles; "
                    "leave one of them out",
                    require));
  if (options.tuning != Tuning::now) return;
  if (!compiles)
    refuse(fmt::format("tuning now and {0}: tuning compiles, and {0} never does; leave one of them out",
                       require));
  if (!(options.tuning_seconds > 0 && options.tuning_seconds <= 1e6))
    refuse(fmt::format("tuning for {} s: above 0, up to 1000000", options.tuning_seconds));
}

}  // namespace

Problem make_problem(const Layout& layout, const Options& options) {
  Problem problem;
  static_cast<Computation&>(problem) = computation_of(options);
  problem.layout = layout;
  // Whole blocks have one spelling, so that they are one kernel.
  if (options.in_features != problem.in_features()) problem.cut_in_features = options.in_features;
  if (options.out_features != problem.out_features()) problem.cut_out_features = options.out_features;
  validate(problem);
  return problem;
}

Toolchain toolchain_for(const Target& target, std::string_view asked) {
  const auto toolchain = devices_of(target).toolchain;
  return toolchain == nullptr ? Toolchain{} : toolchain(asked);
}

BuildJob job_without_plan(const Layout& layout, const Options& options) {
  BuildJob job{.problem = make_problem(layout, options),
               .target = resolve_target(options.target),
               .plan = {},
               .cache_dir = options.cache_dir,
               .packs = options.packs,
               .require = options.require,
               .pinned = options.config.has_value()};
  // Where launches do not overlap, kernels that might are those that do not.
  const auto overlaps_launches = backend_of(job.target).overlaps_launches;
  job.problem.overlap_launches = overlaps_launches != nullptr && overlaps_launches(job.problem, job.target);
  job.toolchain = toolchain_for(job.target, options.target);
  check_options(options);
  if (options.config && job.problem.batch.dynamic())
    refuse(fmt::format("config '{}': a pinned config takes a fixed batch, not {}", to_string(*options.config),
                       to_string(job.problem.batch)));
  return job;
}

}  // namespace sparsekiln

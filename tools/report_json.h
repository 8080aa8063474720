#pragma once

#include "tools/answer.h"
#include "tools/report_entry.h"

namespace sparsekiln::tools {

/// The fields of `problem`, as name and value.
[[nodiscard]] Json describe_problem(const Record& record);
[[nodiscard]] Json describe(const Environment& environment);
/// A candidate's config and times (null where it has none); null for null.
[[nodiscard]] Json describe_time(const Candidate* candidate);
/// An element of `problems`: docs/report.md names the keys.
[[nodiscard]] Json describe(const ReportEntry& entry);
/// The same, and all that a page draws: the layout's picture, and `points`, the candidates that have a time.
[[nodiscard]] Json describe_in_full(const ReportEntry& entry);

}  // namespace sparsekiln::tools

#pragma once

#include <string>
#include <vector>

#include "tools/report_compare.h"
#include "tools/report_entry.h"

namespace sparsekiln::tools {

/// As RFC 4180 has it: a header, a row an entry, lines that end with CR LF, cells quoted where they must be.
/// A value that is not there is an empty cell.
[[nodiscard]] std::string report_csv(const std::vector<ReportEntry>& entries);
/// A row a pair; what only one side has comes last.
[[nodiscard]] std::string comparison_csv(const Comparison& comparison);

}  // namespace sparsekiln::tools

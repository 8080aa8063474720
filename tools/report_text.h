#pragma once

#include <string>
#include <vector>

#include "tools/report_entry.h"

namespace sparsekiln::tools {

/// For a terminal: a title and a table an entry, and a line about all of them.
[[nodiscard]] std::string report_text(const std::vector<ReportEntry>& entries);

/// A time in microseconds with four digits; "-" where there is none.
[[nodiscard]] std::string time_text(std::optional<double> us);

}  // namespace sparsekiln::tools

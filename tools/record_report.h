#pragma once

#include "autotune/record.h"
#include "tools/command.h"

namespace sparsekiln::tools {

/// How tuning a problem ended, for people and as one of the document's `problems`. `ms`: wall time of this
/// run.
void report_record(const Record& record, double ms, Answer& answer);

}  // namespace sparsekiln::tools

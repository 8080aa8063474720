#pragma once

#include <string_view>

#include "cache/counters.h"
#include "cache/folder.h"

namespace sparsekiln::cache {

/// Adds one line to the folder's file of counters. Does nothing if there is no folder yet, or it cannot be
/// written: these are statistics. Throws Error(cache) if the folder cannot be used.
void append_totals(const Folder& folder, const Counters& counters);

/// The sum of all lines. Throws like append_totals.
[[nodiscard]] Counters read_totals(const Folder& folder);

/// If the file of counters has grown, replaces its lines by one line with their sum. What another process
/// appends in that moment is lost. Throws like append_totals.
void compact_totals(const Folder& folder);

/// The sum of the lines of a file of counters; the grammar stands above the code. Other lines count as zero.
[[nodiscard]] Counters sum_totals(std::string_view text);

}  // namespace sparsekiln::cache

#pragma once

#include <span>
#include <string_view>

#include "cache/counters.h"
#include "cache/folder.h"

namespace sparsekiln::cache {

/// Adds one line to the folder's file of counters. Nothing where there is no folder yet, or it cannot be
/// written: these are statistics. Throws Error(cache) where the folder cannot be used.
void append_totals(const Folder& folder, const Counters& counters);

/// The sum of all lines. Throws likewise.
[[nodiscard]] Counters read_totals(const Folder& folder);

/// Where the file of counters has grown, puts one line with its sum in its place. What another process
/// appends in that moment is lost. Throws likewise.
void compact_totals(const Folder& folder);

/// The sum of the lines of a file of counters; its grammar stands above the code. What is no such line counts
/// nothing.
[[nodiscard]] Counters sum_totals(std::string_view text);

}  // namespace sparsekiln::cache

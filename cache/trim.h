#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cache/caps.h"
#include "cache/listing.h"

namespace sparsekiln::cache {

/// What was removed from a folder.
struct Removed {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

/// The files to be removed: stale ones (temporary files and locks older than an hour, failures that are
/// forgotten, bad files older than a week), and, if the rest exceeds a cap, those with the oldest stamps
/// until at most 90 % of that cap are left. Stamps in the future count as oldest. `other` files are neither
/// counted nor removed.
[[nodiscard]] std::vector<File> surplus(std::vector<File> files, const Caps& caps, Stamp now);

/// Removes listed files that have not changed since they were listed, until `stop` returns true.
Removed remove(const Folder& folder, std::span<const File> files, const std::function<bool()>& stop = {});

/// Stamps the folder as trimmed, removes the surplus, and shortens the file of counters. Any number of
/// processes may do this at once, while others read and write. Throws Error(cache) if the folder cannot be
/// used.
Removed trim(const Folder& folder, const Caps& caps, const std::function<bool()>& stop = {});

/// Whether no process has trimmed the folder for ten minutes.
[[nodiscard]] bool trim_is_due(const Folder& folder, Stamp now);

/// What clear() removes: everything in the store, or the remembered failures, or the files that were set
/// aside.
enum class Clear : std::uint8_t { all, failed, bad };
/// Locks and temporary files in use stay, and so do the counters. Throws like trim().
Removed clear(const Folder& folder, Clear which);

}  // namespace sparsekiln::cache

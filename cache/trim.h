#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cache/caps.h"
#include "cache/listing.h"

namespace sparsekiln::cache {

/// What was taken out of a folder.
struct Removed {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

/// Which of the files are to go: what is stale (temporaries and locks of an hour, failures when they are
/// forgotten, bad files of a week), and, where a cap is exceeded by what is left, the oldest stamps until no
/// more than 90 % of that cap are there. Stamps in the future count as oldest. `other` files neither count
/// nor go.
[[nodiscard]] std::vector<File> surplus(std::vector<File> files, const Caps& caps, Stamp now);

/// Removes listed files that are still what they were when listed, until `stop` says so.
Removed remove(const Folder& folder, std::span<const File> files, const std::function<bool()>& stop = {});

/// Stamps the folder as trimmed, removes the surplus, and shortens the file of counters. Any number of
/// processes may do this at once, while others read and write. Throws Error(cache) where the folder cannot be
/// used.
Removed trim(const Folder& folder, const Caps& caps, const std::function<bool()>& stop = {});

/// Whether the folder has not been trimmed for ten minutes, by anyone.
[[nodiscard]] bool trim_is_due(const Folder& folder, Stamp now);

/// What clear() removes: all that the store has, or what was remembered of failed compiles, or set aside.
enum class Clear : std::uint8_t { all, failed, bad };
/// Locks and temporaries in use stay; the counters do. Throws as trim().
Removed clear(const Folder& folder, Clear which);

}  // namespace sparsekiln::cache

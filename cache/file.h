#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <sys/stat.h>

#include "system/file.h"

namespace sparsekiln::cache {

/// The clock of the stamps and ages of files: the system's, which may be set back.
using WallClock = std::chrono::system_clock;
using Stamp = WallClock::time_point;

/// How the store opens files that exist: never through a link, and never waiting for the other end of a pipe.
inline constexpr int kReadFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;
/// How it creates files that must not exist yet.
inline constexpr int kCreateFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
/// Only their owner may read or write files of the store.
inline constexpr mode_t kFileMode = 0600;

/// 64 random bits in hexadecimal; the process id if the kernel has no random bits yet.
[[nodiscard]] std::string random_word();
/// A unique name next to `name`: `name`, 64 random bits, ".tmp".
[[nodiscard]] std::string temporary_name(std::string_view name);

/// Gives `name` in an open folder exactly these bytes, atomically for every reader: a temporary file next to
/// it is written, closed and renamed. Returns 0, or the errno of what failed first; leaves no other file.
[[nodiscard]] int replace_file(int folder, const std::string& name, std::span<const std::byte> bytes);

/// When a file was last stamped (its mtime).
[[nodiscard]] Stamp stamp_of(const struct stat& status);
/// Sets the stamp of an open file. False where the file system does not allow it.
bool set_stamp(int file, Stamp stamp);
/// Whether `stamp` is so far after `now` that the clock must have been set back, and the age of the file is
/// unknown. Up to an hour may be another machine's clock.
[[nodiscard]] bool is_ahead(Stamp stamp, Stamp now);
/// Whether `stamp` is `age` or more before `now`, or in the future.
[[nodiscard]] bool is_older(Stamp stamp, WallClock::duration age, Stamp now);

}  // namespace sparsekiln::cache

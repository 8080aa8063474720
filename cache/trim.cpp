#include "cache/trim.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sparsekiln/error.h>

#include "cache/failure.h"
#include "cache/totals.h"

namespace sparsekiln::cache {

namespace {

using namespace std::chrono_literals;

constexpr const char* kStampFile = "trimmed";
constexpr auto kBetweenTrims = 10min;
constexpr auto kAbandonedAge = 1h;
constexpr auto kBadAge = 24h * 7;
constexpr auto kJournalAge = 24h * 30;

bool is_stale(const File& file, Stamp now) {
  switch (file.kind) {
    case FileKind::temporary:
    case FileKind::lock:
      return is_older(file.stamp, kAbandonedAge, now);
    case FileKind::failed:
      return is_older(file.stamp, kFailureAge, now);
    case FileKind::bad:
      return is_older(file.stamp, kBadAge, now);
    case FileKind::journal:
      return is_older(file.stamp, kJournalAge, now);
    case FileKind::entry:
    case FileKind::other:
      return false;
  }
  return false;
}

bool may_go(const File& file) {
  return file.kind == FileKind::entry || file.kind == FileKind::failed || file.kind == FileKind::bad;
}

/// When a file was last used; long ago if that is unknown.
Stamp last_use(const File& file, Stamp now) { return is_ahead(file.stamp, now) ? Stamp::min() : file.stamp; }

std::uint64_t goal(std::uint64_t used, std::uint64_t cap) { return used > cap ? cap - cap / 10 : cap; }

/// Opens the folders of one file after the other, each only once if the files are in order.
class Shards {
 public:
  explicit Shards(const Folder& folder) : folder_(folder) {}

  /// The open folder that contains `file`; -1 if it no longer exists.
  int of(const File& file) {
    if (!current_ || *current_ != file.shard) {
      descriptor_ = file.shard.empty() ? folder_.open_root(false) : folder_.open_shard(file.shard, false);
      current_ = file.shard;
    }
    return descriptor_.get();
  }

 private:
  const Folder& folder_;
  std::optional<std::string> current_;
  Descriptor descriptor_;
};

/// Whether the name still refers to the file that was listed, unused since.
bool unchanged(int folder, const File& file) {
  struct stat status{};
  return ::fstatat(folder, file.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
         status.st_dev == file.device && status.st_ino == file.number && stamp_of(status) == file.stamp;
}

void mark_trimmed(const Folder& folder, Stamp now) {
  const Descriptor root = folder.open_root(false);
  if (!root.open()) return;
  constexpr int kFlags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK;
  const Descriptor stamp = open_file(root.get(), kStampFile, kFlags, kFileMode);
  if (stamp.open()) set_stamp(stamp.get(), now);
}

}  // namespace

std::vector<File> surplus(std::vector<File> files, const Caps& caps, Stamp now) {
  std::erase_if(files, [](const File& file) { return file.kind == FileKind::other; });
  const auto kept =
      std::partition(files.begin(), files.end(), [now](const File& file) { return is_stale(file, now); });
  std::uint64_t bytes = 0, count = 0;
  for (auto file = kept; file != files.end(); ++file) {
    bytes += file->bytes;
    ++count;
  }
  const std::uint64_t bytes_goal = goal(bytes, caps.bytes), count_goal = goal(count, caps.files);
  const auto busy = std::partition(kept, files.end(), may_go);
  std::sort(kept, busy, [now](const File& a, const File& b) {
    return std::pair(last_use(a, now), std::string_view(a.name)) <
           std::pair(last_use(b, now), std::string_view(b.name));
  });
  auto end = kept;
  for (; end != busy && (bytes > bytes_goal || count > count_goal); ++end) {
    bytes -= end->bytes;
    --count;
  }
  files.erase(end, files.end());
  return files;
}

Removed remove(const Folder& folder, std::span<const File> files, const std::function<bool()>& stop) {
  Removed removed;
  Shards shards(folder);
  for (const File& file : files) {
    if (stop && stop()) break;
    try {
      const int shard = shards.of(file);
      if (shard < 0 || !unchanged(shard, file) || ::unlinkat(shard, file.name.c_str(), 0) != 0) continue;
    } catch (const Error&) {  // the folder belongs to someone else by now
      continue;
    }
    ++removed.files;
    removed.bytes += file.bytes;
  }
  return removed;
}

Removed trim(const Folder& folder, const Caps& caps, const std::function<bool()>& stop) {
  const Stamp now = WallClock::now();
  mark_trimmed(folder, now);
  std::vector<File> files = surplus(list(folder, stop), caps, now);
  std::ranges::sort(files, {}, &File::shard);  // each folder inside the folder is opened once
  const Removed removed = remove(folder, files, stop);
  compact_totals(folder);
  return removed;
}

bool trim_is_due(const Folder& folder, Stamp now) {
  const Descriptor root = folder.open_root(false);
  struct stat status{};
  if (!root.open()) return false;
  if (::fstatat(root.get(), kStampFile, &status, AT_SYMLINK_NOFOLLOW) != 0) return true;
  return stamp_of(status) > now || is_older(stamp_of(status), kBetweenTrims, now);
}

Removed clear(const Folder& folder, Clear which) {
  const Stamp now = WallClock::now();
  std::vector<File> files = list(folder);
  std::erase_if(files, [&](const File& file) {
    switch (which) {
      case Clear::failed:
        return file.kind != FileKind::failed;
      case Clear::bad:
        return file.kind != FileKind::bad;
      case Clear::all:
        break;
    }
    return !may_go(file) && !is_stale(file, now);
  });
  return remove(folder, files);
}

}  // namespace sparsekiln::cache

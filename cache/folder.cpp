#include "cache/folder.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

namespace sparsekiln::cache {

// The contents of the folder
//
//  <folder>/<kk>/<name>                 an entry; kk is the first two characters of its name
//  <folder>/<kk>/<name>.failed          the entry of a failed compile, see failure.cpp
//  <folder>/<kk>/<name>.lock            held by the process that makes that entry, see lock.cpp
//  <folder>/<kk>/<name>.journal         what is known so far about that entry, see journal.h
//  <folder>/<kk>/<name>.<random>.tmp    a file being written, or left by a killed writer
//  <folder>/<kk>/<name>.bad             what could not be read as the file it was named for; at most one per
//  name <folder>/counters                    one line from each process, see totals.cpp <folder>/trimmed
//  empty; its stamp says when the last trim started
//
// The name of an entry is its key in hexadecimal and ".entry", so the fan-out is 256: 20,000 entries make
// about 80 files per folder, which any file system lists quickly. Folders are created with mode 0700, files
// with 0600. Other files are listed, and neither read nor removed.
//
// Publishing writes the temporary file in the entry's own folder, closes it and renames it: readers see the
// old file or the new one, complete. There is no fsync. After a power failure, the name may refer to an empty
// or torn file; its checksum is then wrong, which makes it a miss and costs one compile. An fsync would cost
// every compile milliseconds (much more on network file systems) to save that one.
//
// The stamp of a file is its mtime. A hit renews that of its entry (never atime, which file systems maintain
// in different ways), and the oldest stamp is removed first, see trim.cpp.

namespace {

constexpr mode_t kFolderMode = 0700;
constexpr mode_t kWritableByOthers = S_IWGRP | S_IWOTH;
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
constexpr const char* kElsewhere = "set SPARSEKILN_CACHE_DIR to a folder of your own";

[[noreturn]] void fail(std::string_view asked, const std::filesystem::path& where, std::string_view wrong,
                       std::string_view works = kElsewhere) {
  throw Error(ErrorKind::cache,
              fmt::format("{} '{}': {}; {}", asked, printable(where.string()), wrong, works));
}

std::string reason(int error) { return std::generic_category().message(error); }

std::string shard_of(const std::string& name) { return name.substr(0, 2); }

bool belongs_to_us(const struct stat& status) {
  return status.st_uid == ::geteuid() && (status.st_mode & kWritableByOthers) == 0;
}

/// mkdir -p. A folder that a concurrent process made is as good; whether it belongs to this user is checked
/// once it is open.
void make_folders(const std::filesystem::path& path) {
  if (::mkdir(path.c_str(), kFolderMode) == 0 || errno == EEXIST) return;
  const bool parent_missing = errno == ENOENT && path.has_relative_path() && path.parent_path() != path;
  if (!parent_missing) fail("cannot make the cache folder", path, reason(errno));
  make_folders(path.parent_path());
  if (::mkdir(path.c_str(), kFolderMode) != 0 && errno != EEXIST) {
    fail("cannot make the cache folder", path, reason(errno));
  }
}

}  // namespace

std::filesystem::path Folder::file(const std::string& name) const { return path_ / shard_of(name) / name; }

void Folder::check_ours(int fd, const std::filesystem::path& which) const {
  constexpr std::string_view kAsked = "will not use the cache folder";
  struct stat status{};
  if (::fstat(fd, &status) != 0) fail(kAsked, which, reason(errno));
  if (status.st_uid != ::geteuid()) {
    fail(kAsked, which,
         fmt::format("it belongs to user {}, and this is user {}", status.st_uid, ::geteuid()));
  }
  if ((status.st_mode & kWritableByOthers) != 0) {
    fail(kAsked, which, fmt::format("others may write to it (mode {:04o})", status.st_mode & 07777u),
         fmt::format("chmod go-w it, or {}", kElsewhere));
  }
}

Descriptor Folder::open_root(bool make) const {
  Descriptor root(::open(path_.c_str(), kFolderFlags));
  if (!root.open() && errno == ENOENT) {
    if (!make) return root;
    make_folders(path_);
    root = Descriptor(::open(path_.c_str(), kFolderFlags));
  }
  if (!root.open()) fail("cannot open the cache folder", path_, reason(errno));
  check_ours(root.get(), path_);
  return root;
}

Descriptor Folder::open_shard(const std::string& name, bool make) const {
  const Descriptor root = open_root(make);
  if (!root.open()) return {};
  const std::string shard_name = shard_of(name);
  const std::filesystem::path shard_path = path_ / shard_name;
  const auto open = [&] {
    return Descriptor(::openat(root.get(), shard_name.c_str(), kFolderFlags | O_NOFOLLOW));
  };

  Descriptor shard = open();
  if (!shard.open() && errno == ENOENT) {
    if (!make) return shard;
    if (::mkdirat(root.get(), shard_name.c_str(), kFolderMode) != 0 && errno != EEXIST) {
      fail("cannot make the cache folder", shard_path, reason(errno));
    }
    shard = open();
  }
  if (!shard.open()) fail("cannot open the cache folder", shard_path, reason(errno));
  check_ours(shard.get(), shard_path);
  return shard;
}

std::optional<Folder::Found> Folder::read(const std::string& name) const {
  const Descriptor shard = open_shard(name, false);
  if (!shard.open()) return std::nullopt;

  Found found;
  struct stat status{};
  found.file = open_file(shard.get(), name, kReadFlags);
  if (found.file.open()) {
    if (::fstat(found.file.get(), &status) != 0)
      fail("cannot read the cache entry", file(name), reason(errno));
  } else {
    if (errno == ENOENT) return std::nullopt;
    const bool no_file = errno == ELOOP || errno == ENXIO;  // a symbolic link, or a socket
    if (!no_file) fail("cannot read the cache entry", file(name), reason(errno));
    if (::fstatat(shard.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  }
  found.device = status.st_dev;
  found.number = status.st_ino;
  found.stamp = stamp_of(status);
  const bool readable = S_ISREG(status.st_mode) && belongs_to_us(status);
  if (!readable || static_cast<std::uintmax_t>(status.st_size) > kMaxFileBytes) return found;

  found.bytes.resize(static_cast<std::size_t>(status.st_size));
  // If the file was truncated meanwhile, what is left is read; the checksum shows the damage.
  if (const int error = read_into(found.file.get(), found.bytes); error != 0)
    fail("cannot read the cache entry", file(name), reason(error));
  return found;
}

void Folder::publish(const std::string& name, std::span<const std::byte> bytes) const {
  constexpr std::string_view kAsked = "cannot write the cache entry";
  const Descriptor shard = open_shard(name, true);
  if (bytes.size() > kMaxFileBytes) {
    fail(kAsked, file(name),
         fmt::format("{} bytes are more than the {} of an entry", bytes.size(), kMaxFileBytes),
         "it is used without the cache");
  }
  if (const int error = replace_file(shard.get(), name, bytes); error != 0) {
    const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
    fail(kAsked, file(name), reason(error),
         full ? fmt::format("free some space, or {}", kElsewhere) : std::string(kElsewhere));
  }
}

bool Folder::set_aside(const std::string& name, const Found& found) const {
  const Descriptor shard = open_shard(name, false);
  struct stat status{};
  if (!shard.open() || ::fstatat(shard.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return false;
  // Another process may have published a good file in the meantime: that file stays.
  if (status.st_dev != found.device || status.st_ino != found.number) return false;
  return ::renameat(shard.get(), name.c_str(), shard.get(), (name + ".bad").c_str()) == 0;
}

void Folder::remove(const std::string& name) const {
  const Descriptor shard = open_shard(name, false);
  if (shard.open()) ::unlinkat(shard.get(), name.c_str(), 0);
}

void Folder::check_writable() const {
  const auto check = [&](int fd, const char* name, const std::filesystem::path& which) {
    if (::faccessat(fd, name, W_OK | X_OK, AT_EACCESS) == 0) return true;
    if (errno == ENOENT) return false;
    fail("cannot write to the cache folder", which, reason(errno));
  };
  if (const Descriptor root = open_root(false); root.open()) {
    check(root.get(), ".", path_);
    return;
  }
  // It does not exist yet: could it be created in the nearest folder that exists?
  std::filesystem::path ancestor = path_.parent_path();
  while (!check(AT_FDCWD, ancestor.c_str(), ancestor) && ancestor.has_relative_path())
    ancestor = ancestor.parent_path();
}

}  // namespace sparsekiln::cache

#include "cache/folder.h"

#include <cerrno>
#include <cstdint>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sparsekiln/error.h>

namespace sparsekiln::cache {

// How a file lies in the folder
//
//   <folder>/<kk>/<name>                 an entry; kk is the first two characters of its name
//   <folder>/<kk>/<name>.<random>.tmp    an entry being written, or what a killed writer left
//   <folder>/<kk>/<name>.bad             what did not read as the entry it was named for; at most one a name
//
// Names are hexadecimal keys, so the fan-out is 256: 20,000 entries make about 80 files a folder, which is
// quick to list on any file system. Folders are made 0700, files 0600.
//
// Publishing writes the temporary file in the entry's own folder, closes it and renames it: readers see the
// old file or the new one, whole. It does not fsync. After a power failure the name may stand for an empty or
// torn file; its checksum does not hold then, which makes it a miss and one compile. An fsync would cost
// every compile milliseconds (on network file systems far more) to save that one.

namespace {

constexpr mode_t kFolderMode = 0700;
constexpr mode_t kFileMode = 0600;
constexpr mode_t kWritableByOthers = S_IWGRP | S_IWOTH;
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
// O_NONBLOCK: opening a pipe must not wait for its other end.
constexpr int kReadFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
constexpr int kWriteFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
constexpr const char* kElsewhere = "set SPARSEKILN_CACHE_DIR to a folder of your own";

[[noreturn]] void fail(std::string_view asked, const std::filesystem::path& where, std::string_view wrong,
                       std::string_view works = kElsewhere) {
  throw Error(ErrorKind::cache, fmt::format("{} '{}': {}; {}", asked, where.string(), wrong, works));
}

std::string reason(int error) { return std::generic_category().message(error); }

std::string shard_of(const std::string& name) { return name.substr(0, 2); }

bool belongs_to_us(const struct stat& status) {
  return status.st_uid == ::geteuid() && (status.st_mode & kWritableByOthers) == 0;
}

/// mkdir -p. What a concurrent process made meanwhile is as good; whether it is ours is checked once it is
/// open.
void make_folders(const std::filesystem::path& path) {
  if (::mkdir(path.c_str(), kFolderMode) == 0 || errno == EEXIST) return;
  const bool parent_missing = errno == ENOENT && path.has_relative_path() && path.parent_path() != path;
  if (!parent_missing) fail("cannot make the cache folder", path, reason(errno));
  make_folders(path.parent_path());
  if (::mkdir(path.c_str(), kFolderMode) != 0 && errno != EEXIST) {
    fail("cannot make the cache folder", path, reason(errno));
  }
}

std::string temporary_name(const std::string& name) {
  std::uint64_t random = 0;
  // Random rather than the process id, which two machines that share a folder may both have. Should it fail,
  // O_EXCL still keeps two writers apart.
  if (::getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
    random = static_cast<std::uint64_t>(::getpid());
  return fmt::format("{}.{:016x}.tmp", name, random);
}

/// A file that is gone again unless it was published.
class Temporary {
 public:
  Temporary(int folder, const std::string& name) : folder_(folder) {
    for (int attempt = 0; attempt < 8 && !file_.open(); ++attempt) {
      name_ = temporary_name(name);
      file_ = Descriptor(::openat(folder_, name_.c_str(), kWriteFlags, kFileMode));
      if (!file_.open() && errno != EEXIST) break;
    }
    error_ = file_.open() ? 0 : errno;
    created_ = file_.open();
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (created_) ::unlinkat(folder_, name_.c_str(), 0);
  }

  /// 0, or the errno of the first thing that failed.
  [[nodiscard]] int write(std::span<const std::byte> bytes) {
    if (error_ != 0) return error_;
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return errno;
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    // NFS says only now that the disk is full. After EINTR, Linux has closed the file all the same.
    return ::close(file_.release()) == 0 || errno == EINTR ? 0 : errno;
  }

  [[nodiscard]] int publish_as(const std::string& name) {
    if (::renameat(folder_, name_.c_str(), folder_, name.c_str()) != 0) return errno;
    created_ = false;
    return 0;
  }

 private:
  int folder_;
  std::string name_;
  Descriptor file_;
  int error_ = 0;
  bool created_ = false;
};

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

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
  found.file = Descriptor(::openat(shard.get(), name.c_str(), kReadFlags));
  if (found.file.open()) {
    if (::fstat(found.file.get(), &status) != 0)
      fail("cannot read the cache entry", file(name), reason(errno));
  } else {
    if (errno == ENOENT) return std::nullopt;
    const bool no_file = errno == ELOOP || errno == ENXIO;  // a symbolic link; a socket
    if (!no_file) fail("cannot read the cache entry", file(name), reason(errno));
    if (::fstatat(shard.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  }
  found.device = status.st_dev;
  found.number = status.st_ino;
  const bool readable = S_ISREG(status.st_mode) && belongs_to_us(status);
  if (!readable || static_cast<std::uintmax_t>(status.st_size) > kMaxFileBytes) return found;

  found.bytes.resize(static_cast<std::size_t>(status.st_size));
  std::size_t filled = 0;
  while (filled < found.bytes.size()) {
    const ssize_t got = ::read(found.file.get(), found.bytes.data() + filled, found.bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read the cache entry", file(name), reason(errno));
    if (got == 0) break;  // it was cut meanwhile; its checksum will say so
    filled += static_cast<std::size_t>(got);
  }
  found.bytes.resize(filled);
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
  Temporary temporary(shard.get(), name);
  if (const int error = temporary.write(bytes); error != 0) {
    fail(kAsked, file(name), reason(error), fmt::format("free some space, or {}", kElsewhere));
  }
  if (const int error = temporary.publish_as(name); error != 0) fail(kAsked, file(name), reason(error));
}

bool Folder::set_aside(const std::string& name, const Found& found) const {
  const Descriptor shard = open_shard(name, false);
  struct stat status{};
  if (!shard.open() || ::fstatat(shard.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return false;
  // Another process may have published a good file in the meantime: that one stays.
  if (status.st_dev != found.device || status.st_ino != found.number) return false;
  return ::renameat(shard.get(), name.c_str(), shard.get(), (name + ".bad").c_str()) == 0;
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
  // Not there yet: could it be made in the nearest folder that is?
  std::filesystem::path ancestor = path_.parent_path();
  while (!check(AT_FDCWD, ancestor.c_str(), ancestor) && ancestor.has_relative_path())
    ancestor = ancestor.parent_path();
}

}  // namespace sparsekiln::cache

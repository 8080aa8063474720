#include "cache/read_only_store.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "cache/entry.h"
#include "cache/file.h"
#include "cache/folder.h"
#include "cache/pack.h"

namespace sparsekiln::cache {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, std::string_view wrong) {
  throw Error(ErrorKind::cache, fmt::format("cannot use the pack '{}': {}", printable(path.string()), wrong));
}

class PackReader final : public ReadOnlyStore {
 public:
  explicit PackReader(const fs::path& path) : ReadOnlyStore(path), pack_(Pack::open(path)) {}

  std::optional<std::vector<std::byte>> get(const Identity& identity) const override {
    return pack_->get(identity);
  }
  std::vector<Identity> identities() const override {
    std::vector<Identity> identities;
    for (const PackRow& row : pack_->rows()) identities.push_back(pack_->identity(row));
    return identities;
  }

 private:
  std::shared_ptr<const Pack> pack_;
};

/// More than an identity has; a larger one is read as a whole.
constexpr std::size_t kPeekedBytes = 8192;
constexpr std::size_t kMostBytes = Folder::kMaxFileBytes;

/// Refuses files that anyone may write to.
void check_mode(const fs::path& path, const struct stat& status) {
  if ((status.st_mode & S_IWOTH) != 0)
    refuse(path, fmt::format("anyone may write to it (mode {:04o}); chmod o-w it", status.st_mode & 07777u));
}

/// Up to `most` bytes from the beginning of a regular file; empty if there is none.
std::optional<std::vector<std::byte>> read_beginning(const fs::path& file, std::size_t most) {
  const Descriptor opened = open_file(file, kReadFlags);
  if (!opened.open() && errno == EACCES)
    refuse(file, "its mode does not let this user read it; chmod a+r it");
  struct stat status{};
  if (!opened.open() || ::fstat(opened.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  check_mode(file, status);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > kMostBytes) return std::nullopt;
  std::vector<std::byte> bytes(std::min(size, most));
  if (const int error = read_into(opened.get(), bytes); error != 0)
    refuse(file, std::generic_category().message(error));
  return bytes;
}

/// The folder of a store that somebody else maintains, and may trim and repair while it is read: what is
/// missing or torn counts as absent.
class FolderReader final : public ReadOnlyStore {
 public:
  explicit FolderReader(const fs::path& path) : ReadOnlyStore(path) {
    if (::access(path.c_str(), R_OK | X_OK) != 0)
      refuse(path, "its mode does not let this user look into it; chmod a+rX its folders, a+r its files");
  }

  std::optional<std::vector<std::byte>> get(const Identity& identity) const override {
    const fs::path file = file_of(identity);
    struct stat shard{};
    if (::stat(file.parent_path().c_str(), &shard) == 0) check_mode(file.parent_path(), shard);
    const auto bytes = read_beginning(file, kMostBytes);
    if (!bytes) return std::nullopt;
    Damage damage = Damage::none;
    std::optional<StoredEntry> entry = decode(*bytes, damage);
    if (!entry || entry->identity != identity) return std::nullopt;
    return std::move(entry->payload);
  }

  std::vector<Identity> identities() const override {
    std::map<Digest, Identity> found;
    std::error_code error;
    for (int shard = 0; shard < 256; ++shard)
      for (fs::directory_iterator at(path() / fmt::format("{:02x}", shard), error), end; !error && at != end;
           at.increment(error)) {
        if (at->path().extension() != ".entry") continue;
        const auto bytes = read_beginning(at->path(), kPeekedBytes);
        if (!bytes) continue;
        Damage damage = Damage::none;
        std::optional<Identity> identity = decode_identity(*bytes, damage);
        if (identity && identity->key().hex() == at->path().stem())
          found.emplace(identity->key(), std::move(*identity));
      }
    std::vector<Identity> identities;
    for (auto& [key, identity] : found) identities.push_back(std::move(identity));
    return identities;
  }

 private:
  /// The same paths as in cache/folder.cpp.
  fs::path file_of(const Identity& identity) const {
    const std::string name = identity.file_name();
    return path() / name.substr(0, 2) / name;
  }
};

/// What distinguishes one state of a file from another.
struct Seen {
  std::uintmax_t device, number, size, seconds, nanoseconds;
  friend bool operator==(const Seen&, const Seen&) = default;
};

}  // namespace

std::shared_ptr<const ReadOnlyStore> open_read_only_store(const fs::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) refuse(path, std::generic_category().message(errno));
  if (S_ISDIR(status.st_mode)) {
    check_mode(path, status);
    return std::make_shared<const FolderReader>(path);
  }
  const auto number = [](auto value) { return static_cast<std::uintmax_t>(value); };
  const Seen seen{number(status.st_dev), number(status.st_ino), number(status.st_size),
                  number(status.st_mtim.tv_sec), number(status.st_mtim.tv_nsec)};
  static std::mutex mutex;
  static std::map<fs::path, std::pair<Seen, std::shared_ptr<const ReadOnlyStore>>> open;
  const std::lock_guard lock(mutex);
  if (const auto known = open.find(path); known != open.end() && known->second.first == seen)
    return known->second.second;
  auto layer = std::make_shared<const PackReader>(path);
  open.insert_or_assign(path, std::pair(seen, layer));
  return layer;
}

}  // namespace sparsekiln::cache

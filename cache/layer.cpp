#include "cache/layer.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

#include <sparsekiln/error.h>

#include "cache/entry.h"
#include "cache/folder.h"
#include "cache/pack.h"

namespace sparsekiln::cache {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, std::string_view wrong) {
  throw Error(ErrorKind::cache, fmt::format("cannot use the pack '{}': {}", path.string(), wrong));
}

class PackLayer final : public Layer {
 public:
  explicit PackLayer(const fs::path& path) : Layer(path), pack_(Pack::open(path)) {}

  std::optional<std::vector<std::byte>> get(const Identity& identity) const override {
    return pack_->get(identity);
  }
  bool holds(const Identity& identity) const override { return pack_->find(identity.key()) != nullptr; }
  std::vector<Identity> identities() const override {
    std::vector<Identity> identities;
    for (const PackRow& row : pack_->rows()) identities.push_back(pack_->identity(row));
    return identities;
  }

 private:
  std::shared_ptr<const Pack> pack_;
};

/// More than an identity has; what does not fit is read whole.
constexpr std::size_t kPeekedBytes = 8192;
constexpr std::size_t kMostBytes = Folder::kMaxFileBytes;

/// Up to `most` bytes from the beginning of a regular file; nothing where there is none.
std::optional<std::vector<std::byte>> read_beginning(const fs::path& file, std::size_t most) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return std::nullopt;
  const std::uintmax_t size = fs::file_size(file, error);
  if (error || size > kMostBytes) return std::nullopt;
  std::vector<std::byte> bytes(std::min<std::size_t>(static_cast<std::size_t>(size), most));
  std::ifstream stream(file, std::ios::binary);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (stream.bad() || !stream.is_open()) refuse(file, "it cannot be read");
  bytes.resize(static_cast<std::size_t>(stream.gcount()));
  return bytes;
}

class FolderLayer final : public Layer {
 public:
  explicit FolderLayer(const fs::path& path) : Layer(path) {}

  std::optional<std::vector<std::byte>> get(const Identity& identity) const override {
    const fs::path file = file_of(identity);
    const auto bytes = read_beginning(file, kMostBytes);
    if (!bytes) return std::nullopt;
    Damage damage = Damage::none;
    std::optional<StoredEntry> entry = decode(*bytes, damage);
    if (damage == Damage::other_version) return std::nullopt;
    if (!entry) refuse(file, fmt::format("damaged ({})", name(damage)));
    if (entry->identity != identity) refuse(file, "it is not the entry that it is named for");
    return std::move(entry->payload);
  }

  bool holds(const Identity& identity) const override {
    std::error_code none;
    return fs::is_regular_file(file_of(identity), none);
  }

  std::vector<Identity> identities() const override {
    std::map<Digest, Identity> found;
    std::error_code error;
    for (fs::recursive_directory_iterator at(path(), error), end; !error && at != end; at.increment(error)) {
      if (at.depth() > 1 || at->path().extension() != ".entry") continue;
      auto bytes = read_beginning(at->path(), kPeekedBytes);
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
  /// As cache/folder.cpp lays them.
  fs::path file_of(const Identity& identity) const {
    const std::string hex = identity.key().hex();
    return path() / hex.substr(0, 2) / (hex + ".entry");
  }
};

/// What tells one state of a file from another.
struct Seen {
  std::uintmax_t device, number, size, seconds, nanoseconds;
  friend bool operator==(const Seen&, const Seen&) = default;
};

}  // namespace

std::shared_ptr<const Layer> open_layer(const fs::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) refuse(path, std::generic_category().message(errno));
  if (S_ISDIR(status.st_mode)) {
    if ((status.st_mode & S_IWOTH) != 0)
      refuse(path,
             fmt::format("anyone may write to it (mode {:04o}); chmod o-w it", status.st_mode & 07777u));
    return std::make_shared<const FolderLayer>(path);
  }
  const auto number = [](auto value) { return static_cast<std::uintmax_t>(value); };
  const Seen seen{number(status.st_dev), number(status.st_ino), number(status.st_size),
                  number(status.st_mtim.tv_sec), number(status.st_mtim.tv_nsec)};
  static std::mutex mutex;
  static std::map<fs::path, std::pair<Seen, std::shared_ptr<const Layer>>> open;
  const std::lock_guard lock(mutex);
  if (const auto known = open.find(path); known != open.end() && known->second.first == seen)
    return known->second.second;
  auto layer = std::make_shared<const PackLayer>(path);
  open.insert_or_assign(path, std::pair(seen, layer));
  return layer;
}

}  // namespace sparsekiln::cache

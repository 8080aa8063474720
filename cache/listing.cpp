#include "cache/listing.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <sparsekiln/error.h>

namespace sparsekiln::cache {

namespace {

constexpr std::size_t kKeyDigits = 32;
constexpr std::size_t kUsualHead = 4096, kLargestHead = std::size_t{1} << 20;

bool is_hexadecimal(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool has_key(std::string_view name) {
  return name.size() > kKeyDigits && is_hexadecimal(name.substr(0, kKeyDigits)) && name[kKeyDigits] == '.';
}

/// Calls `visit(name, status)` for the files in an open folder, until `stop` returns true.
template <typename Visit>
void visit_folder(Descriptor folder, const std::function<bool()>& stop, Visit visit) {
  const auto close = [](DIR* directory) { ::closedir(directory); };
  const int fd = folder.get();
  const std::unique_ptr<DIR, decltype(close)> directory(::fdopendir(fd), close);
  if (directory == nullptr) return;
  static_cast<void>(folder.release());  // the directory owns it now
  while (const dirent* entry = stop && stop() ? nullptr : ::readdir(directory.get())) {
    const std::string name = entry->d_name;
    struct stat status{};
    if (name == "." || name == "..") continue;
    if (::fstatat(fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) visit(name, status);
  }
}

File file_of(const Folder& folder, std::string shard, const std::string& name, const struct stat& status) {
  File file;
  file.kind = S_ISREG(status.st_mode) ? kind_of(name) : FileKind::other;
  if (file.kind != FileKind::other && has_key(name)) file.key = name.substr(0, kKeyDigits);
  file.path = folder.path() / shard / name;
  file.shard = std::move(shard);
  file.name = name;
  file.bytes = static_cast<std::uintmax_t>(status.st_size);
  file.stamp = stamp_of(status);
  file.device = status.st_dev;
  file.number = status.st_ino;
  return file;
}

/// The first bytes of a listed file, at most `size`.
std::vector<std::byte> read_head(const Folder& folder, const File& file, std::size_t size) {
  const Descriptor shard = folder.open_shard(file.name, false);
  if (!shard.open()) return {};
  const Descriptor opened = open_file(shard.get(), file.name, kReadFlags);
  std::vector<std::byte> bytes(std::min<std::uintmax_t>(size, file.bytes));
  if (!opened.open() || read_into(opened.get(), bytes) != 0) bytes.clear();
  return bytes;
}

const std::string* value_of(const Identity& identity, const std::string& field) {
  for (const auto& [name, value] : identity.fields())
    if (name == field) return &value;
  return nullptr;
}

/// Whether both are of kernels, of layouts …
bool is_of_the_same_kind(const Identity& a, const Identity& b) {
  const std::string* const what = value_of(a, "what");
  const std::string* const other = value_of(b, "what");
  return what == nullptr || (other != nullptr && *what == *other);
}

std::size_t fields_in_common(const Identity& a, const Identity& b) {
  return static_cast<std::size_t>(std::ranges::count_if(a.fields(), [&](const auto& field) {
    const std::string* const other = value_of(b, field.first);
    return other != nullptr && *other == field.second;
  }));
}

}  // namespace

std::string_view name(FileKind kind) {
  static constexpr std::string_view kNames[] = {"entry", "failed",  "bad",  "temporary",
                                                "lock",  "journal", "other"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(FileKind::other) + 1);
  return kNames[static_cast<std::size_t>(kind)];
}

FileKind kind_of(std::string_view name) {
  if (name.starts_with("counters.") && name.ends_with(".tmp")) return FileKind::temporary;
  if (!has_key(name)) return FileKind::other;
  const std::string_view rest = name.substr(kKeyDigits);
  if (!rest.starts_with(".entry")) return FileKind::other;
  if (rest == ".entry") return FileKind::entry;
  if (rest == ".entry.failed") return FileKind::failed;
  if (rest == ".entry.lock") return FileKind::lock;
  if (rest == ".entry.journal") return FileKind::journal;
  if (rest.ends_with(".bad")) return FileKind::bad;
  return rest.ends_with(".tmp") ? FileKind::temporary : FileKind::other;
}

std::vector<File> list(const Folder& folder, const std::function<bool()>& stop) {
  std::vector<File> files;
  std::vector<std::string> shards;
  if (Descriptor root = folder.open_root(false); root.open()) {
    visit_folder(std::move(root), stop, [&](const std::string& name, const struct stat& status) {
      if (S_ISREG(status.st_mode)) files.push_back(file_of(folder, {}, name, status));
      if (S_ISDIR(status.st_mode) && name.size() == 2 && is_hexadecimal(name)) shards.push_back(name);
    });
  }
  for (const std::string& shard : shards) {
    try {
      visit_folder(folder.open_shard(shard, false), stop,
                   [&](const std::string& name, const struct stat& status) {
                     files.push_back(file_of(folder, shard, name, status));
                   });
    } catch (const Error&) {  // the folder belongs to someone else: it is not used, hence not listed
    }
  }
  std::ranges::sort(files, [](const File& a, const File& b) {
    return std::tie(a.shard, a.name) < std::tie(b.shard, b.name);
  });
  return files;
}

std::optional<Beginning> read_beginning(const Folder& folder, const File& file) {
  Damage damage = Damage::none;
  std::vector<std::byte> head = read_head(folder, file, kUsualHead);
  auto identity = decode_identity(head, damage);
  if (!identity && damage == Damage::truncated && file.bytes > kUsualHead) {
    head = read_head(folder, file, kLargestHead);
    identity = decode_identity(head, damage);
  }
  if (!identity) return std::nullopt;
  const auto payload = payload_beginning(head);
  return Beginning{std::move(*identity), {payload.begin(), payload.end()}};
}

std::optional<Identity> read_identity(const Folder& folder, const File& file) {
  auto beginning = read_beginning(folder, file);
  if (!beginning) return std::nullopt;
  return std::move(beginning->identity);
}

std::optional<StoredEntry> read_entry(const Folder& folder, const File& file, Damage& damage) {
  damage = Damage::none;
  const auto found = folder.read(file.name);
  if (!found) return std::nullopt;
  damage = Damage::truncated;
  auto entry = decode(found->bytes, damage);
  if (entry && entry->identity.key().hex() != file.key) {
    damage = Damage::misnamed;
    return std::nullopt;
  }
  return entry;
}

std::vector<Difference> differences(const Identity& wanted, const Identity& stored) {
  std::vector<Difference> found;
  for (const auto& [field, value] : wanted.fields()) {
    const std::string* const other = value_of(stored, field);
    if (other == nullptr || *other != value)
      found.push_back({field, value, other == nullptr ? std::string() : *other});
  }
  for (const auto& [field, value] : stored.fields())
    if (value_of(wanted, field) == nullptr) found.push_back({field, {}, value});
  return found;
}

std::optional<Nearest> nearest(const Folder& folder, const Identity& wanted) {
  std::optional<Nearest> best;
  std::size_t best_common = 0;
  for (File& file : list(folder)) {
    if (file.kind != FileKind::entry) continue;
    auto identity = read_identity(folder, file);
    if (!identity || !is_of_the_same_kind(wanted, *identity)) continue;
    const std::size_t common = fields_in_common(wanted, *identity);
    if (best && common <= best_common) continue;
    best_common = common;
    best = Nearest{std::move(file), std::move(*identity), {}};
  }
  if (best) best->differences = differences(wanted, best->identity);
  return best;
}

}  // namespace sparsekiln::cache

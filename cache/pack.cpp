#include "cache/pack.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "cache/file.h"

namespace sparsekiln::cache {
namespace {

namespace fs = std::filesystem;

std::string reason(int error) { return std::generic_category().message(error); }

[[noreturn]] void refuse(const fs::path& file, std::string_view wrong) {
  throw Error(ErrorKind::cache, fmt::format("cannot use the pack '{}': {}", printable(file.string()), wrong));
}

[[noreturn]] void fail_to_write(const fs::path& file, std::string_view wrong) {
  throw Error(ErrorKind::io, fmt::format("cannot write '{}': {}", printable(file.string()), wrong));
}

/// A pack holds machine code, so a user who may write it may run code with the rights of its readers.
void check_mode(const fs::path& file, const struct stat& status) {
  if (!S_ISREG(status.st_mode)) refuse(file, "it is not a regular file");
  if ((status.st_mode & S_IWOTH) != 0)
    refuse(file, fmt::format("anyone may write to it (mode {:04o}); chmod o-w it", status.st_mode & 07777u));
}

/// A file that is removed again unless it was renamed.
class Temporary {
 public:
  explicit Temporary(const fs::path& beside) : shown_(beside) {
    for (int attempt = 0; attempt < 8 && !file_.open(); ++attempt) {
      name_ = temporary_name(beside.string());
      file_ = open_file(name_, O_WRONLY | O_CREAT | O_EXCL, 0664);
      if (!file_.open() && errno != EEXIST) break;
    }
    if (file_.open()) return;
    const int error = errno;
    name_.clear();
    fail_to_write(shown_, reason(error));
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (!name_.empty()) ::unlink(name_.c_str());
  }

  void write(std::span<const std::byte> bytes) {
    if (const int error = write_all(file_.get(), bytes); error != 0) fail_to_write(shown_, reason(error));
  }

  /// A pack takes long to make and is copied to other machines: it must be on the disk when its name appears.
  void rename() {
    if (::fsync(file_.get()) != 0) fail_to_write(shown_, reason(errno));
    if (const int error = file_.close(); error != 0) fail_to_write(shown_, reason(error));
    if (::rename(name_.c_str(), shown_.c_str()) != 0) fail_to_write(shown_, reason(errno));
    name_.clear();
  }

 private:
  fs::path shown_;
  std::string name_;
  Descriptor file_;
};

/// A link is kept: the file that it refers to is replaced.
fs::path behind_links(const fs::path& file) {
  std::error_code broken;
  const fs::path real = fs::canonical(file, broken);
  return broken ? file : real;
}

}  // namespace

std::shared_ptr<const Pack> Pack::open(const fs::path& file) { return std::shared_ptr<Pack>(new Pack(file)); }

Pack::Pack(fs::path file) : file_(std::move(file)) {
  // O_NONBLOCK: opening a pipe must not wait for its other end.
  const Descriptor descriptor = open_file(file_, O_RDONLY | O_NONBLOCK);
  struct stat status{};
  if (!descriptor.open() || ::fstat(descriptor.get(), &status) != 0) refuse(file_, reason(errno));
  check_mode(file_, status);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size != 0) {
    void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
    if (memory == MAP_FAILED) refuse(file_, reason(errno));
    mapped_ = {static_cast<const std::byte*>(memory), size};
  }
  std::string wrong;
  rows_ = read_pack_index(mapped_, mapped_.size(), wrong);
  if (wrong.empty()) return;
  if (size != 0) ::munmap(const_cast<std::byte*>(mapped_.data()), size);
  refuse(file_, wrong);
}

Pack::~Pack() {
  if (!mapped_.empty()) ::munmap(const_cast<std::byte*>(mapped_.data()), mapped_.size());
}

void Pack::fail(const PackRow& row, std::string_view wrong) const {
  refuse(file_, fmt::format("entry {} at byte {}: {}", row.key.hex(), row.offset, wrong));
}

const PackRow* Pack::find(const Digest& key) const {
  const auto row = std::lower_bound(rows_.begin(), rows_.end(), key,
                                    [](const PackRow& at, const Digest& wanted) { return at.key < wanted; });
  return row == rows_.end() || row->key != key ? nullptr : &*row;
}

std::span<const std::byte> Pack::stored(const PackRow& row) const {
  return mapped_.subspan(static_cast<std::size_t>(row.offset), static_cast<std::size_t>(row.size));
}

StoredEntry Pack::entry(const PackRow& row) const {
  Damage damage = Damage::none;
  std::optional<StoredEntry> entry = decode(stored(row), damage);
  if (!entry) fail(row, fmt::format("damaged ({})", name(damage)));
  if (entry->identity.key() != row.key) fail(row, "it is not the entry that the index names");
  return std::move(*entry);
}

Identity Pack::identity(const PackRow& row) const {
  Damage damage = Damage::none;
  std::optional<Identity> identity = decode_identity(stored(row), damage);
  if (!identity) fail(row, fmt::format("damaged ({})", name(damage)));
  if (identity->key() != row.key) fail(row, "it is not the entry that the index names");
  return std::move(*identity);
}

std::optional<std::vector<std::byte>> Pack::get(const Identity& identity) const {
  const PackRow* const row = find(identity.key());
  if (row == nullptr) return std::nullopt;
  Damage damage = Damage::none;
  std::optional<StoredEntry> entry = decode(stored(*row), damage);
  if (damage == Damage::other_version) return std::nullopt;
  if (!entry) fail(*row, fmt::format("damaged ({})", name(damage)));
  if (entry->identity != identity) fail(*row, "it is not the entry that the index names");
  return std::move(entry->payload);
}

void check_pack_can_be_written(const fs::path& file) {
  struct stat status{};
  if (::stat(file.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) fail_to_write(file, "it exists and is not a regular file");
    const Descriptor descriptor = open_file(file, O_RDONLY | O_NONBLOCK);
    std::array<std::byte, 8> begin{};
    const ssize_t got = descriptor.open() ? ::read(descriptor.get(), begin.data(), begin.size()) : -1;
    if (got < 0) fail_to_write(file, reason(errno));
    if (got != 0 && !begins_as_pack({begin.data(), static_cast<std::size_t>(got)}))
      fail_to_write(file, "it exists and is not a pack; remove it, or choose another name");
  } else if (errno != ENOENT) {
    fail_to_write(file, reason(errno));
  }
  const fs::path folder = behind_links(file).parent_path();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) fail_to_write(file, reason(errno));
}

void write_pack(const fs::path& file, const PackEntries& entries) {
  check_pack_can_be_written(file);
  Temporary temporary(behind_links(file));
  temporary.write(encode_pack_index(entries));
  for (const auto& [key, entry] : entries) temporary.write(entry);
  temporary.rename();
}

}  // namespace sparsekiln::cache

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/file.h"

namespace sparsekiln::cache {

/// The folder of a store and the files in it. Every operation opens the folder again and works relative to
/// the opened folder, so that the folder that was checked is the folder that is used, and a folder that was
/// removed meanwhile is created again.
///
/// Throws Error(cache) if the disk, or the folder's owner and mode, do not allow what was asked.
class Folder {
 public:
  /// Accesses nothing yet.
  explicit Folder(std::filesystem::path path) : path_(std::move(path)) {}

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// A file as it was read. Anything but an entry (a pipe, a link, a file that others can write, a file
  /// larger than kMaxFileBytes) reads as no bytes.
  struct Found {
    std::vector<std::byte> bytes;
    Descriptor file;  // kept open, so that no other file can get its number
    std::uintmax_t device = 0;
    std::uintmax_t number = 0;
    Stamp stamp;
  };
  /// Larger files are not read: the size of a file is not trusted, and memory is reserved for it.
  static constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;

  /// Reads `name`; empty if there is no such file (or no folder yet). The first two characters of a name
  /// choose the folder inside the folder.
  [[nodiscard]] std::optional<Found> read(const std::string& name) const;
  /// Gives `name` exactly these bytes, atomically for every reader; leaves no other file.
  void publish(const std::string& name, std::span<const std::byte> bytes) const;
  /// Renames `name` to `name.bad` unless it has been replaced since it was found. Returns whether it was
  /// renamed.
  bool set_aside(const std::string& name, const Found& found) const;
  /// Removes `name` if it exists.
  void remove(const std::string& name) const;
  /// The path of `name`.
  [[nodiscard]] std::filesystem::path file(const std::string& name) const;
  /// Throws if a publish could not work; creates nothing.
  void check_writable() const;

  /// The folder that holds `name`; not open() if it does not exist and is not to be created.
  [[nodiscard]] Descriptor open_shard(const std::string& name, bool make) const;
  /// The folder itself; not open() if it does not exist and is not to be created.
  [[nodiscard]] Descriptor open_root(bool make) const;

 private:
  void check_ours(int fd, const std::filesystem::path& which) const;

  std::filesystem::path path_;
};

}  // namespace sparsekiln::cache

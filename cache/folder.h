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

/// The folder of a store and the files in it. Every operation opens the folder anew and works relative to
/// what it opened, so that the folder that was checked is the folder that is used, and one removed meanwhile
/// is made again.
///
/// Throws Error(cache) where the disk or the folder's owner and mode do not allow what was asked.
class Folder {
 public:
  /// Looks at nothing yet.
  explicit Folder(std::filesystem::path path) : path_(std::move(path)) {}

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// A file as it was read. What is no entry at all (a pipe, a link, a file that someone else can write, one
  /// larger than kMaxFileBytes) reads as no bytes.
  struct Found {
    std::vector<std::byte> bytes;
    Descriptor file;  // held open: while it is, no other file can have its number
    std::uintmax_t device = 0;
    std::uintmax_t number = 0;
    Stamp stamp;
  };
  /// Larger files are not read: a size is a claim, and memory is reserved for it.
  static constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;

  /// Reads `name`; nothing where there is no such file (or no folder yet). The first two characters of a name
  /// choose the folder inside the folder that holds it.
  [[nodiscard]] std::optional<Found> read(const std::string& name) const;
  /// Makes `name` hold exactly these bytes, at once for every reader; leaves no other file behind.
  void publish(const std::string& name, std::span<const std::byte> bytes) const;
  /// Renames `name` to `name.bad` unless it is no longer the file that was found. True if renamed.
  bool set_aside(const std::string& name, const Found& found) const;
  /// Removes `name`, where it is there.
  void remove(const std::string& name) const;
  /// Where `name` lies.
  [[nodiscard]] std::filesystem::path file(const std::string& name) const;
  /// Throws where a publish could not work; makes nothing.
  void check_writable() const;

  /// The folder that holds `name`; not open() where there is none and none is to be made.
  [[nodiscard]] Descriptor open_shard(const std::string& name, bool make) const;
  /// The folder itself, likewise.
  [[nodiscard]] Descriptor open_root(bool make) const;

 private:
  void check_ours(int fd, const std::filesystem::path& which) const;

  std::filesystem::path path_;
};

}  // namespace sparsekiln::cache

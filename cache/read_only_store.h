#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "cache/identity.h"

namespace sparsekiln::cache {

/// A store that is asked before the user's own one and never written: a pack, or the folder of a store that
/// somebody else maintains. Thread-safe.
class ReadOnlyStore {
 public:
  explicit ReadOnlyStore(std::filesystem::path path) : path_(std::move(path)) {}
  ReadOnlyStore(const ReadOnlyStore&) = delete;
  ReadOnlyStore& operator=(const ReadOnlyStore&) = delete;
  virtual ~ReadOnlyStore() = default;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// The payload stored under exactly this identity. Throws Error(cache) that names file, entry and damage if
  /// the stored bytes cannot be that payload.
  [[nodiscard]] virtual std::optional<std::vector<std::byte>> get(const Identity& identity) const = 0;
  /// The identities of all entries, in the order of their keys. Reads the beginning of each, so it takes a
  /// while.
  [[nodiscard]] virtual std::vector<Identity> identities() const = 0;

 private:
  std::filesystem::path path_;
};

/// Opens a pack, or the folder of a store. A pack is opened once per process, and again if inode, size or
/// time of the last change are different. Throws Error(cache) that names the file and what is wrong.
[[nodiscard]] std::shared_ptr<const ReadOnlyStore> open_read_only_store(const std::filesystem::path& path);

}  // namespace sparsekiln::cache

#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/entry.h"
#include "cache/identity.h"
#include "cache/pack_format.h"

namespace sparsekiln::cache {

/// A read-only store in one file, mapped into memory. Immutable and thread-safe.
///
/// The file is trusted to stay as it is while it is mapped: replace a pack by renaming another one over it,
/// as write_pack does, and never write into it or cut it.
class Pack {
 public:
  /// Opens a pack and checks its index. Throws Error(cache) naming the file and what is wrong with it.
  [[nodiscard]] static std::shared_ptr<const Pack> open(const std::filesystem::path& file);

  Pack(const Pack&) = delete;
  Pack& operator=(const Pack&) = delete;
  ~Pack();

  [[nodiscard]] const std::filesystem::path& file() const { return file_; }
  /// Ascending by key.
  [[nodiscard]] const std::vector<PackRow>& rows() const { return rows_; }
  /// Of the whole file.
  [[nodiscard]] std::size_t bytes() const { return mapped_.size(); }

  /// The row of a key; null where there is none.
  [[nodiscard]] const PackRow* find(const Digest& key) const;
  /// An entry as it lies in the file, not checked.
  [[nodiscard]] std::span<const std::byte> stored(const PackRow& row) const;
  /// An entry, checked in full. Throws Error(cache) naming file, entry and damage.
  [[nodiscard]] StoredEntry entry(const PackRow& row) const;
  /// The identity of an entry, of which only that is read; checked against the row's key. Throws as `entry`.
  [[nodiscard]] Identity identity(const PackRow& row) const;
  /// The payload stored under exactly this identity. Throws as `entry`; an entry of another format version is
  /// not what is asked for.
  [[nodiscard]] std::optional<std::vector<std::byte>> get(const Identity& identity) const;

 private:
  explicit Pack(std::filesystem::path file);
  [[noreturn]] void fail(const PackRow& row, std::string_view wrong) const;

  std::filesystem::path file_;
  std::span<const std::byte> mapped_;
  std::vector<PackRow> rows_;
};

/// Makes `file` a pack of these entries: all or nothing, through a temporary in the same folder that is
/// renamed. The same entries give the same bytes. A file that is there and no pack is not replaced, nor is
/// what is no regular file. Throws Error(io) naming the file; it is then as it was.
void write_pack(const std::filesystem::path& file, const PackEntries& entries);

/// Throws as write_pack would, as far as that shows beforehand; makes nothing.
void check_pack_can_be_written(const std::filesystem::path& file);

}  // namespace sparsekiln::cache

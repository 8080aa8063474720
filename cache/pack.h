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
/// The file must not change while it is mapped: replace a pack by renaming another one over it, as write_pack
/// does, and never write into it or truncate it.
class Pack {
 public:
  /// Opens a pack and checks its index. Throws Error(cache) naming the file and what is wrong with it.
  [[nodiscard]] static std::shared_ptr<const Pack> open(const std::filesystem::path& file);

  Pack(const Pack&) = delete;
  Pack& operator=(const Pack&) = delete;
  ~Pack();

  [[nodiscard]] const std::filesystem::path& file() const { return file_; }
  /// In ascending order of keys.
  [[nodiscard]] const std::vector<PackRow>& rows() const { return rows_; }
  /// The size of the whole file, in bytes.
  [[nodiscard]] std::size_t bytes() const { return mapped_.size(); }

  /// The row of a key; null if there is none.
  [[nodiscard]] const PackRow* find(const Digest& key) const;
  /// The bytes of an entry, not checked.
  [[nodiscard]] std::span<const std::byte> stored(const PackRow& row) const;
  /// An entry, checked in full. Throws Error(cache) that names file, entry and damage.
  [[nodiscard]] StoredEntry entry(const PackRow& row) const;
  /// The identity of an entry; nothing else of it is read. It is checked against the row's key. Throws like
  /// `entry`.
  [[nodiscard]] Identity identity(const PackRow& row) const;
  /// The payload stored under exactly this identity. Throws like `entry`; an entry of another format version
  /// counts as absent.
  [[nodiscard]] std::optional<std::vector<std::byte>> get(const Identity& identity) const;

 private:
  explicit Pack(std::filesystem::path file);
  [[noreturn]] void fail(const PackRow& row, std::string_view wrong) const;

  std::filesystem::path file_;
  std::span<const std::byte> mapped_;
  std::vector<PackRow> rows_;
};

/// Writes these entries to `file` as a pack: completely or not at all, through a temporary file in the same
/// folder that is renamed. The same entries give the same bytes. A file that exists is replaced only if it is
/// a pack. Throws Error(io) that names the file, which is then unchanged.
void write_pack(const std::filesystem::path& file, const PackEntries& entries);

/// Throws what write_pack would throw, as far as that is known beforehand; creates nothing.
void check_pack_can_be_written(const std::filesystem::path& file);

}  // namespace sparsekiln::cache

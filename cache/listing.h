#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/entry.h"
#include "cache/folder.h"
#include "cache/identity.h"

namespace sparsekiln::cache {

/// What a file in the folder is, by its name.
enum class FileKind : std::uint8_t {
  entry,
  failed,     ///< the entry of a failed compile
  bad,        ///< set aside
  temporary,  ///< being written, or left by a killed writer
  lock,       ///< of a key that is being made
  journal,    ///< of an entry that takes long to make
  other,      ///< counters, stamps, and what is not the store's
};
/// The field's name.
[[nodiscard]] std::string_view name(FileKind kind);

/// A file of the folder as it was listed.
struct File {
  FileKind kind = FileKind::other;
  std::string shard;  ///< the folder in the folder; empty for a file at the top
  std::string name;
  std::string key;  ///< the 32 digits of its name; empty for `other`, and where it has none
  std::filesystem::path path;
  std::uintmax_t bytes = 0;
  Stamp stamp;  ///< of an entry: when it was last used, to the hour
  std::uintmax_t device = 0;
  std::uintmax_t number = 0;
};

/// The kind of a regular file with this name.
[[nodiscard]] FileKind kind_of(std::string_view name);

/// Every file of the folder, by shard and name. What vanishes meanwhile, and folders in the folder that
/// cannot be used, are left out. Throws Error(cache) where the folder cannot be used; one that is not there
/// is empty. Ends early, with what it has, when `stop` says so.
[[nodiscard]] std::vector<File> list(const Folder& folder, const std::function<bool()>& stop = {});

/// The identity at the head of a listed entry (also a failed or bad one); nothing else of it is read, and
/// nothing is verified.
[[nodiscard]] std::optional<Identity> read_identity(const Folder& folder, const File& file);

/// The same, with what was read of the payload on the way: a few KB of its beginning at most.
struct Beginning {
  Identity identity;
  std::vector<std::byte> payload;
};
[[nodiscard]] std::optional<Beginning> read_beginning(const Folder& folder, const File& file);

/// A listed entry (also a failed or bad one), read whole and verified, its name included. Nothing where it is
/// gone (`damage` is none) or damaged; `damage` says how.
[[nodiscard]] std::optional<StoredEntry> read_entry(const Folder& folder, const File& file, Damage& damage);

/// A field in which a stored identity is not the wanted one; empty where an identity has no such field.
struct Difference {
  std::string field;
  std::string wanted;
  std::string stored;
};
[[nodiscard]] std::vector<Difference> differences(const Identity& wanted, const Identity& stored);

/// Of the entries of the same kind (field "what"), the one that has the most fields with the wanted identity
/// in common; the first where several have. No differences: it is the wanted one.
struct Nearest {
  File file;
  Identity identity;
  std::vector<Difference> differences;
};
/// Nothing where the folder holds no entry that can be read. Throws as list().
[[nodiscard]] std::optional<Nearest> nearest(const Folder& folder, const Identity& wanted);

}  // namespace sparsekiln::cache

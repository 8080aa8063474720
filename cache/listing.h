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

/// The kind of a file in the folder, by its name.
enum class FileKind : std::uint8_t {
  entry,
  failed,     ///< the entry of a failed compile
  bad,        ///< set aside
  temporary,  ///< being written, or left by a killed writer
  lock,       ///< of a key that is being made
  journal,    ///< of an entry that takes long to make
  other,      ///< counters, stamps, and files that are not the store's
};
/// The enumerator's name.
[[nodiscard]] std::string_view name(FileKind kind);

/// A file of the folder as it was listed.
struct File {
  FileKind kind = FileKind::other;
  std::string shard;  ///< the folder inside the folder; empty for a file at the top
  std::string name;
  std::string key;  ///< the 32 digits of its name; empty for `other`, and if there are none
  std::filesystem::path path;
  std::uintmax_t bytes = 0;
  Stamp stamp;  ///< of an entry: when it was last used, to the hour
  std::uintmax_t device = 0;
  std::uintmax_t number = 0;
};

/// The kind of a regular file with this name.
[[nodiscard]] FileKind kind_of(std::string_view name);

/// Every file of the folder, by shard and name. Files that disappear meanwhile, and folders inside the folder
/// that cannot be used, are left out. Throws Error(cache) if the folder cannot be used; a folder that does
/// not exist is empty. Ends early, with the files so far, when `stop` returns true.
[[nodiscard]] std::vector<File> list(const Folder& folder, const std::function<bool()>& stop = {});

/// The identity at the start of a listed entry (also of a failed or bad one). Nothing else is read, and
/// nothing is verified.
[[nodiscard]] std::optional<Identity> read_identity(const Folder& folder, const File& file);

/// The same, with the part of the payload that was read at the same time: at most a few KB from its start.
struct Beginning {
  Identity identity;
  std::vector<std::byte> payload;
};
[[nodiscard]] std::optional<Beginning> read_beginning(const Folder& folder, const File& file);

/// A listed entry (also a failed or bad one), read whole and verified, including its name. Empty if it no
/// longer exists (`damage` is none) or is damaged; `damage` says how.
[[nodiscard]] std::optional<StoredEntry> read_entry(const Folder& folder, const File& file, Damage& damage);

/// A field in which a stored identity differs from the wanted one; empty if an identity has no such field.
struct Difference {
  std::string field;
  std::string wanted;
  std::string stored;
};
[[nodiscard]] std::vector<Difference> differences(const Identity& wanted, const Identity& stored);

/// The entry of the same kind (field "what") that has the most fields with the wanted identity in common; the
/// first if there are several. If there are no differences, it is the wanted one.
struct Nearest {
  File file;
  Identity identity;
  std::vector<Difference> differences;
};
/// Empty if the folder has no entry that can be read. Throws like list().
[[nodiscard]] std::optional<Nearest> nearest(const Folder& folder, const Identity& wanted);

}  // namespace sparsekiln::cache

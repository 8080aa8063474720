#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/identity.h"

namespace sparsekiln::cache {

/// What happened so far in this process.
struct Counters {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t stores = 0;       ///< entries published on disk
  std::uint64_t quarantined = 0;  ///< bad files set aside
  std::uint64_t failures = 0;     ///< writes that did not reach the disk
};

/// The content-addressed cache on disk: Identity → bytes, one file an entry, verified on every read.
/// Thread-safe and process-safe. It never throws for the state of the disk: what cannot be read is a miss,
/// what cannot be written is kept in memory, and the first such event is reported once through `warn`.
class Store {
 public:
  using Warn = std::function<void(const std::string&)>;

  /// `folder` empty: default_folder(). The folder is made (0700) on the first write; one that someone else
  /// owns or can write is not used.
  explicit Store(std::filesystem::path folder = {}, Warn warn = {});
  ~Store();

  /// SPARSEKILN_CACHE_DIR, else XDG_CACHE_HOME/sparsekiln, else HOME/.cache/sparsekiln; empty where none is
  /// set. As the XDG base directory specification asks, a relative XDG_CACHE_HOME counts as not set (so does
  /// HOME).
  [[nodiscard]] static std::filesystem::path default_folder();

  /// The payload stored under exactly this identity. A bad file is set aside (renamed to `*.bad`) and is a
  /// miss; one of another format version is a miss and stays.
  [[nodiscard]] std::optional<std::vector<std::byte>> get(const Identity& identity);
  /// Publishes by writing a temporary file in the same folder and renaming it. Never throws for the disk's
  /// sake: what cannot be published is kept in memory (256 MiB at most, least recently used first out) for
  /// this object's gets.
  void put(const Identity& identity, std::span<const std::byte> payload);

  [[nodiscard]] const std::filesystem::path& folder() const;
  /// False where the folder cannot be used, or the last write failed; `why` then says why. Looks, but makes
  /// nothing.
  [[nodiscard]] bool on_disk() const;
  [[nodiscard]] std::string why() const;
  /// Why `put` could not publish what it was given for an identity; empty where it did, or was not asked.
  [[nodiscard]] std::string why_not_on_disk(const Identity& identity) const;
  /// The file that holds, or would hold, an identity; empty where there is no folder.
  [[nodiscard]] std::filesystem::path file(const Identity& identity) const;
  [[nodiscard]] Counters counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sparsekiln::cache

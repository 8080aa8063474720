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

#include "cache/caps.h"
#include "cache/counters.h"
#include "cache/identity.h"
#include "cache/journal.h"
#include "cache/lock.h"

namespace sparsekiln::cache {

/// What a store is held to.
struct Limits {
  std::optional<Caps> caps;  ///< not given: caps_from_environment
  Patience patience;         ///< of who waits for a key's lock
};

/// The content-addressed cache on disk: Identity → bytes, one file an entry, verified on every read.
/// Thread-safe and process-safe. It never throws for the state of the disk: what cannot be read is a miss,
/// what cannot be written is kept in memory, and the first such event is reported once through `warn`.
///
/// Trims its folder to the caps on a thread of its own, after a put (see Trimmer). When it goes, it adds what
/// it has counted to the folder's file of counters.
class Store {
 public:
  using Warn = std::function<void(const std::string&)>;

  /// `folder` empty: default_folder(). The folder is made (0700) on the first write; one that someone else
  /// owns or can write is not used.
  explicit Store(std::filesystem::path folder = {}, Warn warn = {}, const Limits& limits = {});
  ~Store();

  /// SPARSEKILN_CACHE_DIR, else XDG_CACHE_HOME/sparsekiln, else HOME/.cache/sparsekiln; empty where none is
  /// set. As the XDG base directory specification asks, a relative XDG_CACHE_HOME counts as not set (so does
  /// HOME).
  [[nodiscard]] static std::filesystem::path default_folder();

  /// A payload, and whether it had to be made.
  struct Got {
    std::vector<std::byte> payload;
    bool made = false;
  };
  /// Whether a payload that was found whole is what the caller can use; else it is made anew.
  using Accept = std::function<bool(std::span<const std::byte>)>;
  using Make = std::function<std::vector<std::byte>()>;
  /// Name and version of the compiler that `make` uses; empty where there is none. Asked only where a compile
  /// has failed, now or before.
  using Toolchain = std::function<std::string()>;

  /// The payload under this identity, or what `make` makes, which is then put. Of the threads and processes
  /// that ask for the same at once, one makes it, with the key's lock (KeyLock), and the others wait for that
  /// one, but for no longer than their patience.
  ///
  /// Throws what `make` throws. An Error of kind `compile` that has a log and a source is kept, and thrown
  /// again for who asks within the hour with the same toolchain.
  Got get_or_make(const Identity& identity, const Accept& accept, const Make& make,
                  const Toolchain& toolchain = {});

  /// The payload stored under exactly this identity. A bad file is set aside (renamed to `*.bad`) and is a
  /// miss; one of another format version is a miss and stays.
  [[nodiscard]] std::optional<std::vector<std::byte>> get(const Identity& identity);
  /// Publishes by writing a temporary file in the same folder and renaming it. Never throws for the disk's
  /// sake: what cannot be published is kept in memory (256 MiB at most, least recently used first out) for
  /// this object's gets.
  void put(const Identity& identity, std::span<const std::byte> payload);

  /// As `get`, but counts no hit and no miss: for what is asked for beside every request.
  [[nodiscard]] std::optional<std::vector<std::byte>> peek(const Identity& identity);
  /// The key's lock, for who makes an entry without get_or_make; see KeyLock::acquire. Nothing where there is
  /// no folder.
  [[nodiscard]] std::optional<KeyLock> lock(const Identity& identity, const Patience& patience,
                                            const std::function<bool()>& arrived);
  /// Of an entry that takes long to make; nothing where there is no folder.
  [[nodiscard]] std::optional<Journal> journal(const Identity& identity) const;

  /// Makes sure that there is an entry under this identity, stamped like one that was used; puts what `make`
  /// makes where there is none. Counts no hit and no miss.
  void keep(const Identity& identity, const Make& make);

  [[nodiscard]] const std::filesystem::path& folder() const;
  /// False where the folder cannot be used, or the last write failed; `why` then says why. Looks, but makes
  /// nothing.
  [[nodiscard]] bool on_disk() const;
  [[nodiscard]] std::string why() const;
  /// Why `put` could not publish what it was given for an identity; empty where it did, or was not asked.
  [[nodiscard]] std::string why_not_on_disk(const Identity& identity) const;
  /// The file that holds, or would hold, an identity; empty where there is no folder.
  [[nodiscard]] std::filesystem::path file(const Identity& identity) const;
  /// Of this process.
  [[nodiscard]] Counters counters() const;
  /// Of all processes that have used the folder; of this one and those that have ended, to the last event.
  [[nodiscard]] Counters totals() const;
  [[nodiscard]] const Caps& caps() const;
  /// What makes no sense in the variables that set the caps; empty where all does.
  [[nodiscard]] const std::string& complaint() const;
  /// Returns when no trim of this store is under way.
  void wait_for_trim();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sparsekiln::cache

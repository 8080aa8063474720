#pragma once

#include <cstddef>
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
#include "cache/remote.h"

namespace sparsekiln::cache {

/// Limits of a store.
struct Limits {
  std::optional<Caps> caps;  ///< not given: caps_from_environment
  Patience patience;         ///< how long to wait for a key's lock
};

/// The content-addressed cache on disk: Identity → bytes, one file per entry, verified on every read.
/// Thread-safe and process-safe. It never throws because of the state of the disk: an entry that cannot be
/// read is a miss, an entry that cannot be written is kept in memory, and the first such event is reported
/// once through `warn`.
///
/// It trims its folder to the caps on a thread of its own, after a put (see Trimmer). When it is destroyed,
/// it adds its counts to the folder's file of counters.
class Store {
 public:
  using Warn = std::function<void(const std::string&)>;

  /// `folder` empty: default_folder(). The folder is created (0700) on the first write; a folder that someone
  /// else owns or can write is not used.
  /// `remote`: a level after the folder, which get_or_make asks before it makes anything; null: none.
  explicit Store(std::filesystem::path folder = {}, Warn warn = {}, const Limits& limits = {},
                 std::shared_ptr<Remote> remote = nullptr);
  ~Store();

  /// SPARSEKILN_CACHE_DIR, otherwise XDG_CACHE_HOME/sparsekiln, otherwise HOME/.cache/sparsekiln; empty if
  /// none is set. As the XDG base directory specification asks, a relative XDG_CACHE_HOME counts as not set;
  /// so does a relative HOME.
  [[nodiscard]] static std::filesystem::path default_folder();

  /// A payload, and whether it had to be made.
  struct Got {
    std::vector<std::byte> payload;
    bool made = false;
  };
  /// Whether the caller can use a payload that was found intact; otherwise it is made again.
  using Accept = std::function<bool(std::span<const std::byte>)>;
  /// What was made: what the folder gets, and what the remote level gets, which is signed: only what this
  /// process has made itself.
  struct Made {
    Made(std::vector<std::byte> all) : payload(std::move(all)) {}  // NOLINT: a payload is all there is
    Made(std::vector<std::byte> all, std::vector<std::byte> made_here)
        : payload(std::move(all)), own(std::move(made_here)) {}
    std::vector<std::byte> payload;
    std::vector<std::byte> own;  ///< empty: the same
  };
  using Make = std::function<Made()>;
  /// Name and version of the compiler that `make` uses; empty if there is none. Called only if a compile has
  /// failed, now or before.
  using Toolchain = std::function<std::string()>;

  /// The payload under this identity, or what `make` makes, which is then put. If threads and processes ask
  /// for the same at once, one of them makes it, with the key's lock (KeyLock), and the others wait for that
  /// one, but no longer than their patience. Where the folder has nothing under
  /// this identity, the remote level is asked first, and what it has is put; what was made is sent there.
  ///
  /// Throws what `make` throws. An Error of kind `compile` that has a log and a source is kept, and thrown
  /// again for requests within the hour with the same toolchain.
  Got get_or_make(const Identity& identity, const Accept& accept, const Make& make,
                  const Toolchain& toolchain = {});

  /// The payload stored under exactly this identity. A bad file is set aside (renamed to `*.bad`) and is a
  /// miss; a file of another format version is a miss and stays.
  [[nodiscard]] std::optional<std::vector<std::byte>> get(const Identity& identity);
  /// Publishes by writing a temporary file in the same folder and renaming it. Never throws because of the
  /// disk: what cannot be published is kept in memory (256 MiB at most, the least recently used is removed
  /// first) for this object's gets.
  void put(const Identity& identity, std::span<const std::byte> payload);

  /// Like `get`, but counts no hit and no miss: for what is read in addition to every request.
  [[nodiscard]] std::optional<std::vector<std::byte>> peek(const Identity& identity);
  /// The key's lock, for callers that make an entry without get_or_make; see KeyLock::acquire. Empty if there
  /// is no folder.
  [[nodiscard]] std::optional<KeyLock> lock(const Identity& identity, const Patience& patience,
                                            const std::function<bool()>& arrived);
  /// The journal of an entry that takes long to make; empty if there is no folder.
  [[nodiscard]] std::optional<Journal> journal(const Identity& identity) const;

  /// Makes sure that there is an entry under this identity, stamped as used; puts what `make` makes if there
  /// is none. Counts no hit and no miss.
  void keep(const Identity& identity, const Make& make);

  [[nodiscard]] const std::filesystem::path& folder() const;
  /// False if the folder cannot be used, or the last write failed; `why` then says why. Creates nothing.
  [[nodiscard]] bool on_disk() const;
  [[nodiscard]] std::string why() const;
  /// Why `put` could not publish an identity; empty if it did, or was not called for it.
  [[nodiscard]] std::string why_not_on_disk(const Identity& identity) const;
  /// The file of an identity, whether it exists or not; empty if there is no folder.
  [[nodiscard]] std::filesystem::path file(const Identity& identity) const;
  /// The counts of this process.
  [[nodiscard]] Counters counters() const;
  /// The counts of all processes that have used the folder: this one, and those that have ended, to the last
  /// event.
  [[nodiscard]] Counters totals() const;
  [[nodiscard]] const Caps& caps() const;
  /// The complaint about variables that set the caps to something invalid; empty if there are none.
  [[nodiscard]] const std::string& complaint() const;
  /// Returns when no trim of this store is running.
  void wait_for_trim();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sparsekiln::cache

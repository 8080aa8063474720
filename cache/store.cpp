#include "cache/store.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <unordered_map>
#include <utility>

#include <unistd.h>

#include <sparsekiln/error.h>

#include "cache/entry.h"
#include "cache/failure.h"
#include "cache/folder.h"
#include "cache/memory.h"
#include "cache/totals.h"
#include "cache/trimmer.h"

namespace sparsekiln::cache {

namespace {

constexpr const char* kNoFolder =
    "there is no folder for the cache: neither SPARSEKILN_CACHE_DIR nor XDG_CACHE_HOME nor HOME names one; "
    "set SPARSEKILN_CACHE_DIR to a folder of your own";

/// The variable's value as a path; empty if it is not set.
std::filesystem::path from_environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? std::filesystem::path{} : std::filesystem::path(value);
}

constexpr const char* kFailed = ".failed";
constexpr const char* kLock = ".lock";
constexpr std::chrono::hours kStampAge{1};       // a hit renews a stamp that is older
constexpr std::uint64_t kUncountedEvents = 256;  // at most, until they are written to the folder

/// Sets the stamp of an entry that was used, but not at every use.
void renew_stamp(const Folder::Found& found) {
  const Stamp now = WallClock::now();
  if (found.stamp > now || is_older(found.stamp, kStampAge, now)) set_stamp(found.file.get(), now);
}

/// Whether the compiler itself refused the source: then it would do so again.
bool is_refusal(const Error& error) {
  return error.kind() == ErrorKind::compile && !error.log().empty() && !error.source().empty();
}

/// Empty also if it is unknown.
std::string name_of(const Store::Toolchain& toolchain) {
  try {
    return toolchain ? toolchain() : std::string();
  } catch (const Error&) {
    return {};
  }
}

Caps caps_for(const Limits& limits, std::string& complaint) {
  return limits.caps ? *limits.caps : caps_from_environment(complaint);
}

}  // namespace

struct Store::State {
  State(std::filesystem::path path, Warn warn_once, const Limits& limits, std::shared_ptr<Remote> shared)
      : folder(std::move(path)),
        warn(std::move(warn_once)),
        caps(caps_for(limits, complaint)),
        patience(limits.patience),
        remote(std::move(shared)),
        trimmer(folder, caps) {
    if (!complaint.empty() && warn) warn(complaint);
  }

  Folder folder;
  Memory memory;
  Warn warn;
  std::atomic<bool> warned = false;
  std::string complaint;  // declared before the caps, which set it
  const Caps caps;
  const Patience patience;
  const std::shared_ptr<Remote> remote;

  std::atomic<std::uint64_t> hits = 0;
  std::atomic<std::uint64_t> misses = 0;
  std::atomic<std::uint64_t> stores = 0;
  std::atomic<std::uint64_t> quarantined = 0;
  std::atomic<std::uint64_t> failures = 0;

  std::mutex written_down_mutex;
  Counters written_down;             // the counters that the folder's file already has
  const pid_t process = ::getpid();  // a forked child leaves them to its parent
  std::atomic<std::uint64_t> events = 0;

  std::mutex last_write_mutex;
  std::string last_write_failure;                            // empty once a write has succeeded again
  std::unordered_map<std::string, std::string> not_on_disk;  // key to failure, until that key is written

  Trimmer trimmer;

  [[nodiscard]] bool on_disk() const { return !folder.path().empty(); }

  [[nodiscard]] Counters counters() const {
    return {
        .hits = hits, .misses = misses, .stores = stores, .quarantined = quarantined, .failures = failures};
  }

  void count(std::atomic<std::uint64_t>& counter) {
    ++counter;
    if (++events % kUncountedEvents == 0) write_counters_down();
  }

  void write_counters_down() {
    if (!on_disk() || process != ::getpid()) return;
    const std::lock_guard lock(written_down_mutex);
    const Counters now = counters();
    if (now == written_down) return;
    try {
      append_totals(folder, now - written_down);
      written_down = now;
    } catch (const Error&) {  // callers that need the folder report that; statistics do not
    }
  }

  void report(const std::string& problem) {
    if (warned.exchange(true) || !warn) return;
    warn(problem + " (until then, the cache keeps what is compiled in memory, for this process only)");
  }

  void remember_write(const Identity& identity, const std::string& failure) {
    const std::lock_guard lock(last_write_mutex);
    last_write_failure = failure;
    if (failure.empty())
      not_on_disk.erase(identity.key().hex());
    else
      not_on_disk.insert_or_assign(identity.key().hex(), failure);
  }

  /// The payload of the file `name`; a file that is not that entry is set aside.
  std::optional<std::vector<std::byte>> read(const std::string& name, const Identity& identity) {
    const auto found = folder.read(name);
    if (!found) return std::nullopt;

    Damage damage = Damage::none;
    std::optional<StoredEntry> entry = decode(found->bytes, damage);
    // The name is a hash: only the identity itself shows that this is the entry that was asked for.
    if (entry && entry->identity == identity) {
      renew_stamp(*found);
      return std::move(entry->payload);
    }
    // A file of another version is intact and may serve another program that shares the folder.
    if (damage != Damage::other_version && folder.set_aside(name, *found)) count(quarantined);
    return std::nullopt;
  }

  /// From memory or disk; not counted.
  std::optional<std::vector<std::byte>> find(const Identity& identity) {
    if (auto payload = memory.get(identity)) return payload;
    return find_on_disk(identity.file_name(), identity);
  }

  std::optional<std::vector<std::byte>> find_on_disk(const std::string& name, const Identity& identity) {
    if (!on_disk()) return std::nullopt;
    try {
      return read(name, identity);
    } catch (const Error& error) {
      report(error.what());
      return std::nullopt;
    }
  }

  void write(const std::string& name, const Identity& identity, std::span<const std::byte> payload) {
    if (!on_disk()) throw Error(ErrorKind::cache, kNoFolder);
    const std::vector<std::byte> entry = encode(identity, payload);
    folder.publish(name, entry);
    trimmer.published(entry.size());
  }

  /// Throws the failure that is remembered for this identity and toolchain.
  void throw_failure(const Identity& identity, const Toolchain& toolchain) {
    const auto payload = find_on_disk(identity.file_name() + kFailed, identity);
    const auto failure = payload ? decode_failure(*payload) : std::nullopt;
    const Stamp now = WallClock::now();
    if (!failure || !holds(*failure, name_of(toolchain), now)) return;
    count(misses);
    throw remembered(*failure, now, folder.path());
  }

  void remember(const Error& error, const Identity& identity, const Toolchain& toolchain) {
    if (!is_refusal(error)) return;
    Failure failure{error.what(), error.log(), error.source(), name_of(toolchain), WallClock::now()};
    if (failure.toolchain.empty()) return;
    try {
      write(identity.file_name() + kFailed, identity, encode(failure));
    } catch (const Error&) {  // the important error is being thrown already
    }
  }
};

Store::Store(std::filesystem::path folder, Warn warn, const Limits& limits, std::shared_ptr<Remote> remote) {
  if (folder.empty()) folder = default_folder();
  // Made absolute once: the program may change its working directory.
  std::error_code unknown_working_directory;
  if (!folder.empty()) {
    auto absolute = std::filesystem::absolute(folder, unknown_working_directory);
    if (!unknown_working_directory) folder = std::move(absolute);
  }
  state_ = std::make_unique<State>(std::move(folder), std::move(warn), limits, std::move(remote));
}

Store::~Store() { state_->write_counters_down(); }

std::filesystem::path Store::default_folder() {
  if (auto chosen = from_environment("SPARSEKILN_CACHE_DIR"); !chosen.empty()) return chosen;
  if (const auto base = from_environment("XDG_CACHE_HOME"); base.is_absolute()) return base / "sparsekiln";
  if (const auto home = from_environment("HOME"); home.is_absolute()) return home / ".cache" / "sparsekiln";
  return {};
}

std::optional<std::vector<std::byte>> Store::get(const Identity& identity) {
  auto payload = state_->find(identity);
  state_->count(payload ? state_->hits : state_->misses);
  return payload;
}

std::optional<std::vector<std::byte>> Store::peek(const Identity& identity) { return state_->find(identity); }

std::optional<KeyLock> Store::lock(const Identity& identity, const Patience& patience,
                                   const std::function<bool()>& arrived) {
  if (!state_->on_disk()) return std::nullopt;
  return KeyLock::acquire(state_->folder, identity.file_name() + kLock, patience, arrived);
}

std::optional<Journal> Store::journal(const Identity& identity) const {
  if (!state_->on_disk()) return std::nullopt;
  return Journal(state_->folder, identity.file_name());
}

Store::Got Store::get_or_make(const Identity& identity, const Accept& accept, const Make& make,
                              const Toolchain& toolchain) {
  std::optional<std::vector<std::byte>> found;
  bool has_other = false;  // that serves another driver, and is kept beside what is made
  const auto look = [&] {
    found = state_->find(identity);
    has_other = found && !accept(*found);
    if (has_other) found.reset();
    if (!found) state_->throw_failure(identity, toolchain);
    return found.has_value();
  };
  std::optional<KeyLock> lock;
  if (!look() && state_->on_disk()) {
    lock.emplace(KeyLock::acquire(state_->folder, identity.file_name() + kLock, state_->patience, look));
    if (!found) look();  // it may have arrived between the first look and the lock
  }
  state_->count(found ? state_->hits : state_->misses);
  if (found) return {std::move(*found), false};
  if (state_->remote != nullptr && !has_other) {
    if (auto payload = state_->remote->get(identity, accept)) {
      put(identity, *payload);
      return {std::move(*payload), false};
    }
  }
  try {
    Made made = make();
    put(identity, made.payload);
    if (state_->remote != nullptr) state_->remote->put(identity, made.own.empty() ? made.payload : made.own);
    return {std::move(made.payload), true};
  } catch (const Error& error) {
    state_->remember(error, identity, toolchain);
    throw;
  }
}

void Store::put(const Identity& identity, std::span<const std::byte> payload) {
  try {
    state_->write(identity.file_name(), identity, payload);
  } catch (const Error& error) {
    state_->memory.put(identity, payload);
    state_->count(state_->failures);
    state_->remember_write(identity, error.what());
    state_->report(error.what());
    return;
  }
  state_->count(state_->stores);
  state_->memory.forget(identity);
  state_->remember_write(identity, {});
}

void Store::keep(const Identity& identity, const Make& make) {
  if (!state_->find(identity)) put(identity, make().payload);
}

const std::filesystem::path& Store::folder() const { return state_->folder.path(); }

bool Store::on_disk() const { return why().empty(); }

std::string Store::why() const {
  if (folder().empty()) return kNoFolder;
  {
    const std::lock_guard lock(state_->last_write_mutex);
    if (!state_->last_write_failure.empty()) return state_->last_write_failure;
  }
  try {
    state_->folder.check_writable();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::string Store::why_not_on_disk(const Identity& identity) const {
  const std::lock_guard lock(state_->last_write_mutex);
  const auto failure = state_->not_on_disk.find(identity.key().hex());
  return failure == state_->not_on_disk.end() ? std::string() : failure->second;
}

std::filesystem::path Store::file(const Identity& identity) const {
  return folder().empty() ? std::filesystem::path{} : state_->folder.file(identity.file_name());
}

Counters Store::counters() const { return state_->counters(); }

Counters Store::totals() const {
  const std::lock_guard lock(state_->written_down_mutex);
  const Counters unwritten = state_->counters() - state_->written_down;
  try {
    return state_->on_disk() ? read_totals(state_->folder) + unwritten : unwritten;
  } catch (const Error&) {
    return unwritten;
  }
}

const Caps& Store::caps() const { return state_->caps; }

const std::string& Store::complaint() const { return state_->complaint; }

void Store::wait_for_trim() { state_->trimmer.wait(); }

}  // namespace sparsekiln::cache

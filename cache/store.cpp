#include "cache/store.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <unordered_map>
#include <utility>

#include <sparsekiln/error.h>

#include "cache/entry.h"
#include "cache/folder.h"
#include "cache/memory.h"

namespace sparsekiln::cache {

namespace {

constexpr const char* kNoFolder =
    "there is no folder for the cache: neither SPARSEKILN_CACHE_DIR nor XDG_CACHE_HOME nor HOME names one; "
    "set SPARSEKILN_CACHE_DIR to a folder of your own";

/// The variable's value as a path; empty where it is unset.
std::filesystem::path from_environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? std::filesystem::path{} : std::filesystem::path(value);
}

std::string file_name(const Identity& identity) { return identity.key().hex() + ".entry"; }

}  // namespace

struct Store::State {
  State(std::filesystem::path path, Warn warn_once) : folder(std::move(path)), warn(std::move(warn_once)) {}

  Folder folder;
  Memory memory;
  Warn warn;
  std::atomic<bool> warned = false;

  std::atomic<std::uint64_t> hits = 0;
  std::atomic<std::uint64_t> misses = 0;
  std::atomic<std::uint64_t> stores = 0;
  std::atomic<std::uint64_t> quarantined = 0;
  std::atomic<std::uint64_t> failures = 0;

  std::mutex last_write_mutex;
  std::string last_write_failure;                            // empty once a write has succeeded again
  std::unordered_map<std::string, std::string> not_on_disk;  // key to failure, until that key is written

  void report(const std::string& problem) {
    if (warned.exchange(true) || !warn) return;
    warn(problem + " (until then, what is compiled is kept in memory, for this process only)");
  }

  void remember_write(const Identity& identity, const std::string& failure) {
    const std::lock_guard lock(last_write_mutex);
    last_write_failure = failure;
    if (failure.empty())
      not_on_disk.erase(identity.key().hex());
    else
      not_on_disk.insert_or_assign(identity.key().hex(), failure);
  }

  /// The payload on disk; what is there but is not it is set aside.
  std::optional<std::vector<std::byte>> read(const Identity& identity) {
    const std::string name = file_name(identity);
    const auto found = folder.read(name);
    if (!found) return std::nullopt;

    Damage damage = Damage::none;
    std::optional<StoredEntry> entry = decode(found->bytes, damage);
    // The name is a hash: only the identity itself says that this is the entry that was asked for.
    if (entry && entry->identity == identity) return std::move(entry->payload);
    // A file of another version is whole and may serve another program that shares the folder.
    if (damage != Damage::other_version && folder.set_aside(name, *found)) ++quarantined;
    return std::nullopt;
  }

  void write(const Identity& identity, std::span<const std::byte> payload) {
    if (folder.path().empty()) throw Error(ErrorKind::cache, kNoFolder);
    folder.publish(file_name(identity), encode(identity, payload));
  }
};

Store::Store(std::filesystem::path folder, Warn warn) {
  if (folder.empty()) folder = default_folder();
  // Made absolute once: the program may change its working directory.
  std::error_code unknown_working_directory;
  if (!folder.empty()) {
    auto absolute = std::filesystem::absolute(folder, unknown_working_directory);
    if (!unknown_working_directory) folder = std::move(absolute);
  }
  state_ = std::make_unique<State>(std::move(folder), std::move(warn));
}

Store::~Store() = default;

std::filesystem::path Store::default_folder() {
  if (auto chosen = from_environment("SPARSEKILN_CACHE_DIR"); !chosen.empty()) return chosen;
  if (const auto base = from_environment("XDG_CACHE_HOME"); base.is_absolute()) return base / "sparsekiln";
  if (const auto home = from_environment("HOME"); home.is_absolute()) return home / ".cache" / "sparsekiln";
  return {};
}

std::optional<std::vector<std::byte>> Store::get(const Identity& identity) {
  std::optional<std::vector<std::byte>> payload = state_->memory.get(identity);
  if (!payload && !state_->folder.path().empty()) {
    try {
      payload = state_->read(identity);
    } catch (const Error& error) {
      state_->report(error.what());
    }
  }
  ++(payload ? state_->hits : state_->misses);
  return payload;
}

void Store::put(const Identity& identity, std::span<const std::byte> payload) {
  try {
    state_->write(identity, payload);
  } catch (const Error& error) {
    state_->memory.put(identity, payload);
    ++state_->failures;
    state_->remember_write(identity, error.what());
    state_->report(error.what());
    return;
  }
  ++state_->stores;
  state_->memory.forget(identity);
  state_->remember_write(identity, {});
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
  return folder().empty() ? std::filesystem::path{} : state_->folder.file(file_name(identity));
}

Counters Store::counters() const {
  return {.hits = state_->hits,
          .misses = state_->misses,
          .stores = state_->stores,
          .quarantined = state_->quarantined,
          .failures = state_->failures};
}

}  // namespace sparsekiln::cache

#include "tools/cache_miss.h"

#include <chrono>
#include <set>
#include <span>

#include <fmt/format.h>
#include <sparsekiln/binary.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "cache/failure.h"
#include "cache/store.h"
#include "compiler/build.h"
#include "compiler/cuda/compatibility.h"
#include "compiler/recipe.h"
#include "compiler/stored_binaries.h"
#include "runtime/build.h"
#include "runtime/read_only_stores.h"
#include "runtime/request.h"
#include "runtime/stored_binary.h"
#include "tools/entry_report.h"

namespace sparsekiln::tools {

using cache::File;
using cache::FileKind;
using cache::Folder;

Folder folder_of(const std::filesystem::path& asked) {
  const cache::Store store(asked);
  if (store.folder().empty()) throw Error(ErrorKind::cache, store.why());
  return Folder(store.folder());
}

std::string age(cache::Stamp stamp) {
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(cache::WallClock::now() - stamp).count();
  if (seconds < 0) return "ahead";
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 120 * 60) return fmt::format("{} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86400);
}

std::string state_without_entry(cache::Damage damage) {
  if (damage == cache::Damage::none) return "is gone by now";
  if (damage == cache::Damage::other_version)
    return "is of another version of the store's format, which its programs go on using";
  return fmt::format("is damaged ({}); the next program that needs it makes it again", cache::name(damage));
}

namespace {

/// Whether the job's driver loads something of a payload that is whole; `versions` as in best_binary.
bool is_usable(const cache::Identity& identity, std::span<const std::byte> payload, const BuildJob& job,
               std::set<int>& versions, std::string& damage) {
  const auto whole = [&](const Binary& binary) {
    damage = wrong_numbers(binary, job.problem, job.target, job.plan);
    return damage.empty();
  };
  return best_binary(identity, payload, job.toolchain, whole, &versions) != nullptr;
}

/// What the folder has under the very key that is wanted: nothing, or "entry" where it is whole and the job's
/// driver loads it, or why it is no use, for people.
std::string state_of(const Folder& folder, const cache::Identity& wanted, const BuildJob& job) {
  std::string state;
  for (const File& file : cache::list(folder)) {
    if (file.key != wanted.key().hex()) continue;
    cache::Damage damage{};
    const auto entry = cache::read_entry(folder, file, damage);
    const bool whole = file.kind == FileKind::entry && entry && entry->identity == wanted;
    std::set<int> versions;
    std::string wrong;
    if (whole && is_usable(wanted, entry->payload, job, versions, wrong)) return "entry";
    if (!wrong.empty())
      state += fmt::format("{} is damaged: {}\n", printable(file.path.string()), wrong);
    else if (whole && versions.empty())
      state += fmt::format("{} holds another kernel than its identity says\n", printable(file.path.string()));
    else if (whole)
      state += fmt::format("{} is of NVRTC {}, whose code {} does not load\n", printable(file.path.string()),
                           versions_text(versions), cuda::describe_driver(job.toolchain));
    else if (file.kind == FileKind::entry)
      state += fmt::format("{} {}\n", printable(file.path.string()), state_without_entry(damage));
    if (file.kind == FileKind::bad)
      state += fmt::format("{} was damaged, and set aside\n", printable(file.path.string()));
    if (file.kind != FileKind::failed || !entry) continue;
    if (const auto failure = cache::decode_failure(entry->payload))
      state += fmt::format("{} ago {} refused it: {}\n", age(failure->made), printable(failure->toolchain),
                           failure->message);
  }
  return state;
}

}  // namespace

Answer explain_miss(const KernelArguments& what) {
  const Options options = what.options();
  const BuildJob job = job_of(Layout::load(what.file), options);
  const cache::Identity wanted = identity_of(job.problem, job.target, job.plan);
  const std::string key = wanted.key().hex();
  ReadOnlyStores layers(job.packs, job.environment_packs, job.require);
  const Folder folder = folder_of(options.cache_dir);
  std::set<int> versions;
  const bool in_pack = layers.find(wanted, [&](std::span<const std::byte> payload, std::string& damage) {
    return is_usable(wanted, payload, job, versions, damage);
  });
  const std::string state = in_pack ? "" : state_of(folder, wanted, job);
  const bool hit = in_pack || state == "entry";
  Answer answer;
  answer.json = {{"key", key}, {"identity", describe_identity(wanted)}, {"hit", hit}};
  if (hit) {
    answer.json["from"] = name(in_pack ? From::pack : From::store);
    answer.text =
        fmt::format("a hit: {} is there (from {})\n", key, name(in_pack ? From::pack : From::store));
    return answer;
  }
  answer.text = fmt::format("a miss: {}\n{}", key, state);
  answer.json["state"] = state;
  answer.json["nearest"] = nullptr;
  const auto nearest = cache::nearest(folder, wanted);
  if (!nearest) {
    answer.text += fmt::format("'{}' has no kernel that can be read\n", printable(folder.path().string()));
    return answer;
  }
  if (nearest->differences.empty()) return answer;  // `state` has said what is wrong with it
  Json differences = Json::array();
  answer.text += fmt::format("the nearest entry, {}, differs in\n", nearest->file.key);
  for (const cache::Difference& one : nearest->differences) {
    differences.push_back({{"field", one.field}, {"wanted", one.wanted}, {"stored", one.stored}});
    answer.text += fmt::format("  {:<15} wanted {}, stored {}\n", printable(one.field), printable(one.wanted),
                               printable(one.stored));
  }
  answer.json["nearest"] = {{"key", nearest->file.key}, {"differences", differences}};
  return answer;
}

}  // namespace sparsekiln::tools

#include "runtime/read_only_stores.h"

#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "runtime/warnings.h"

namespace sparsekiln {
namespace {

/// As PATH is read, but that an empty element names nothing.
std::vector<std::filesystem::path> packs_of_environment() {
  const char* const value = std::getenv("SPARSEKILN_PACKS");
  std::vector<std::filesystem::path> packs;
  for (std::string_view rest = value == nullptr ? "" : value; !rest.empty();) {
    const std::size_t colon = rest.find(':');
    const std::string_view element = rest.substr(0, colon);
    rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
    if (!element.empty()) packs.emplace_back(element);
  }
  return packs;
}

}  // namespace

/// Does what may find a layer damaged: an Error where that layer is needed, else a warning.
template <typename Action>
void ReadOnlyStores::with(bool needed, Action action) {
  try {
    action();
  } catch (const Error& error) {
    if (needed || error.kind() != ErrorKind::cache) throw;
    note(fmt::format("SPARSEKILN_PACKS: {}", error.what()));
  }
}

void ReadOnlyStores::note(const std::string& what) {
  if (warning_.find(what) != std::string::npos) return;  // asked again
  if (!warning_.empty()) warning_ += "; ";
  warning_ += what;
  warn(what);
}

ReadOnlyStores::ReadOnlyStores(const std::vector<std::filesystem::path>& given, bool environment,
                               Require require) {
  for (const std::filesystem::path& path : given)
    layers_.push_back({cache::open_read_only_store(path), true});
  if (!environment) return;
  const bool needed = require == Require::prebuilt;
  for (const std::filesystem::path& path : packs_of_environment())
    with(needed, [&] { layers_.push_back({cache::open_read_only_store(path), needed}); });
}

bool ReadOnlyStores::find(const cache::Identity& identity, const Accept& accept) {
  for (const Row& row : layers_) {
    std::optional<std::vector<std::byte>> payload;
    with(row.needed, [&] { payload = row.layer->get(identity); });
    if (!payload) continue;
    std::string damage;
    if (accept(*payload, damage)) return true;
    if (damage.empty()) continue;
    note(fmt::format("the pack '{}' is passed over: entry {} is damaged: {}",
                     printable(row.layer->path().string()), identity.key().hex(), damage));
  }
  return false;
}

std::vector<cache::Identity> ReadOnlyStores::identities() {
  std::vector<cache::Identity> all;
  for (const Row& row : layers_)
    with(row.needed, [&] {
      for (cache::Identity& identity : row.layer->identities()) all.push_back(std::move(identity));
    });
  return all;
}

std::string ReadOnlyStores::names() const {
  std::string names;
  for (const Row& row : layers_) names += (names.empty() ? "" : ", ") + printable(row.layer->path().string());
  return names.empty() ? "none" : names;
}

std::string environment_packs_warning() { return ReadOnlyStores({}, true, Require::anything).warning(); }

}  // namespace sparsekiln

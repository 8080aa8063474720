#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>

#include "cache/read_only_store.h"

namespace sparsekiln {

/// The read-only layers that stand in front of the store for one request, in the order in which they are
/// asked. Not thread-safe: made for each request, from stores that are open already.
class ReadOnlyStores {
 public:
  ReadOnlyStores() = default;
  /// Opens the given packs and, where `environment`, those of SPARSEKILN_PACKS. Throws Error(cache) for a
  /// given one that cannot be opened; for any, where nothing else may serve (`require`).
  ReadOnlyStores(const std::vector<std::filesystem::path>& given, bool environment, Require require);

  /// Whether it takes a payload. Sets `damage` to what is wrong with one that no program would have written
  /// under the identity, though its checksum is right.
  using Accept = std::function<bool(std::span<const std::byte> payload, std::string& damage)>;
  /// Whether a layer holds what `accept` takes under this identity: asked in order, until it does. Throws
  /// Error(cache) for an entry whose bytes are damaged, by the same rule; one that `accept` finds damaged is
  /// passed over.
  bool find(const cache::Identity& identity, const Accept& accept);
  /// The identities of all entries. Throws as `get` does.
  [[nodiscard]] std::vector<cache::Identity> identities();

  /// Their paths, for people: "a.pack, b.pack"; "none" where there is none.
  [[nodiscard]] std::string names() const;
  [[nodiscard]] bool empty() const { return layers_.empty(); }
  /// What was passed over so far, and why; empty if nothing.
  [[nodiscard]] const std::string& warning() const { return warning_; }

 private:
  struct Row {
    std::shared_ptr<const cache::ReadOnlyStore> layer;
    bool needed = false;  ///< what is wrong with it is an Error
  };
  template <typename Action>
  void with(bool needed, Action action);
  /// For `warning`, and for those who ask the process for its warnings.
  void note(const std::string& what);

  std::vector<Row> layers_;
  std::string warning_;
};

/// The faults of the packs that SPARSEKILN_PACKS lists; empty if there are none.
[[nodiscard]] std::string environment_packs_warning();

}  // namespace sparsekiln

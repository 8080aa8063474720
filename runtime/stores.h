#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/store.h"
#include "compiler/stored_binaries.h"
#include "runtime/build_job.h"
#include "runtime/read_only_stores.h"

namespace sparsekiln {

struct SharedLevel {
  std::shared_ptr<cache::Remote> remote;  ///< null: there is none
  std::string complaint;                  ///< why there is none, though one was asked for
};
/// The remote level of all stores of this process, as the environment says when it is first needed.
[[nodiscard]] const SharedLevel& shared_level();

/// The store of a folder, as Options::cache_dir: one for the life of the process, so that its counters and
/// its memory are shared. A fault of the folder is a warning (runtime/warnings.h), once.
[[nodiscard]] std::shared_ptr<cache::Store> store_in(const std::filesystem::path& folder);

/// The read-only stores that a job asks before its store: its packs, then those of the environment.
[[nodiscard]] ReadOnlyStores packs_of(const BuildJob& job);

/// The Binary of a payload that was found under the job's identity: null where it holds none that the job's
/// driver loads, that no device has refused and whose numbers are those of the job. Where they are not,
/// `damage`, if given, says what is wrong with them.
[[nodiscard]] std::shared_ptr<const Binary> usable_binary(const cache::Identity& identity,
                                                          std::span<const std::byte> payload,
                                                          const BuildJob& job, std::string* damage = nullptr);
/// The same from the packs that hold one; null where none does.
[[nodiscard]] std::shared_ptr<const Binary> find_in_packs(ReadOnlyStores& packs,
                                                          const cache::Identity& identity,
                                                          const BuildJob& job);

/// What stays beside a Binary that replaces a payload of the store: the Binaries that other drivers may need.
/// Not one that the job's driver should have loaded, and did not.
[[nodiscard]] std::vector<StoredBinary> kept_beside(const cache::Identity& identity,
                                                    std::span<const std::byte> payload, const BuildJob& job);

/// Keeps the layout, too, so that its kernels can be made for other architectures from the store alone.
void keep_layout(cache::Store& store, const BuildJob& job);

}  // namespace sparsekiln

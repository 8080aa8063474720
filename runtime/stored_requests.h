#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>

#include "cache/identity.h"
#include "cache/read_only_store.h"

namespace sparsekiln {

/// A kernel that a store has, or had, as it was asked for.
struct StoredRequest {
  Layout layout;         ///< where it is attached one that the code serves
  Options options;       ///< `target` is the one that it was made for; `config` is not set
  Plan plan;             ///< the one that it was made with
  bool current = false;  ///< made by this very compiler: with that plan it is what the store has
};

/// What the Binaries of a store were made of, in the order of their keys.
struct StoredRequests {
  std::vector<StoredRequest> kernels;
  std::vector<std::string> left_out;  ///< key and why, of those that cannot be made again
};

/// The kernel of one Binary's identity, with its layout from the store. Throws Error(cache) where the layout
/// is not there, or the identity is not one that this version writes.
[[nodiscard]] StoredRequest stored_request(const cache::ReadOnlyStore& store,
                                           const cache::Identity& identity);

/// Reads the identities of a store's Binaries and the layouts that it keeps. `folder` as Options::cache_dir.
/// Changes nothing. Throws Error(cache) where the folder cannot be used.
[[nodiscard]] StoredRequests stored_requests_in(const std::filesystem::path& folder);

}  // namespace sparsekiln

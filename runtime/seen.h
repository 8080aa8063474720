#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>

#include "cache/identity.h"
#include "cache/layer.h"

namespace sparsekiln {

/// A kernel that a store has, or had, as it was asked for.
struct SeenKernel {
  Layout layout;         ///< of one block where `options.attached`: the code is the same for all
  Options options;       ///< `target` is the one that it was made for; `config` is not set
  Plan plan;             ///< the one that it was made with
  bool current = false;  ///< made by this very compiler: with that plan it is what the store has
};

/// What the Binaries of a store were made of, in the order of their keys.
struct SeenKernels {
  std::vector<SeenKernel> kernels;
  std::vector<std::string> left_out;  ///< key and why, of those that cannot be made again
};

/// The kernel of one Binary's identity, with its layout from the store. Throws Error(cache) where the layout
/// is not there, or the identity is not one that this version writes.
[[nodiscard]] SeenKernel seen_kernel(const cache::Layer& store, const cache::Identity& identity);

/// Reads the identities of a store's Binaries and the layouts that it keeps. `folder` as Options::cache_dir.
/// Changes nothing. Throws Error(cache) where the folder cannot be used.
[[nodiscard]] SeenKernels seen_in_store(const std::filesystem::path& folder);

}  // namespace sparsekiln

#pragma once

#include <filesystem>
#include <string>

#include "cache/listing.h"
#include "cache/trim.h"
#include "tools/command.h"
#include "tools/options.h"

namespace sparsekiln::tools {

/// The folder of the store that the arguments mean. Throws Error(cache) where there is none.
[[nodiscard]] cache::Folder folder_of(const std::filesystem::path& asked);

/// How long ago that was, for people: "5 min", "3 h".
[[nodiscard]] std::string age(cache::Stamp stamp);

/// The row of a file from which no entry could be read.
[[nodiscard]] std::string state_without_entry(cache::Damage damage);

/// `cache explain-miss`: whether a kernel is there, and else in which fields the nearest one differs from it.
[[nodiscard]] Answer explain_miss(const KernelArguments& what);

}  // namespace sparsekiln::tools

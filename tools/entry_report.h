#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cache/entry.h"
#include "cache/identity.h"
#include "tools/command.h"
#include "tools/publish.h"

namespace sparsekiln::tools {

/// The value of an identity's field; "-" where it has none of that name.
[[nodiscard]] std::string field(const cache::Identity& identity, std::string_view wanted);

/// Every field, as name and value.
[[nodiscard]] Json describe_identity(const cache::Identity& identity);

/// Text columns as wide as their widest cell; the last one is as it is. Cells are of any origin: they are
/// made printable.
[[nodiscard]] std::string table(std::vector<std::vector<std::string>> rows);

/// What is in an entry, as files that begin with its key: the identity; of a Binary its machine code, PTX and
/// log; of others the payload. Throws Error(cache) for a Binary that cannot be read.
[[nodiscard]] std::vector<NamedBytes> files_of(const cache::StoredEntry& entry);

}  // namespace sparsekiln::tools

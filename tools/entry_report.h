#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/entry.h"
#include "cache/identity.h"
#include "tools/answer.h"
#include "tools/publish.h"

namespace sparsekiln::tools {

/// The value of an identity's field; "-" where it has none of that name.
[[nodiscard]] std::string field(const cache::Identity& identity, std::string_view wanted);

/// Every field, as name and value.
[[nodiscard]] Json describe_identity(const cache::Identity& identity);

/// Text columns as wide as their widest cell; the last one is as it is. Cells are of any origin: they are
/// made printable.
[[nodiscard]] std::string table(std::vector<std::vector<std::string>> rows);

/// The versions of NVRTC that have made what an entry's payload holds, from its beginning, newest first:
/// "13.0" and "12.9". Empty for kernels of the cpu, and for what is no kernel.
[[nodiscard]] std::vector<std::string> nvrtc_versions(const cache::Identity& identity,
                                                      std::span<const std::byte> payload);

/// The contents of an entry, as files that begin with its key: the identity; of a Binary its machine code,
/// PTX and log, and where several versions of NVRTC have made one, that version in the names; of others the
/// payload. Throws Error(cache) for a Binary that cannot be read.
[[nodiscard]] std::vector<NamedBytes> files_of(const cache::StoredEntry& entry);

}  // namespace sparsekiln::tools

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compiler/bytes.h"

namespace sparsekiln {

// Machine code, PTX and tables in stored Binaries: by Zstandard (RFC 8878), to a tenth of their size.

/// Appends `data` to what is written: its size, and it compressed. The same bytes give the same,
/// by the same zstd.
void put_compressed(ByteWriter& out, std::span<const std::byte> data);

/// Reads it back. Throws ByteReader::Bad for what does not hold as many bytes as it says.
[[nodiscard]] std::vector<std::byte> get_compressed(ByteReader& in);

}  // namespace sparsekiln

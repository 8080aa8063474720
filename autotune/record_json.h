#pragma once

#include <string>
#include <string_view>

#include "autotune/record.h"

namespace sparsekiln {

/// A record as one line of JSON, without a newline: what the store keeps, and what `sparsekiln records
/// export` writes. Numbers keep every bit.
[[nodiscard]] std::string to_json(const Record& record);
/// Reads it back, trusting nothing. Throws Error(`invalid_argument`) with the place and what was expected.
[[nodiscard]] Record parse_record(std::string_view json);

}  // namespace sparsekiln

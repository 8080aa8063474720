#pragma once

#include <string_view>

namespace sparsekiln {

/// The records of autotune/records/, which this library was built with: JSON lines, as to_json writes them.
[[nodiscard]] std::string_view shipped_record_lines();

}  // namespace sparsekiln

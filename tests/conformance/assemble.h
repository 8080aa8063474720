#pragma once

#include <string>
#include <vector>

#include "tests/conformance/case_file.h"

namespace sparsekiln::conformance {

inline constexpr const char* kEntry = "conformance";

/// "sm_90a"
[[nodiscard]] std::string architecture_of(const Case& test);
/// A PTX module for one case: entry `conformance` with three parameters, the addresses of the given rows, of
/// the answers and of the scratch memory.
[[nodiscard]] std::string module_of(const Case& test);

/// The answer of one thread by column, out of its row.
[[nodiscard]] std::vector<std::uint64_t> unpack(const std::vector<Column>& columns, const std::uint8_t* row);
/// The other way.
void pack(const std::vector<Column>& columns, const std::vector<std::uint64_t>& values, std::uint8_t* row);

}  // namespace sparsekiln::conformance

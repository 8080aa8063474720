#pragma once

#include <string>

#include <sparsekiln/problem.h>

namespace sparsekiln {

/// As identities spell it: as `to_string`, but for words that have been renamed since records were written.
/// `parse_epilogue` reads both.
[[nodiscard]] std::string stored_text(const Epilogue& epilogue);

}  // namespace sparsekiln

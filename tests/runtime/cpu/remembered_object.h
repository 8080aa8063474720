#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <sparsekiln/target.h>

namespace sparsekiln::cpu {

/// What compile_object makes of a module's text. Where SPARSEKILN_TEST_STORE names a store, what the same
/// compiler has made of the same text is read from there.
[[nodiscard]] std::vector<std::byte> remembered_object(const std::string& module_text, const Target& target);

}  // namespace sparsekiln::cpu

#pragma once

#include <string_view>

#include "emulator/ptx/module.h"

namespace sparsekiln::ptx {

/// Reads a module. Bounded: a text of n bytes takes O(n) memory, and nesting is limited. Throws Error, and
/// nothing else but std::bad_alloc, whatever the bytes are.
[[nodiscard]] Module parse(std::string_view text);

}  // namespace sparsekiln::ptx

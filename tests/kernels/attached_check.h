#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>

#include "oracle/check_result.h"
#include "oracle/draw.h"

namespace sparsekiln::test {

/// What a launch of a batch of n is judged to be; `image` gets what it left.
[[nodiscard]] CheckResult judged(const Kernel& kernel, const Problem& problem, std::int64_t n, Inputs kind,
                                 std::vector<std::byte>* image = nullptr);

/// What an attached kernel gets wrong, by the definition and by the kernel that is baked with its numbers.
[[nodiscard]] std::string attached_failure(const Kernel& attached, const Layout& layout, Options options,
                                           std::int64_t n);

}  // namespace sparsekiln::test

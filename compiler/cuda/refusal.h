#pragma once

#include <string_view>

#include <sparsekiln/config.h>

namespace sparsekiln::cuda {

/// Throws `invalid_argument`: what is wrong, and what would work.
[[noreturn]] void refuse(std::string_view why);
/// The overload for a config, which the message names first.
[[noreturn]] void refuse(const Config& config, std::string_view why);

}  // namespace sparsekiln::cuda

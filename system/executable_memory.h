#pragma once

#include <string>

namespace sparsekiln {

/// Why this process can make no code while it runs: what the system answers if memory that was written is to
/// be executed. Empty where it can.
[[nodiscard]] std::string why_no_executable_memory();

}  // namespace sparsekiln

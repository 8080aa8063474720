#pragma once

#include <cstdint>

namespace sparsekiln {

/// No launch uses more.
inline constexpr std::int32_t kMostThreads = 1024;

/// As many threads as this process may run on at once, at least 1.
[[nodiscard]] std::int32_t host_threads() noexcept;

}  // namespace sparsekiln

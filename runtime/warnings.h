#pragma once

#include <optional>
#include <string>

namespace sparsekiln {

/// What the user of a process should read once, though nothing has failed: why compiled kernels are not kept,
/// why a pack or the shared level of the cache is not used. It waits here for a caller that can show it: a
/// library does not print. Thread-safe.

/// Adds a sentence, unless the same one was added before. If there are very many, the last ones are dropped.
void warn(const std::string& sentence);

/// The oldest sentence that was not taken yet; none where all were.
[[nodiscard]] std::optional<std::string> take_warning();

}  // namespace sparsekiln

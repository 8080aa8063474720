#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>

#include "compiler/layout_file/sink.h"

namespace sparsekiln::layout_file {

/// The largest file that is read: 4 GiB, a grid of 65536 × 65536 blocks at one byte each.
inline constexpr std::size_t kMaxFileBytes = std::size_t{1} << 32;

/// All bytes of a regular file of kMaxFileBytes at most; of anything else (a device, a pipe) not one is read,
/// and nothing is waited for. Throws `io`: "cannot read 'F': why".
[[nodiscard]] std::string read_file(const std::filesystem::path& file);

/// Replaces a file, or makes it, with what `write` puts into its sink: all or nothing, through a temporary in
/// the same folder that is renamed. A link is followed; what exists and is no regular file (a device, a
/// folder) is left alone. Throws `io`: "cannot write 'F': why"; what `write` throws passes through. Either
/// way nothing is left on disk.
void replace_file(const std::filesystem::path& file, const std::function<void(const Sink&)>& write);

}  // namespace sparsekiln::layout_file

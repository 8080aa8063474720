#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/answer.h"

namespace sparsekiln::tools {

/// A file to be written: its name within a folder, and its bytes.
struct NamedBytes {
  std::string name;
  std::vector<std::byte> bytes;
};
[[nodiscard]] NamedBytes named(std::string name, std::string_view text);
[[nodiscard]] NamedBytes named(std::string name, std::span<const std::byte> bytes);

/// Writes files into a folder, which is made where it is missing: all of them or none. Files of other names
/// in the folder stay. Throws `io`, and then leaves no file.
void publish_folder(const std::filesystem::path& folder, const std::vector<NamedBytes>& files);
/// The same, and lists their paths in the answer: "files" in its JSON, and a line each in its text.
void publish_folder(const std::filesystem::path& folder, const std::vector<NamedBytes>& files,
                    Answer& answer);

}  // namespace sparsekiln::tools

#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>

#include "cache/identity.h"
#include "tests/temporary_folder.h"

using ScratchFolder = sparsekiln::test::TemporaryFolder;

inline std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

/// Bytes that depend on `seed`, so that one payload cannot pass for another.
inline std::vector<std::byte> payload_of(std::size_t size, unsigned seed = 1) {
  std::vector<std::byte> payload(size);
  for (std::byte& byte : payload) {
    seed = seed * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(seed >> 24);
  }
  return payload;
}

inline std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return bytes_of(std::string(std::istreambuf_iterator<char>(in), {}));
}

inline void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.close();
  ::chmod(path.c_str(), 0600);
}

/// Every file under `folder` whose name contains `part`.
inline std::vector<std::filesystem::path> files_with(const std::filesystem::path& folder,
                                                     std::string_view part) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_directory() && entry.path().filename().string().find(part) != std::string::npos) {
      found.push_back(entry.path());
    }
  }
  return found;
}

inline sparsekiln::cache::Identity sample_identity(std::string_view batch = "64") {
  sparsekiln::cache::Identity identity;
  identity.add("kind", "linear").add("layout", "00ff").add("batch", batch).add("target", "sm_90:132");
  return identity;
}

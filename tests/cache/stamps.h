#pragma once

#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>

#include "cache/file.h"

inline void stamp_file(const std::filesystem::path& path, sparsekiln::cache::Stamp stamp) {
  const sparsekiln::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  sparsekiln::cache::set_stamp(file.get(), stamp);
}

inline sparsekiln::cache::Stamp stamp_of_file(const std::filesystem::path& path) {
  struct stat status{};
  ::stat(path.c_str(), &status);
  return sparsekiln::cache::stamp_of(status);
}

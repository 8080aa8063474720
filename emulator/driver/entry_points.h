#pragma once

#include <span>

namespace sparsekiln::driver {

/// One interface of one function, as cuGetProcAddress returns it.
struct EntryPoint {
  const char* name;  ///< without the suffix of its version: "cuMemAlloc"
  int version;       ///< CUDA that brought this interface, 1000 × major + 10 × minor
  void* address;
};

/// Sorted by name, then by version.
[[nodiscard]] std::span<const EntryPoint> entry_points();

}  // namespace sparsekiln::driver

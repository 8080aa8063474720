#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sparsekiln::cuda {

/// The places where the NVRTC library may be, in order: files that exist, and bare names for the loader's
/// path. Reads SPARSEKILN_NVRTC, CUDA_HOME, CUDA_PATH and VIRTUAL_ENV. In one folder the highest major
/// version comes first.
struct NvrtcSearch {
  std::vector<std::filesystem::path> candidates;
  std::vector<std::string> looked_in;  ///< every place, for the error message, in order
};
[[nodiscard]] NvrtcSearch search_nvrtc();

}  // namespace sparsekiln::cuda

#include "compiler/cuda/nvrtc_search.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/printable.h>

#include "nvrtc_fallback.h"

namespace sparsekiln::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 2> kNames{"libnvrtc.so.13", "libnvrtc.so.12"};
constexpr std::string_view kToolkit = "/usr/local/cuda";

std::string environment(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? std::string{} : std::string(value);
}

/// The subfolders whose path matches `pattern`, a name with at most one trailing '*', sorted.
std::vector<fs::path> matching(const fs::path& folder, std::string_view pattern) {
  const bool prefix = pattern.ends_with('*');
  if (prefix) pattern.remove_suffix(1);
  std::vector<fs::path> found;
  std::error_code ignored;
  for (fs::directory_iterator it(folder, ignored), end; !ignored && it != end; it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    if (prefix ? name.starts_with(pattern) : name == pattern) found.push_back(it->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// VIRTUAL_ENV/lib/python*/site-packages/nvidia/*/lib, in the order of their names, the highest first.
std::vector<fs::path> python_folders(const fs::path& environment_root) {
  std::vector<fs::path> folders;
  for (const fs::path& python : matching(environment_root / "lib", "python*"))
    for (const fs::path& part : matching(python / "site-packages" / "nvidia", "*"))
      for (const fs::path& lib : matching(part, "lib")) folders.push_back(lib);
  std::reverse(folders.begin(), folders.end());
  return folders;
}

void look_in_folder(NvrtcSearch& search, const fs::path& folder) {
  search.looked_in.push_back(printable(folder.string()));
  for (const std::string_view name : kNames) {
    std::error_code ignored;
    if (fs::exists(folder / name, ignored)) search.candidates.push_back(folder / name);
  }
}

/// A toolkit keeps its libraries in lib64, in lib (wheels) or by platform.
void look_in_toolkit(NvrtcSearch& search, const fs::path& root) {
  for (const std::string_view library :
       {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"})
    look_in_folder(search, root / library);
}

}  // namespace

NvrtcSearch search_nvrtc() {
  NvrtcSearch search;
  if (const std::string pinned = environment("SPARSEKILN_NVRTC"); !pinned.empty()) {
    std::error_code ignored;
    if (fs::is_directory(pinned, ignored)) {
      look_in_folder(search, pinned);
    } else {
      search.looked_in.push_back(printable(pinned));
      if (fs::exists(pinned, ignored)) search.candidates.emplace_back(pinned);
    }
    search.looked_in.back() += " (SPARSEKILN_NVRTC; nothing else is tried where it is set)";
    return search;
  }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string root = environment(variable); !root.empty()) look_in_toolkit(search, root);
  for (const std::string_view name : kNames) {
    search.looked_in.push_back(fmt::format("{} on the loader's path", name));
    search.candidates.emplace_back(name);
  }
  look_in_toolkit(search, kToolkit);
  if (const std::string root = environment("VIRTUAL_ENV"); !root.empty()) {
    const std::vector<fs::path> folders = python_folders(root);
    if (folders.empty())
      search.looked_in.push_back(printable(root) + "/lib/python*/site-packages/nvidia/*/lib");
    for (const fs::path& folder : folders) look_in_folder(search, folder);
  }
  if (const std::string_view root = SPARSEKILN_NVRTC_FALLBACK; !root.empty())
    for (const fs::path& folder : python_folders(root)) look_in_folder(search, folder);
  return search;
}

}  // namespace sparsekiln::cuda

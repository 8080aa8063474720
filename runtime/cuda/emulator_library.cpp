#include "runtime/cuda/emulator_library.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/printable.h>

#include "emulator_fallback.h"

namespace sparsekiln::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libsparsekiln_emulator.so";
constexpr const char* kVariable = "SPARSEKILN_EMULATOR";

/// Where the library is: next to a program, in a build folder and where both are installed, and last the
/// build folder itself.
std::vector<fs::path> likely_folders() {
  std::vector<fs::path> folders;
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  if (!program.empty()) {
    const fs::path above = program.parent_path().parent_path();
    for (const char* const folder : {"emulator/driver", "lib", SPARSEKILN_LIBDIR})
      folders.push_back(above / folder);
  }
  const fs::path built = SPARSEKILN_EMULATOR_FALLBACK;
  if (!built.empty()) folders.push_back(built);
  return folders;
}

}  // namespace

EmulatorLibrary find_emulator_library() {
  std::error_code ignored;
  if (const char* const named = std::getenv(kVariable); named != nullptr && *named != '\0') {
    const fs::path path = fs::is_directory(named, ignored) ? fs::path(named) / kLibrary : fs::path(named);
    return {path.string(), fmt::format("{}={}", kVariable, printable(named))};
  }
  std::string looked;
  for (const fs::path& folder : likely_folders()) {
    const fs::path path = folder / kLibrary;
    if (fs::is_regular_file(path, ignored)) return {path.string(), printable(path.string())};
    looked += fmt::format("{}{}", looked.empty() ? "" : ", ", printable(folder.lexically_normal().string()));
  }
  return {kLibrary, fmt::format("the emulator, {}, which is not in {} ({} names another place),", kLibrary,
                                looked, kVariable)};
}

}  // namespace sparsekiln::cuda

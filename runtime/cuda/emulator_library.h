#pragma once

#include <string>

namespace sparsekiln::cuda {

/// Where the emulator's library is, and what named it, for messages.
struct EmulatorLibrary {
  std::string path;   ///< what to load; a bare name where only the loader may know
  std::string asked;  ///< "SPARSEKILN_EMULATOR=…", or the name and where it was looked for
};
/// SPARSEKILN_EMULATOR (a file, or a folder with libsparsekiln_emulator.so; nothing else is tried where it is
/// set); beside the running program, as built and as installed; the folder that it was built in; the loader's
/// path.
[[nodiscard]] EmulatorLibrary find_emulator_library();

}  // namespace sparsekiln::cuda

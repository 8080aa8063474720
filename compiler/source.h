#pragma once

#include <string>
#include <vector>

#include <sparsekiln/binary.h>

namespace sparsekiln {

/// The emitted text: one self-contained CUDA translation unit or one LLVM module, and the recipe for
/// launching what it defines (the entries' resources are known only after compiling).
struct Source {
  std::string text;
  std::vector<Entry> entries;
  std::vector<ModuleData> data;  ///< of the variables that the text declares and does not define
};

}  // namespace sparsekiln

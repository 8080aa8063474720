#pragma once

#include <string>
#include <vector>

#include <sparsekiln/binary.h>

namespace sparsekiln {

/// The recipe for launching what a source defines (the entries' resources are known only after compiling).
struct Recipe {
  std::vector<Entry> entries;
  std::vector<ModuleData> data;  ///< of the variables that the text declares and does not define
};

/// The emitted text with its recipe: one self-contained CUDA translation unit or one LLVM module.
struct Source : Recipe {
  std::string text;
};

}  // namespace sparsekiln

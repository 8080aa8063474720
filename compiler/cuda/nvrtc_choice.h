#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/cuda/nvrtc.h"
#include "compiler/toolchain.h"

namespace sparsekiln::cuda {

/// Every NVRTC that this machine has where the search looks (search_nvrtc).
struct NvrtcSurvey {
  std::vector<std::shared_ptr<const Nvrtc>> found;  ///< each file once, in the order of the search
  std::vector<std::string> refused;  ///< "FILE: why", of candidates that are no NVRTC which can be used
  std::vector<std::string> looked_in;
};
/// Looks, and asks each library for its version. Libraries stay loaded: asking again costs a look at the
/// disk.
[[nodiscard]] NvrtcSurvey survey_nvrtc();

/// The one to compile with: of those that compile for `arch` ("sm_90"; empty: any) and whose cubins the
/// driver loads, the one that serves it best (serves_better), and of equal versions the first. Null where
/// there is none.
[[nodiscard]] std::shared_ptr<const Nvrtc> choose(const NvrtcSurvey& survey, const Toolchain& toolchain,
                                                  std::string_view arch = {});

/// Why `choose` finds none, with every library that was found, and what would work.
[[nodiscard]] std::string why_none(const NvrtcSurvey& survey, const Toolchain& toolchain,
                                   std::string_view arch = {});

/// The NVRTC to compile with: the newest whose cubins and PTX the toolchain's driver loads, else the newest
/// whose cubins it loads, of those that know `arch` ("sm_90"; empty: any). Looks in SPARSEKILN_NVRTC (a file
/// or a folder; nothing else is tried where it is set), CUDA_HOME, CUDA_PATH, the loader's path
/// (libnvrtc.so.13 and .12), the usual toolkit folder, and nvidia/*/lib of the active Python environment
/// (VIRTUAL_ENV; else the project's own). Throws `compile` saying what was found where, and what would work.
[[nodiscard]] std::shared_ptr<const Nvrtc> find_nvrtc(const Toolchain& toolchain = {},
                                                      std::string_view arch = {});

/// What the toolchain's driver loads of what an NVRTC makes, for people: "loads its cubins and its PTX".
[[nodiscard]] std::string describe_loads(const Toolchain& toolchain, int nvrtc);

}  // namespace sparsekiln::cuda

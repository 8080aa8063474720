#pragma once

#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <sparsekiln/error.h>

#include "compiler/cuda/nvrtc.h"
#include "compiler/cuda/nvrtc_choice.h"
#include "fake_nvrtc_path.h"
#include "tests/temporary_folder.h"

namespace sparsekiln::test {

/// A folder with NVRTCs of chosen versions (fake_nvrtc.cpp says what they are); the only place where NVRTC is
/// looked for in this process, for the life of a scope.
class FakeNvrtcs {
 public:
  FakeNvrtcs() {
    // What a real NVRTC has to do is done by the one that this machine has.
    try {
      static const std::string real = cuda::find_nvrtc()->path().string();
      ::setenv("SPARSEKILN_TEST_NVRTC", real.c_str(), 1);
    } catch (const Error&) {  // then nothing can be compiled, and all else be done
    }
    if (const char* before = std::getenv("SPARSEKILN_NVRTC")) before_ = before;
    ::setenv("SPARSEKILN_NVRTC", folder_.path().c_str(), 1);
  }
  FakeNvrtcs(const FakeNvrtcs&) = delete;
  FakeNvrtcs& operator=(const FakeNvrtcs&) = delete;
  ~FakeNvrtcs() {
    before_.empty() ? ::unsetenv("SPARSEKILN_NVRTC") : ::setenv("SPARSEKILN_NVRTC", before_.c_str(), 1);
  }

  /// One of `version` ("12.9") that compiles for `architectures`, as a file of its major version's name in
  /// the folder or in one below it. Its path.
  std::filesystem::path add(const std::string& version, const std::string& architectures = "80 90 100",
                            const std::string& below = {}) const {
    const std::filesystem::path folder = below.empty() ? folder_.path() : folder_.path() / below;
    std::filesystem::create_directories(folder);
    const std::filesystem::path file = folder / ("libnvrtc.so." + version.substr(0, version.find('.')));
    std::filesystem::copy_file(SPARSEKILN_FAKE_NVRTC, file);
    std::ofstream(file.string() + ".version") << version << ' ' << architectures;
    return file;
  }

 private:
  TemporaryFolder folder_;
  std::string before_;
};

}  // namespace sparsekiln::test

// An NVRTC for tests that is of whatever version they want. What it is stands in a file beside it, of its own
// name and `.version`: version and architectures, "12.9 80 90". It compiles nothing itself: all else is done
// by the library that SPARSEKILN_TEST_NVRTC names, a real one.

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace {

struct Version {
  int major = 0, minor = 0;
  std::vector<int> architectures;
};

Version version() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&version), &info);
  std::ifstream in(std::string(info.dli_fname) + ".version");
  Version read;
  char dot = 0;
  in >> read.major >> dot >> read.minor;
  for (int architecture = 0; in >> architecture;) read.architectures.push_back(architecture);
  return read;
}

/// The real library, and the second one that it would find on the loader's path alone.
void* load_real() {
  const char* const file = std::getenv("SPARSEKILN_TEST_NVRTC");
  if (file == nullptr) return nullptr;
  std::error_code ignored;
  for (const auto& beside :
       std::filesystem::directory_iterator(std::filesystem::path(file).parent_path(), ignored))
    if (beside.path().filename().string().starts_with("libnvrtc-builtins.so"))
      dlopen(beside.path().c_str(), RTLD_NOW | RTLD_LOCAL);
  return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

/// Calls the real library's function of that name; 1 (out of memory) where there is none.
template <typename... Arguments>
int forward(const char* name, Arguments... arguments) {
  static void* const library = load_real();
  void* const function = library == nullptr ? nullptr : dlsym(library, name);
  return function == nullptr ? 1 : reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}

}  // namespace

using Program = void*;
using Text = const char*;

extern "C" {
Text nvrtcGetErrorString(int) { return "an error of the fake"; }
int nvrtcVersion(int* major, int* minor) {
  const Version all = version();
  *major = all.major;
  *minor = all.minor;
  return 0;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(version().architectures.size());
  return 0;
}
int nvrtcGetSupportedArchs(int* architectures) {
  for (const int one : version().architectures) *architectures++ = one;
  return 0;
}
int nvrtcCreateProgram(Program* program, Text source, Text name, int count, const Text* headers,
                       const Text* names) {
  return forward("nvrtcCreateProgram", program, source, name, count, headers, names);
}
int nvrtcDestroyProgram(Program* program) { return forward("nvrtcDestroyProgram", program); }
int nvrtcCompileProgram(Program program, int count, const Text* options) {
  return forward("nvrtcCompileProgram", program, count, options);
}
int nvrtcGetProgramLogSize(Program program, std::size_t* size) {
  return forward("nvrtcGetProgramLogSize", program, size);
}
int nvrtcGetProgramLog(Program program, char* log) { return forward("nvrtcGetProgramLog", program, log); }
int nvrtcGetPTXSize(Program program, std::size_t* size) { return forward("nvrtcGetPTXSize", program, size); }
int nvrtcGetPTX(Program program, char* ptx) { return forward("nvrtcGetPTX", program, ptx); }
int nvrtcGetCUBINSize(Program program, std::size_t* size) {
  return forward("nvrtcGetCUBINSize", program, size);
}
int nvrtcGetCUBIN(Program program, char* cubin) { return forward("nvrtcGetCUBIN", program, cubin); }
}

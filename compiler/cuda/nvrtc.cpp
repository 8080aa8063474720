#include "compiler/cuda/nvrtc.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "compiler/cuda/compatibility.h"
#include "system/deep_stack.h"
#include "system/times.h"

namespace sparsekiln::cuda {
namespace {

// NVRTC's C interface, as its user guide states it; the toolkit's header is not needed.
using Result = int;  // 0 is success
constexpr Result kOutOfMemory = 1;
constexpr Result kCompilation = 6;  // it has read the source, and refuses it
using Program = void*;
using Text = const char*;

struct Functions {
  Text (*error_string)(Result) = nullptr;
  Result (*version)(int*, int*) = nullptr;
  Result (*arch_count)(int*) = nullptr;
  Result (*arch_list)(int*) = nullptr;
  Result (*create)(Program*, Text, Text, int, const Text*, const Text*) = nullptr;
  Result (*destroy)(Program*) = nullptr;
  Result (*compile)(Program, int, const Text*) = nullptr;
  Result (*log_size)(Program, std::size_t*) = nullptr;
  Result (*log)(Program, char*) = nullptr;
  Result (*ptx_size)(Program, std::size_t*) = nullptr;
  Result (*ptx)(Program, char*) = nullptr;
  Result (*cubin_size)(Program, std::size_t*) = nullptr;
  Result (*cubin)(Program, char*) = nullptr;
};

template <class Function>
bool bind(void* library, Text symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  return function != nullptr;
}

bool bind_all(void* library, Functions& f) {
  return bind(library, "nvrtcGetErrorString", f.error_string) && bind(library, "nvrtcVersion", f.version) &&
         bind(library, "nvrtcGetNumSupportedArchs", f.arch_count) &&
         bind(library, "nvrtcGetSupportedArchs", f.arch_list) &&
         bind(library, "nvrtcCreateProgram", f.create) && bind(library, "nvrtcDestroyProgram", f.destroy) &&
         bind(library, "nvrtcCompileProgram", f.compile) &&
         bind(library, "nvrtcGetProgramLogSize", f.log_size) && bind(library, "nvrtcGetProgramLog", f.log) &&
         bind(library, "nvrtcGetPTXSize", f.ptx_size) && bind(library, "nvrtcGetPTX", f.ptx) &&
         bind(library, "nvrtcGetCUBINSize", f.cubin_size) && bind(library, "nvrtcGetCUBIN", f.cubin);
}

std::string loader_message() {
  const char* const message = dlerror();
  return message == nullptr ? "unknown reason" : message;
}

/// The file that a symbol was loaded from.
std::filesystem::path file_of(const void* symbol, const std::filesystem::path& otherwise) {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? std::filesystem::path(info.dli_fname)
                                                                 : otherwise;
}

/// One output of a compiled program; `size` counts a terminating zero where there is one.
std::string take(const Functions& f, Program program, Result (*size)(Program, std::size_t*),
                 Result (*get)(Program, char*), std::string_view what) {
  std::size_t bytes = 0;
  Result result = size(program, &bytes);
  std::string text(bytes, '\0');
  if (result == 0 && bytes > 0) result = get(program, text.data());
  if (result != 0)
    throw Error(ErrorKind::compile, fmt::format("NVRTC gave no {}: {}", what, f.error_string(result)));
  return text;
}

/// Without the terminating zero, and without the lines that differ from run to run.
std::string clean_log(std::string_view log) {
  std::string clean;
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size() - 1) + 1;
    const std::string_view line = log.substr(0, end);
    if (line.find("Compile time =") == std::string_view::npos) clean += line;
    log.remove_prefix(end);
  }
  clean.erase(std::remove(clean.begin(), clean.end(), '\0'), clean.end());
  return clean;
}

/// "sm_90a" → 90; 0 where the text is not of that form.
int number_of(std::string_view arch) {
  int number = 0;
  if (arch.starts_with("sm_")) std::from_chars(arch.data() + 3, arch.data() + arch.size(), number);
  return number;
}

/// The options for one architecture. Every NVRTC from 12.0 on knows them: leaner ones of later versions
/// (--minimal, --no-cache) measure the same. Line numbers cost no time that can be measured and
/// change no instruction; they put the PTX into the cubin once more, some 100 KB.
std::vector<std::string> option_list(std::string_view arch, bool line_info) {
  std::vector<std::string> options = {fmt::format("--gpu-architecture={}", arch), "--std=c++20",
                                      "--ptxas-options=-v"};
  if (line_info) options.emplace_back("--generate-line-info");
  return options;
}

}  // namespace

struct Nvrtc::Library {
  std::filesystem::path path;
  Functions f;
  int version = 0;
  std::vector<int> architectures;
};

Nvrtc::Nvrtc(std::unique_ptr<const Library> library) : library_(std::move(library)) {}
Nvrtc::~Nvrtc() = default;

std::shared_ptr<const Nvrtc> Nvrtc::open(const std::filesystem::path& candidate, std::string& why_not) {
  void* const handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    why_not = loader_message();
    return nullptr;
  }
  auto library = std::make_unique<Library>();
  Functions& f = library->f;
  int major = 0, minor = 0, count = 0;
  if (!bind_all(handle, f) || f.version(&major, &minor) != 0 || major < 12 || f.arch_count(&count) != 0 ||
      count < 0) {
    why_not = "it is no NVRTC of version 12 or later";
    return nullptr;
  }
  library->version = 1000 * major + 10 * minor;
  library->architectures.resize(static_cast<std::size_t>(count));
  if (count > 0 && f.arch_list(library->architectures.data()) != 0) library->architectures.clear();
  std::sort(library->architectures.begin(), library->architectures.end());
  library->path = file_of(reinterpret_cast<const void*>(f.version), candidate);

  // NVRTC opens its second library by bare name, and finds it only where it is on the loader's path or is
  // already loaded. Failing here is no error yet: the loader's path may still have it.
  const std::string builtins = fmt::format("libnvrtc-builtins.so.{}.{}", major, minor);
  std::error_code unknown;  // a link to the library may be anywhere
  const std::filesystem::path real = std::filesystem::canonical(library->path, unknown);
  dlopen(((unknown ? library->path : real).parent_path() / builtins).c_str(), RTLD_NOW | RTLD_LOCAL);
  return std::make_shared<const Nvrtc>(std::move(library));
}

const std::filesystem::path& Nvrtc::path() const { return library_->path; }
int Nvrtc::version() const { return library_->version; }
std::string Nvrtc::name() const { return "NVRTC " + version_text(version()); }
const std::vector<int>& Nvrtc::architectures() const { return library_->architectures; }

bool Nvrtc::compiles_for(std::string_view arch) const {
  const std::vector<int>& known = architectures();
  return known.empty() || std::binary_search(known.begin(), known.end(), number_of(arch));
}

std::string Nvrtc::options(std::string_view arch, bool line_info) {
  return fmt::format("{}", fmt::join(option_list(arch, line_info), " "));
}

NvrtcOutput Nvrtc::compile(const std::string& source, std::string_view arch, bool line_info) const {
  const Functions& f = library_->f;
  if (!compiles_for(arch))
    throw Error(ErrorKind::compile,
                fmt::format("{} ({}) does not compile for {}; it knows sm_{}", name(),
                            printable(path().string()), arch, fmt::join(architectures(), ", sm_")),
                {}, source);

  Program program = nullptr;
  // The name is part of messages and of line information; a constant, so that the output depends on the
  // source alone, and absolute, since NVRTC would put the working folder in front of it.
  if (const Result result = f.create(&program, source.c_str(), "/sparsekiln.cu", 0, nullptr, nullptr);
      result != 0)
    throw Error(ErrorKind::compile, fmt::format("NVRTC took no source: {}", f.error_string(result)), {},
                source);
  const auto destroy = [&f](Program* p) { f.destroy(p); };
  const std::unique_ptr<Program, decltype(destroy)> guard(&program, destroy);

  const std::vector<std::string> options = option_list(arch, line_info);
  std::vector<Text> arguments;
  for (const std::string& option : options) arguments.push_back(option.c_str());
  Result result = 0;
  on_deep_stack([&] {
    const Timed timed("nvrtc");
    result = f.compile(program, static_cast<int>(arguments.size()), arguments.data());
  });
  NvrtcOutput output;
  output.log = clean_log(take(f, program, f.log_size, f.log, "log"));
  if (result != 0)
    throw Error(result == kOutOfMemory ? ErrorKind::driver : ErrorKind::compile,
                fmt::format("{} {} the emitted source for {} ({}):\n{}", name(),
                            result == kCompilation ? "refused" : "could not compile", arch,
                            f.error_string(result), output.log.substr(0, 2000)),
                output.log, result == kCompilation ? source : std::string());
  output.ptx = take(f, program, f.ptx_size, f.ptx, "PTX");
  while (!output.ptx.empty() && output.ptx.back() == '\0') output.ptx.pop_back();
  const std::string cubin = take(f, program, f.cubin_size, f.cubin, "cubin");
  const auto bytes = std::as_bytes(std::span(cubin));
  output.cubin.assign(bytes.begin(), bytes.end());
  if (output.cubin.empty() || output.ptx.empty())
    throw Error(ErrorKind::compile,
                fmt::format("{} gave no {} for {}", name(), output.cubin.empty() ? "cubin" : "PTX", arch),
                output.log, source);
  return output;
}

}  // namespace sparsekiln::cuda

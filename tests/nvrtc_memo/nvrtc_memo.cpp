// An NVRTC that remembers. It is for the tests, which compile the same sources again and again: what the
// library that SPARSEKILN_MEMO_NVRTC names has once made of a source, with the same name, options and
// version, is read from the folder that SPARSEKILN_MEMO names. Without a folder everything is compiled, and
// so is what a process asks for again. It has those of NVRTC's functions that compiler/cuda/nvrtc.cpp calls.
//
// Each compile that is spared adds a line "remembered SECONDS" to the file that SPARSEKILN_TIMES names.

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <xxhash.h>

namespace {

using Text = const char*;
using Clock = std::chrono::steady_clock;

constexpr int kSuccess = 0, kOutOfMemory = 1;  // nvrtcResult

std::string variable(Text name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// The real library, and the second one that it would find on the loader's path alone.
void* real() {
  static void* const library = [] {
    std::error_code ignored;
    const std::filesystem::path named = variable("SPARSEKILN_MEMO_NVRTC");
    const std::filesystem::path resolved = std::filesystem::canonical(named, ignored);
    const std::filesystem::path file = ignored ? named : resolved;
    for (const auto& beside : std::filesystem::directory_iterator(file.parent_path(), ignored))
      if (beside.path().filename().string().starts_with("libnvrtc-builtins.so"))
        dlopen(beside.path().c_str(), RTLD_NOW | RTLD_LOCAL);
    return file.empty() ? nullptr : dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  }();
  return library;
}

/// Calls the real library's function of that name.
template <typename... Arguments>
int forward(Text name, Arguments... arguments) {
  void* const function = real() == nullptr ? nullptr : dlsym(real(), name);
  return function == nullptr ? kOutOfMemory : reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}

/// What a compile gives: texts with their terminating zeros, as NVRTC counts them.
struct Outcome {
  int result = kOutOfMemory;
  std::string log, ptx, cubin;
};

/// What NVRTC calls a program.
struct Program {
  std::string source, name;
  Outcome outcome;
};

std::string taken(void* program, Text size_name, Text name) {
  std::size_t size = 0;
  if (forward(size_name, program, &size) != kSuccess) return "";
  std::string text(size, '\0');
  if (size > 0 && forward(name, program, text.data()) != kSuccess) return "";
  return text;
}

Outcome compiled(const Program& given, int count, const Text* options) {
  void* program = nullptr;
  Outcome outcome;
  outcome.result = forward("nvrtcCreateProgram", &program, given.source.c_str(), given.name.c_str(), 0,
                           static_cast<const Text*>(nullptr), static_cast<const Text*>(nullptr));
  if (outcome.result != kSuccess) return outcome;
  outcome.result = forward("nvrtcCompileProgram", program, count, options);
  outcome.log = taken(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog");
  if (outcome.result == kSuccess) {
    outcome.ptx = taken(program, "nvrtcGetPTXSize", "nvrtcGetPTX");
    outcome.cubin = taken(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN");
  }
  forward("nvrtcDestroyProgram", &program);
  return outcome;
}

std::string hex(XXH128_hash_t hash) {
  std::ostringstream text;
  text << std::hex << hash.high64 << '-' << hash.low64;
  return text.str();
}

std::string checksum(const std::string& text) { return hex(XXH3_128bits(text.data(), text.size())); }

/// A file's name for all that the outcome depends on. NVRTC's version leaves out what its library's size
/// shows.
std::string key_of(const Program& given, int count, const Text* options) {
  int major = 0, minor = 0;
  forward("nvrtcVersion", &major, &minor);
  std::error_code unknown;
  std::ostringstream all;
  all << major << '.' << minor << ' '
      << std::filesystem::file_size(variable("SPARSEKILN_MEMO_NVRTC"), unknown);
  for (int n = 0; n < count; ++n) all << '\0' << options[n];
  all << '\0' << given.name << '\0' << given.source;
  const std::string text = all.str();
  return checksum(text);
}

/// nullopt where there is none, or one that is not whole.
std::optional<Outcome> read(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string sum;
  std::size_t log = 0, ptx = 0, cubin = 0;
  if (!(in >> sum >> log >> ptx >> cubin) || in.get() != '\n') return std::nullopt;
  std::ostringstream read;
  read << in.rdbuf();
  const std::string rest = std::move(read).str();
  if (rest.size() != log + ptx + cubin || checksum(rest) != sum) return std::nullopt;
  std::error_code ignored;  // tests/memory.py removes what was used longest ago
  std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now(), ignored);
  return Outcome{kSuccess, rest.substr(0, log), rest.substr(log, ptx), rest.substr(log + ptx)};
}

void write(const std::filesystem::path& file, const Outcome& outcome) {
  static std::atomic<int> number{0};
  const std::filesystem::path made =
      file.string() + '.' + std::to_string(::getpid()) + '.' + std::to_string(++number);
  const std::string all = outcome.log + outcome.ptx + outcome.cubin;
  std::error_code ignored;
  {
    std::ofstream out(made, std::ios::binary);
    out << checksum(all) << ' ' << outcome.log.size() << ' ' << outcome.ptx.size() << ' '
        << outcome.cubin.size() << '\n'
        << all;
    out.close();
    if (out) std::filesystem::rename(made, file, ignored);
  }
  std::filesystem::remove(made, ignored);
}

/// Whether this process has not asked for it before. One that asks again wants to see whether the same comes
/// out.
bool asked_first(const std::string& key) {
  static std::mutex mutex;
  static std::set<std::string> asked;
  const std::lock_guard lock(mutex);
  return asked.insert(key).second;
}

Outcome remembered(const Program& given, int count, const Text* options, bool& was_there) {
  const std::filesystem::path folder = variable("SPARSEKILN_MEMO");
  if (folder.empty()) return compiled(given, count, options);
  const std::string key = key_of(given, count, options);
  if (!asked_first(key)) return compiled(given, count, options);
  const std::filesystem::path file = folder / key;
  if (auto found = read(file)) {
    was_there = true;
    return *std::move(found);
  }
  Outcome outcome = compiled(given, count, options);
  const bool whole = outcome.result == kSuccess && !outcome.ptx.empty() && !outcome.cubin.empty();
  if (whole) write(file, outcome);  // a refusal may be due to little memory or disk
  return outcome;
}

void tell_time(Clock::time_point began) {
  const std::string file = variable("SPARSEKILN_TIMES");
  if (file.empty()) return;
  std::ostringstream line;
  line << "remembered " << std::chrono::duration<double>(Clock::now() - began).count() << '\n';
  std::ofstream(file, std::ios::app) << line.str();
}

int size_of(const std::string& text, std::size_t* size) {
  *size = text.size();
  return kSuccess;
}

int copy(const std::string& text, char* to) {
  std::memcpy(to, text.data(), text.size());
  return kSuccess;
}

}  // namespace

extern "C" {
Text nvrtcGetErrorString(int result) {
  void* const function = real() == nullptr ? nullptr : dlsym(real(), "nvrtcGetErrorString");
  return function == nullptr ? "SPARSEKILN_MEMO_NVRTC names no NVRTC"
                             : reinterpret_cast<Text (*)(int)>(function)(result);
}
int nvrtcVersion(int* major, int* minor) { return forward("nvrtcVersion", major, minor); }
int nvrtcGetNumSupportedArchs(int* count) { return forward("nvrtcGetNumSupportedArchs", count); }
int nvrtcGetSupportedArchs(int* architectures) { return forward("nvrtcGetSupportedArchs", architectures); }

int nvrtcCreateProgram(Program** program, Text source, Text name, int headers, const Text*, const Text*) {
  if (headers != 0) return kOutOfMemory;  // nothing of ours has any
  *program = new Program{source, name, {}};
  return kSuccess;
}
int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return kSuccess;
}
int nvrtcCompileProgram(Program* program, int count, const Text* options) {
  const auto began = Clock::now();
  bool was_there = false;
  program->outcome = remembered(*program, count, options, was_there);
  if (was_there) tell_time(began);
  return program->outcome.result;
}
int nvrtcGetProgramLogSize(Program* program, std::size_t* size) {
  return size_of(program->outcome.log, size);
}
int nvrtcGetProgramLog(Program* program, char* log) { return copy(program->outcome.log, log); }
int nvrtcGetPTXSize(Program* program, std::size_t* size) { return size_of(program->outcome.ptx, size); }
int nvrtcGetPTX(Program* program, char* ptx) { return copy(program->outcome.ptx, ptx); }
int nvrtcGetCUBINSize(Program* program, std::size_t* size) { return size_of(program->outcome.cubin, size); }
int nvrtcGetCUBIN(Program* program, char* cubin) { return copy(program->outcome.cubin, cubin); }
}

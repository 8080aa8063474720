#include "runtime/cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "compiler/cuda/compatibility.h"
#include "runtime/cuda/emulator_library.h"

namespace sparsekiln::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr const char* kVariable = "SPARSEKILN_CUDA_DRIVER";
constexpr std::string_view kWithout = "the cpu target works without one";

/// cuGetProcAddress in whichever of its two interfaces the library has.
class ProcAddress {
 public:
  explicit ProcAddress(void* library)
      : current_(reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"))),
        first_(reinterpret_cast<PFN_cuGetProcAddress_v11030>(dlsym(library, "cuGetProcAddress"))) {}

  explicit operator bool() const { return current_ != nullptr || first_ != nullptr; }
  [[nodiscard]] void* address() const {
    return current_ != nullptr ? reinterpret_cast<void*>(current_) : reinterpret_cast<void*>(first_);
  }

  /// Null where the driver does not have this interface.
  [[nodiscard]] void* find(const char* name, int version) const {
    // Not the default search mode, which depends on how the caller was compiled: streams are always passed on
    // as given.
    const cuuint64_t flags = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    void* found = nullptr;
    CUdriverProcAddressQueryResult status{};
    const CUresult result = current_ != nullptr ? current_(name, &found, version, flags, &status)
                                                : first_(name, &found, version, flags);
    return result == CUDA_SUCCESS ? found : nullptr;
  }

 private:
  PFN_cuGetProcAddress_v12000 current_;
  PFN_cuGetProcAddress_v11030 first_;
};

/// What would work, where the driver's answer alone does not say it.
std::string_view remedy(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return "; release device memory, or ask for a smaller batch";
    case CUDA_ERROR_STUB_LIBRARY:
      return "; this is the toolkit's link-time stub: put the driver's own libcuda.so.1 before it in the "
             "loader's path";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return "; libcuda and the kernel module are of different releases: reboot, or reinstall the driver";
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
      return "; compile for this device's architecture";
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return "; the PTX is newer than the driver: update the driver, or compile with an older NVRTC";
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
      return "; install libnvidia-ptxjitcompiler beside libcuda, or compile for this device's architecture";
    case CUDA_ERROR_INVALID_HANDLE:
      return "; streams, kernels and graphs are good in the context that they were made in, as long as that "
             "lives";
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
      return "; the context was destroyed: load the kernel again in one that lives";
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
      return "; do it before the capture begins";
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
      return "; a kernel queued earlier went wrong, and the context cannot be used any more: check the "
             "operands' "
             "addresses and sizes, and start the process again";
    default:
      return "";
  }
}

struct Attempt {
  std::shared_ptr<const Driver> driver;
  std::string failure;
};

/// The library to load, and what named it.
std::pair<std::string, std::string> library_of(DriverKind kind) {
  if (kind == DriverKind::emulator) {
    EmulatorLibrary library = find_emulator_library();
    return {std::move(library.path), std::move(library.asked)};
  }
  const char* const named = std::getenv(kVariable);
  if (named == nullptr || *named == '\0') return {kLibrary, kLibrary};
  return {named, fmt::format("{}={}", kVariable, printable(named))};
}

/// One attempt per library and process: what is not there is not looked for at every call.
const Attempt& attempt(DriverKind kind = DriverKind::cuda) {
  static std::mutex mutex;
  static std::map<std::string, Attempt> attempts;
  const auto [library, asked] = library_of(kind);
  const std::lock_guard lock(mutex);
  auto [place, fresh] = attempts.try_emplace(library);
  Attempt& made = place->second;
  if (fresh) {
    try {
      made.driver = std::make_shared<const Driver>(library, asked);
    } catch (const Error& error) {
      made.failure = error.what();
    } catch (...) {
      attempts.erase(place);
      throw;
    }
  }
  return made;
}

}  // namespace

Driver::Driver(const std::string& library, std::string_view asked) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    throw Error(ErrorKind::driver,
                fmt::format("no CUDA driver: {} could not be loaded ({}); {}", asked,
                            why == nullptr ? "no reason given" : printable(why), kWithout));
  }
  const ProcAddress proc_address(handle);
  if (!proc_address) {
    dlclose(handle);
    throw Error(
        ErrorKind::driver,
        fmt::format("no usable CUDA driver: {} has no cuGetProcAddress, so it is older than CUDA 11.3 or "
                    "something else; CUDA 11.4 or later is needed, and {}",
                    asked, kWithout));
  }
  // From here on the library stays: a driver has threads of its own and does not survive dlclose.
  Dl_info info{};
  path_ = dladdr(proc_address.address(), &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : library;

  find_symbol_ = [proc_address](const char* name, int version) { return proc_address.find(name, version); };
  last_report_ = reinterpret_cast<decltype(last_report_)>(dlsym(handle, "emulatorLastReport"));

  const DriverSymbol* missing = nullptr;
  for (const DriverSymbol& symbol : driver_symbols()) {
    void* const found = proc_address.find(symbol.name, symbol.version);
    symbol.store(api_, found);
    if (found == nullptr && symbol.required && missing == nullptr) missing = &symbol;
  }
  if (api_.driver_get_version != nullptr) static_cast<void>(api_.driver_get_version(&version_));
  if (missing != nullptr) {
    throw Error(
        ErrorKind::driver,
        fmt::format("no usable CUDA driver: {} (CUDA {}) has no {} of CUDA {}; CUDA 11.4 or later is needed, "
                    "and {}",
                    printable(path_.string()), version_text(version_), missing->name,
                    version_text(missing->version), kWithout));
  }
  if (const CUresult result = api_.init(0); result != CUDA_SUCCESS) {
    throw Error(ErrorKind::driver, fmt::format("no CUDA device: {} was loaded, but cuInit answers {}{}{}; {}",
                                               printable(path_.string()), describe(result), remedy(result),
                                               report(result), kWithout));
  }
}

std::shared_ptr<const Driver> Driver::find(DriverKind kind) {
  const Attempt& made = attempt(kind);
  if (made.driver == nullptr) throw Error(ErrorKind::driver, made.failure);
  return made.driver;
}

std::string Driver::describe(CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api_.get_error_name(result, &name) != CUDA_SUCCESS || name == nullptr) {
    return fmt::format("CUDA error {}", static_cast<int>(result));
  }
  if (api_.get_error_string(result, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return fmt::format("{}: {}", name, text);
}

CUcontext Driver::current_context() const noexcept {
  CUcontext current = nullptr;
  if (api_.ctx_get_current(&current) != CUDA_SUCCESS || current == nullptr) return nullptr;
  CUdevice device = 0;
  const CUresult answer = api_.ctx_get_device(&device);
  return answer == CUDA_ERROR_INVALID_CONTEXT || answer == CUDA_ERROR_CONTEXT_IS_DESTROYED ? nullptr
                                                                                           : current;
}

void Driver::fail(CUresult result, std::string_view asked) const {
  throw Error(ErrorKind::driver,
              fmt::format("{}: {}{}{}", asked, describe(result), remedy(result), report(result)));
}

std::string Driver::report(CUresult result) const {
  if (last_report_ == nullptr) return {};
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_UNKNOWN: {
      const std::string text = last_report_();
      return text.empty() ? text : "\n" + text;
    }
    default:
      return {};
  }
}

bool available() noexcept {
  try {
    const Attempt& made = attempt();
    int devices = 0;
    return made.driver != nullptr && made.driver->api().device_get_count(&devices) == CUDA_SUCCESS &&
           devices > 0;
  } catch (...) {
    return false;
  }
}

CUcontext current_context() noexcept {
  try {
    const Attempt& made = attempt();
    return made.driver == nullptr ? nullptr : made.driver->current_context();
  } catch (...) {
    return nullptr;
  }
}

std::string module_release() {
  std::string release;
  std::getline(std::ifstream("/sys/module/nvidia/version"), release);
  return release;
}

Toolchain machine_toolchain() noexcept {
  try {
    const Attempt& made = attempt();
    if (made.driver == nullptr) return {};
    return {made.driver->version(), module_release()};
  } catch (...) {
    return {};
  }
}

}  // namespace sparsekiln::cuda

#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "compiler/toolchain.h"
#include "runtime/cuda/driver_api.h"

namespace sparsekiln::cuda {

/// Which driver: the machine's, or the one made of software that runs beside it.
enum class DriverKind { cuda, emulator };

/// The CUDA driver of this machine, loaded at run time: libcuda.so.1, or the library that
/// SPARSEKILN_CUDA_DRIVER names (nothing else is tried where it is set). Or the emulator, which is looked for
/// as runtime/cuda/emulator.h says. By name only cuGetProcAddress is looked up; it hands out the rest at
/// stated versions. Needs CUDA 11.4 or later. Initialised; thread-safe; never unloaded.
class Driver {
 public:
  /// Loaded once per process and library; a failure is remembered, too. Throws `driver`, saying in one
  /// sentence what was looked for.
  [[nodiscard]] static std::shared_ptr<const Driver> find(DriverKind kind = DriverKind::cuda);

  [[nodiscard]] const DriverApi& api() const noexcept { return api_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// The newest CUDA that the driver knows, 1000 × major + 10 × minor: 13000 is CUDA 13.0.
  [[nodiscard]] int version() const noexcept { return version_; }

  /// "CUDA_ERROR_OUT_OF_MEMORY: out of memory"
  [[nodiscard]] std::string describe(CUresult result) const;

  /// The context that is current on the calling thread; null where there is none, or where its owner has
  /// destroyed it.
  [[nodiscard]] CUcontext current_context() const noexcept;

  /// A function by its name and the version of its interface; null where the driver does not have it.
  [[nodiscard]] void* find_symbol(const char* name, int version) const { return find_symbol_(name, version); }

  /// Throws `driver`: what was asked, the driver's answer, and what would work where that is known. Where the
  /// driver is the emulator and a kernel went wrong, its report of that follows.
  [[noreturn]] void fail(CUresult result, std::string_view asked) const;
  void check(CUresult result, std::string_view asked) const {
    if (result != CUDA_SUCCESS) [[unlikely]]
      fail(result, asked);
  }

  /// Loads and initialises the library at `library`; `asked` says what named it. What `find` does, without
  /// memory.
  Driver(const std::string& library, std::string_view asked);

 private:
  /// What the emulator says of a kernel whose launch ended with `result`; empty from other drivers.
  [[nodiscard]] std::string report(CUresult result) const;

  DriverApi api_;
  std::function<void*(const char* name, int version)> find_symbol_;
  const char* (*last_report_)() = nullptr;  ///< the emulator's
  std::filesystem::path path_;
  int version_ = 0;
};

/// Whether there is a driver and at least one device.
[[nodiscard]] bool available() noexcept;

/// Driver::current_context of this machine's driver; null where there is none.
[[nodiscard]] CUcontext current_context() noexcept;

/// The release of the kernel module that is loaded, "580.95.05"; empty where it cannot be read.
[[nodiscard]] std::string module_release();

/// This machine's driver, for choosing an NVRTC whose code it loads; of version 0 where there is none.
[[nodiscard]] Toolchain machine_toolchain() noexcept;

}  // namespace sparsekiln::cuda

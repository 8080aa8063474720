#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sparsekiln::cuda {

/// What one compile gives.
struct NvrtcOutput {
  std::vector<std::byte> cubin;
  std::string ptx;
  std::string log;  ///< compiler's and ptxas's report, timings stripped: the same source gives the same log
};

/// The NVRTC library, loaded at run time. Thread-safe.
class Nvrtc {
 public:
  /// Looks in SPARSEKILN_NVRTC (a file or a folder; nothing else is tried where it is set), CUDA_HOME,
  /// CUDA_PATH, the loader's path (libnvrtc.so.13, then .12), the usual toolkit folder, and nvidia/*/lib of
  /// the active Python environment (VIRTUAL_ENV; else the project's own). `max_major` > 0 refuses newer major
  /// versions. Loaded once per process and max_major. Throws `compile` listing every place that was tried.
  [[nodiscard]] static std::shared_ptr<const Nvrtc> find(int max_major = 0);

  [[nodiscard]] const std::filesystem::path& path() const;  ///< of the library
  [[nodiscard]] int major() const;
  [[nodiscard]] int minor() const;
  /// Architectures that it compiles for, ascending, as compute capability × 10.
  [[nodiscard]] const std::vector<int>& architectures() const;

  /// Compiles one self-contained source for a real architecture ("sm_90", "sm_90a") to cubin and PTX in one
  /// go. Throws `compile` with log and source, and `driver` where memory is short.
  [[nodiscard]] NvrtcOutput compile(const std::string& source, std::string_view arch) const;
  /// The options that `compile` passes for an architecture, joined by blanks.
  [[nodiscard]] static std::string options(std::string_view arch);

  ~Nvrtc();
  struct Library;
  explicit Nvrtc(std::unique_ptr<const Library> library);

 private:
  std::unique_ptr<const Library> library_;
};

}  // namespace sparsekiln::cuda

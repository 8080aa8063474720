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

/// The NVRTC library, loaded at run time. Thread-safe. Which one to take: nvrtc_choice.h.
class Nvrtc {
 public:
  /// The library at a path, or of a bare name on the loader's path; null, and `why_not`, where that is no
  /// NVRTC of version 12 or later. It is never unloaded: it keeps state of its own.
  [[nodiscard]] static std::shared_ptr<const Nvrtc> open(const std::filesystem::path& candidate,
                                                         std::string& why_not);

  [[nodiscard]] const std::filesystem::path& path() const;  ///< of the library
  [[nodiscard]] int version() const;                        ///< 1000 × major + 10 × minor: 12040 is 12.4
  [[nodiscard]] std::string name() const;                   ///< "NVRTC 12.4"
  /// Architectures that it compiles for, ascending, as compute capability × 10.
  [[nodiscard]] const std::vector<int>& architectures() const;
  [[nodiscard]] bool compiles_for(std::string_view arch) const;  ///< "sm_90", "sm_90a"

  /// Compiles one self-contained source for a real architecture ("sm_90", "sm_90a") to cubin and PTX in one
  /// go; line_info as Toolchain has it. Throws `compile` with log and source, and `driver` where memory is
  /// short.
  [[nodiscard]] NvrtcOutput compile(const std::string& source, std::string_view arch,
                                    bool line_info = true) const;
  /// The options that `compile` passes for an architecture, joined by blanks.
  [[nodiscard]] static std::string options(std::string_view arch, bool line_info = true);

  ~Nvrtc();
  struct Library;
  explicit Nvrtc(std::unique_ptr<const Library> library);

 private:
  std::unique_ptr<const Library> library_;
};

}  // namespace sparsekiln::cuda

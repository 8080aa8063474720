#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cuda/device_info.h"
#include "runtime/cuda/emulator.h"
#include "tests/conformance/case_file.h"

namespace sparsekiln::conformance {

/// The answers of a case, by thread of the grid and then by column.
using Answer = std::vector<std::vector<std::uint64_t>>;

/// Runs cases on one device of a CUDA driver, real or emulated. Its context is current on the thread that
/// made it, as long as it lives.
class Runner {
 public:
  /// `target`: "cuda", "cuda:1" for a device by number; "emulated", "emulated:sm_80" for one by architecture
  /// of the driver that SPARSEKILN_CUDA_DRIVER names. Throws `driver`, or `invalid_argument` for another
  /// text.
  explicit Runner(std::string_view target);
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner();

  [[nodiscard]] const cuda::DeviceInfo& device() const { return device_; }
  [[nodiscard]] int driver_version() const { return driver_->version(); }
  /// Whether the driver is emulated: it refuses what it does not do exactly.
  [[nodiscard]] bool emulated() const { return emulator_.has_value(); }
  [[nodiscard]] bool takes(const Case& test) const {
    return test.for_target_alone ? test.target == device_.compute_capability
                                 : test.target <= device_.compute_capability;
  }

  /// Throws `driver` if the kernel is refused, does not run to its end, or writes outside of its answers. A
  /// context that a kernel broke is opened again for the next one, as far as the driver allows.
  [[nodiscard]] Answer run(const Case& test);

 private:
  void open();
  void close() noexcept;
  [[nodiscard]] Answer run_in_context(const Case& test) const;

  std::optional<cuda::Emulator> emulator_;
  std::shared_ptr<const cuda::Driver> driver_;
  cuda::DeviceInfo device_;
};

}  // namespace sparsekiln::conformance

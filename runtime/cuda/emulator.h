#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emulator/control.h"
#include "runtime/cuda/context.h"

namespace sparsekiln::cuda {

/// The context of the emulated device of an architecture (compute capability × 10). Calls of this library
/// enter it and leave it again: in between it is current nowhere. Throws `driver` where there is no emulator,
/// or it has no such device, saying which.
[[nodiscard]] std::shared_ptr<const Context> open_emulated(int compute_capability);

/// What one instruction did since the counters were reset (EmulatorLine in emulator/control.h).
struct CountedLine {
  std::string kernel;
  unsigned ptx_line = 0;
  std::string instruction;
  std::string source_file;  ///< empty where the PTX does not say
  unsigned source_line = 0;
  std::string kind;
  std::uint64_t executed = 0;
  std::uint64_t global_requests = 0;
  std::uint64_t global_sectors = 0;
  std::uint64_t global_bytes = 0;
  std::uint64_t shared_wavefronts = 0;
  std::uint64_t shared_ideal = 0;
  std::uint64_t tensor_operations = 0;
  std::uint64_t divergent = 0;
};

/// What the emulator has beside the CUDA Driver API (emulator/control.h). All of it applies to the whole
/// process.
class Emulator {
 public:
  /// The emulator of this process. Throws `driver` where there is none.
  Emulator();

  [[nodiscard]] const Driver& driver() const noexcept { return *driver_; }

  void set_seed(std::uint64_t seed) const { set_seed_(seed); }
  [[nodiscard]] std::uint64_t seed() const { return seed_(); }
  /// EMULATOR_CHECK_… joined.
  void set_checks(unsigned checks) const { set_checks_(checks); }
  [[nodiscard]] unsigned checks() const { return checks_(); }
  /// Host threads that a launch may use; 0: as many as the process may run on.
  void set_threads(int threads) const { set_threads_(threads); }
  /// The report of the kernel that last did something wrong; empty where none did.
  [[nodiscard]] std::string last_report() const { return last_report_(); }
  void reset_counters() const { reset_counters_(); }
  /// By kernel, then by line.
  [[nodiscard]] std::vector<CountedLine> counters() const;
  /// The n-th call of a sort (EMULATOR_FAULT_…) from now on fails with `result`; n = 0: none.
  void fail_call(int kind, unsigned n, CUresult result) const {
    fail_call_(kind, n, static_cast<int>(result));
  }
  [[nodiscard]] EmulatorHeld held() const { return held_(); }
  /// Gives a device a new context after a kernel has made the old one useless. Kernels and memory of the old
  /// one are gone, and the report with them.
  void reset_device(int ordinal) const;

 private:
  std::shared_ptr<const Driver> driver_;
  decltype(&emulatorSetSeed) set_seed_ = nullptr;
  decltype(&emulatorSeed) seed_ = nullptr;
  decltype(&emulatorSetChecks) set_checks_ = nullptr;
  decltype(&emulatorChecks) checks_ = nullptr;
  decltype(&emulatorSetThreads) set_threads_ = nullptr;
  decltype(&emulatorLastReport) last_report_ = nullptr;
  decltype(&emulatorResetCounters) reset_counters_ = nullptr;
  decltype(&emulatorCounters) counters_ = nullptr;
  decltype(&emulatorFailCall) fail_call_ = nullptr;
  decltype(&emulatorHeld) held_ = nullptr;
  PFN_cuDevicePrimaryCtxReset_v11000 primary_ctx_reset_ = nullptr;
};

}  // namespace sparsekiln::cuda

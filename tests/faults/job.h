#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>

#include "oracle/spmm_check.h"
#include "runtime/cuda/emulator.h"
#include "runtime/device.h"

/// The emulator of this process for a test, which begins and ends without planned faults.
class Emulated {
 public:
  Emulated();
  Emulated(const Emulated&) = delete;
  Emulated& operator=(const Emulated&) = delete;
  ~Emulated();

  [[nodiscard]] const sparsekiln::cuda::Emulator& control() const { return emulator_; }
  /// As emulatorHeld.
  [[nodiscard]] EmulatorHeld held() const { return emulator_.held(); }

 private:
  sparsekiln::cuda::Emulator emulator_;
};

/// Names the sorts of calls that fail on purpose.
[[nodiscard]] const char* name_of_fault(int kind);

/// A layer with rows that are split, so that it takes a workspace as well; its code is in a store of its own,
/// made once.
struct Job {
  sparsekiln::Layout layout;
  sparsekiln::Options options;
  sparsekiln::Problem problem;
  sparsekiln::HostInputs inputs;
};
[[nodiscard]] const Job& the_job();
/// The same layer with its layout attached.
[[nodiscard]] const Job& attached_job();

/// Compiles (from the store), loads, switches to another layout and back if the job is attached, allocates,
/// copies, launches, waits, copies back, and checks the result. Throws what the library throws. Holds nothing
/// afterwards.
[[nodiscard]] sparsekiln::CheckResult run(const Job& job);

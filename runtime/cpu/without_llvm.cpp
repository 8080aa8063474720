// Takes the place of the other files of this folder but backend.cpp where SPARSEKILN_CPU is not defined:
// without LLVM there is no cpu device, and opening it is refused.

#include <sparsekiln/error.h>

#include "runtime/cpu/device.h"
#include "runtime/cpu/machine_peak.h"

namespace sparsekiln::cpu {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      ErrorKind::driver,
      "the cpu target needs LLVM, and this build of Sparsekiln has none (meson option cpu); a CUDA device "
      "would work");
}

}  // namespace

std::shared_ptr<const Device> open_device(std::int32_t) { refuse(); }
MeasuredPeak measure_peak(const Target&, std::int64_t) { refuse(); }

}  // namespace sparsekiln::cpu

#pragma once

#include <string>

namespace sparsekiln {

/// What compiling needs of the machine besides the request: which NVRTC makes the code. It never decides what
/// the code computes.
struct Toolchain {
  /// The newest CUDA that the driver knows which is to load the code, as cuDriverGetVersion says it (12040 is
  /// CUDA 12.4); 0: any driver.
  int driver_version = 0;
  std::string driver_release = {};  ///< "550.54.14", for messages; empty where it is not known
  /// Whether code names the lines of the source that it comes from, for profilers. The same instructions, in
  /// three times the bytes.
  bool line_info = true;
};

}  // namespace sparsekiln

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/cuda/driver.h"

namespace sparsekiln::cuda {

/// What the driver says of one device.
struct DeviceInfo {
  int ordinal = 0;
  std::string name;
  /// "0000:65:00.0", as nvidia-smi takes it for --id: its own numbers may be others than CUDA's. Empty where
  /// the driver does not say.
  std::string pci_bus_id;
  int compute_capability = 0;  ///< × 10: 90 is 9.0
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t shared_bytes_per_cta = 0;  ///< the most one CTA may have, by asking for it
  int clock_khz = 0;                      ///< peak; 0 where the driver does not say
  int memory_clock_khz = 0;               ///< peak; 0 where the driver does not say
  int memory_bus_bits = 0;
};

/// Throws `driver` where there is no such device, saying which there are.
[[nodiscard]] DeviceInfo device_info(const Driver& driver, int ordinal);

/// What was found, for people. Does not throw where there is no driver.
struct DriverReport {
  bool found = false;
  std::string failure;  ///< where it was not: one sentence
  std::string path;
  int version = 0;      ///< 1000 × major + 10 × minor
  std::string release;  ///< of the kernel module, "580.95.05"; empty where it cannot be read
  std::vector<DeviceInfo> devices;
};
[[nodiscard]] DriverReport report_driver();

}  // namespace sparsekiln::cuda

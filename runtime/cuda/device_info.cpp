#include "runtime/cuda/device_info.h"

#include <fmt/format.h>

#include <sparsekiln/error.h>

namespace sparsekiln::cuda {
namespace {

int device_count(const Driver& driver) {
  int count = 0;
  driver.check(driver.api().device_get_count(&count), "counting the CUDA devices");
  return count;
}

/// 0 where this driver or device does not know the attribute: none of them is worth failing for.
int attribute(const Driver& driver, CUdevice device, CUdevice_attribute which) {
  int value = 0;
  return driver.api().device_get_attribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

}  // namespace

DeviceInfo device_info(const Driver& driver, int ordinal) {
  const int count = device_count(driver);
  if (ordinal < 0 || ordinal >= count) {
    throw Error(
        ErrorKind::driver,
        count == 0 ? fmt::format("no CUDA device {}: the driver finds none; the cpu target works without one",
                                 ordinal)
                   : fmt::format("no CUDA device {}: the driver finds {}, numbered from 0 to {}", ordinal,
                                 count, count - 1));
  }
  CUdevice device = 0;
  driver.check(driver.api().device_get(&device, ordinal), fmt::format("opening CUDA device {}", ordinal));
  char name[256] = {};
  driver.check(driver.api().device_get_name(name, sizeof name - 1, device),
               fmt::format("asking CUDA device {} for its name", ordinal));
  char pci_bus_id[64] = {};
  if (driver.api().device_get_pci_bus_id(pci_bus_id, sizeof pci_bus_id - 1, device) != CUDA_SUCCESS)
    pci_bus_id[0] = '\0';
  std::size_t memory = 0;
  driver.check(driver.api().device_total_mem(&memory, device),
               fmt::format("asking CUDA device {} for its memory", ordinal));

  DeviceInfo info;
  info.ordinal = ordinal;
  info.name = name;
  info.pci_bus_id = pci_bus_id;
  info.memory_bytes = static_cast<std::int64_t>(memory);
  info.compute_capability = 10 * attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                            attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.multiprocessors = attribute(driver, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  info.l2_bytes = attribute(driver, device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  info.shared_bytes_per_cta =
      attribute(driver, device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  info.clock_khz = attribute(driver, device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  info.memory_clock_khz = attribute(driver, device, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  info.memory_bus_bits = attribute(driver, device, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  return info;
}

DriverReport report_driver() {
  DriverReport report;
  try {
    const std::shared_ptr<const Driver> driver = Driver::find();
    report.path = driver->path().string();
    report.version = driver->version();
    const int count = device_count(*driver);
    for (int ordinal = 0; ordinal < count; ++ordinal) report.devices.push_back(device_info(*driver, ordinal));
    report.found = true;
  } catch (const Error& error) {
    report.failure = error.what();
    report.devices.clear();
  }
  report.release = module_release();
  return report;
}

}  // namespace sparsekiln::cuda

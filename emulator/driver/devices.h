#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "emulator/driver/interface.h"

namespace sparsekiln::driver {

/// One device of this driver: an architecture, in the size of its best known part.
struct DeviceFacts {
  const char* name;
  int compute_capability;  ///< × 10
  int multiprocessors;
  int threads_per_multiprocessor;
  int blocks_per_multiprocessor;
  int shared_per_multiprocessor;   ///< bytes
  int shared_per_block_by_asking;  ///< bytes, static and dynamic together
  int shared_reserved_per_block;   ///< bytes that the system takes of each block's
  int l2_bytes;
  int memory_bus_bits;
  std::int64_t memory_bytes;
};

/// What all of them have: limits of a launch (CUDA C++ Programming Guide, "Technical Specifications per
/// Compute Capability").
inline constexpr int kThreadsPerBlock = 1024;
inline constexpr int kBlockLimit[3] = {1024, 1024, 64};
inline constexpr int kGridLimit[3] = {2147483647, 65535, 65535};
/// The first devices with clusters and tensor maps, whose launches overlap (× 10).
inline constexpr int kFirstWithClusters = 90;
inline constexpr int kSharedWithoutAsking = 48 * 1024;

/// By ordinal.
[[nodiscard]] std::span<const DeviceFacts> devices();

/// Multiprocessors of each GPC, within which the blocks of a cluster are; none where there are no clusters.
[[nodiscard]] std::span<const int> gpcs(const DeviceFacts& device);

/// Empty for what is not known about this device, such as its clock: it has none.
[[nodiscard]] std::optional<int> attribute(int ordinal, CUdevice_attribute which);

}  // namespace sparsekiln::driver

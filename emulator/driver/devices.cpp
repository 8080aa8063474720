#include "emulator/driver/devices.h"

#include <utility>

namespace sparsekiln::driver {
namespace {

constexpr int kKiB = 1024;
constexpr int kMiB = 1024 * 1024;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// Per architecture: CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability"
// (threads, blocks and shared memory of a multiprocessor; what the system reserves of a block's is said under
// "Shared Memory" of 8.x). Per part: NVIDIA's data sheets and white papers (T4, H100 SXM, A100 80 GB, RTX
// 3090, RTX 4090, B200, RTX 5090).
constexpr DeviceFacts kDevices[] = {
    {"Sparsekiln emulator (sm_90)", 90, 132, 2048, 32, 228 * kKiB, 227 * kKiB, kKiB, 50 * kMiB, 5120,
     80 * kGiB},
    {"Sparsekiln emulator (sm_75)", 75, 40, 1024, 16, 64 * kKiB, 64 * kKiB, 0, 4 * kMiB, 256, 16 * kGiB},
    {"Sparsekiln emulator (sm_80)", 80, 108, 2048, 32, 164 * kKiB, 163 * kKiB, kKiB, 40 * kMiB, 5120,
     80 * kGiB},
    {"Sparsekiln emulator (sm_86)", 86, 82, 1536, 16, 100 * kKiB, 99 * kKiB, kKiB, 6 * kMiB, 384, 24 * kGiB},
    {"Sparsekiln emulator (sm_89)", 89, 128, 1536, 24, 100 * kKiB, 99 * kKiB, kKiB, 72 * kMiB, 384,
     24 * kGiB},
    {"Sparsekiln emulator (sm_100)", 100, 148, 2048, 32, 228 * kKiB, 227 * kKiB, kKiB, 126 * kMiB, 8192,
     180 * kGiB},
    {"Sparsekiln emulator (sm_120)", 120, 170, 1536, 24, 100 * kKiB, 99 * kKiB, kKiB, 96 * kMiB, 512,
     32 * kGiB},
};

// How many multiprocessors of each GPC are in use is not documented, and differs from part to part. These are
// of eight GPCs of at most 18 (white paper of the H100), and hold 30 clusters of four, as many as the driver
// of an H100 admitted; the others, of eight GPCs and of twelve, are as even as pairs of multiprocessors can
// be.
constexpr int kGpcsOf90[] = {18, 18, 18, 18, 16, 16, 14, 14};
constexpr int kGpcsOf100[] = {20, 20, 18, 18, 18, 18, 18, 18};
constexpr int kGpcsOf120[] = {16, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14};

}  // namespace

std::span<const DeviceFacts> devices() { return kDevices; }

std::span<const int> gpcs(const DeviceFacts& device) {
  switch (device.compute_capability) {
    case 90:
      return kGpcsOf90;
    case 100:
      return kGpcsOf100;
    case 120:
      return kGpcsOf120;
    default:
      return {};
  }
}

std::optional<int> attribute(int ordinal, CUdevice_attribute which) {
  const DeviceFacts& device = kDevices[ordinal];
  const int from_clusters_on = device.compute_capability >= kFirstWithClusters ? 1 : 0;
  const std::pair<CUdevice_attribute, int> known[] = {
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kThreadsPerBlock},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, kBlockLimit[0]},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, kBlockLimit[1]},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, kBlockLimit[2]},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, kGridLimit[0]},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, kGridLimit[1]},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, kGridLimit[2]},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, kSharedWithoutAsking},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device.shared_per_block_by_asking},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device.shared_per_multiprocessor},
      {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, device.shared_reserved_per_block},
      {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 * kKiB},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 64 * kKiB},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 64 * kKiB},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device.multiprocessors},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device.threads_per_multiprocessor},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, device.blocks_per_multiprocessor},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device.l2_bytes},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device.memory_bus_bits},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device.compute_capability / 10},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device.compute_capability % 10},
      {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, ordinal + 1},
      {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, from_clusters_on},
      {CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, from_clusters_on},
      {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
      {CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, 0},
      {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
      {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 0},
      {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 0},
      {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 0},
      {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 0},
      {CU_DEVICE_ATTRIBUTE_TCC_DRIVER, 0},
      {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0},
      {CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD, 0},
      {CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 0},
      {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0},
      {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 0},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 0},
      {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 0},
      {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0},
      {CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, 0},
      {CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 0},
      {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0},
      {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 0},
  };
  for (const auto& [attribute, value] : known)
    if (attribute == which) return value;
  return std::nullopt;
}

}  // namespace sparsekiln::driver

#include "emulator/driver/devices.h"

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
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return kThreadsPerBlock;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
      return kBlockLimit[0];
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return kBlockLimit[1];
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return kBlockLimit[2];
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return kGridLimit[0];
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
      return kGridLimit[1];
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return kGridLimit[2];
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return kSharedWithoutAsking;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return device.shared_per_block_by_asking;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return device.shared_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return device.shared_reserved_per_block;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      return 64 * kKiB;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return 64 * kKiB;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return device.multiprocessors;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return device.threads_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return device.blocks_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return device.l2_bytes;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return device.memory_bus_bits;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return device.compute_capability / 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return device.compute_capability % 10;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return ordinal + 1;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      return 2147483647;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      return CU_COMPUTEMODE_DEFAULT;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED:
      return device.compute_capability >= kFirstWithClusters ? 1 : 0;
    // What this driver does not have.
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
    case CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT:
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
    case CU_DEVICE_ATTRIBUTE_TCC_DRIVER:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD:
    case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE:
    case CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
      return 0;
    default:
      return std::nullopt;
  }
}

}  // namespace sparsekiln::driver

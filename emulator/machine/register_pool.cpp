#include "emulator/machine/register_pool.h"

#include <algorithm>

namespace sparsekiln::emulator {
namespace {

constexpr std::uint32_t kOfMultiprocessor = 65536;
constexpr std::uint32_t kMost = 255;  ///< of a thread, that ptxas uses
constexpr std::uint32_t kStep = 8;
constexpr std::uint32_t kWarpThreads = 32;

std::uint32_t threads_of(const ptx::Function& function) {
  const std::uint32_t(&required)[3] = function.required_threads;
  return required[0] != 0 ? required[0] * required[1] * required[2] : function.max_threads;
}

}  // namespace

std::uint32_t registers_at_start(const ptx::Function& function) {
  const std::uint64_t threads = (threads_of(function) + kWarpThreads - 1) / kWarpThreads * kWarpThreads;
  const std::uint64_t resident = threads * function.min_blocks;
  if (resident == 0 && function.max_registers == 0) return 0;
  std::uint64_t registers = kMost;
  if (resident != 0) registers = std::min(registers, kOfMultiprocessor / resident / kStep * kStep);
  if (function.max_registers != 0) registers = std::min<std::uint64_t>(registers, function.max_registers);
  return static_cast<std::uint32_t>((registers + kStep - 1) / kStep * kStep);
}

void RegisterPool::start(std::uint32_t warps_of_block, std::uint32_t registers) {
  free = 0;
  warps.assign(registers == 0 ? 0 : warps_of_block, {.has = registers});
}

}  // namespace sparsekiln::emulator

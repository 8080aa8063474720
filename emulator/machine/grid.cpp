#include "emulator/machine/grid.h"

#include <algorithm>

#include "emulator/machine/footprint.h"
#include "emulator/machine/report.h"
#include "emulator/machine/shadow.h"

namespace sparsekiln::emulator {
namespace {

std::uint32_t product(const std::uint32_t (&sizes)[3]) {
  const std::uint64_t plane = std::uint64_t{sizes[0]} * sizes[1];
  if (plane > 0xffffffffu || plane * sizes[2] > 0xffffffffu)
    throw Fault(FaultKind::invalid_operation,
                "invalid operation: a grid of 2^32 blocks or more is not implemented");
  return static_cast<std::uint32_t>(plane * sizes[2]);
}

void place(std::uint32_t number, const std::uint32_t (&sizes)[3], std::uint32_t (&at)[3]) {
  at[0] = number % sizes[0];
  at[1] = number / sizes[0] % sizes[1];
  at[2] = number / sizes[0] / sizes[1];
}

}  // namespace

Grid::Grid(const LaunchRequest& launch)
    : request(launch),
      program(*launch.program),
      checks(launch.checks),
      stamp(static_cast<std::uint32_t>(launch.number % 0xffffffffu) + 1),
      blocks(product(launch.grid)),
      threads(product(launch.block)),
      warps((threads + kLanes - 1) / kLanes),
      shared_bytes(program.shared_bytes + launch.dynamic_shared_bytes),
      local_bytes((program.local_bytes + kCellBytes - 1) / kCellBytes * kCellBytes),
      memory(launch.memory->sorted()) {
  if (request.footprint == nullptr) return;
  for (Allocation* allocation : memory)
    if (!allocation->constant) allocation->footprint = &request.footprint->add(*allocation);
}

Grid::~Grid() {
  for (Allocation* allocation : memory) allocation->footprint = nullptr;
}

Allocation* Grid::find(std::uint64_t address) const {
  const auto after = std::upper_bound(memory.begin(), memory.end(), address,
                                      [](std::uint64_t at, const Allocation* a) { return at < a->address; });
  if (after == memory.begin()) return nullptr;
  Allocation* const allocation = *std::prev(after);
  return address - allocation->address < allocation->bytes ? allocation : nullptr;
}

std::string Grid::whereabouts(std::uint64_t address, bool constant) const {
  const auto named = [](const Allocation& allocation) {
    return (allocation.name.empty() ? "the allocation" : allocation.name) + std::string(" of ") +
           std::to_string(allocation.bytes) + " bytes at " + hex(allocation.address);
  };
  const Allocation* below = nullptr;
  const Allocation* above = nullptr;
  for (const Allocation* allocation : memory) {
    if (allocation->constant != constant) continue;
    if (allocation->address <= address) below = allocation;
    if (allocation->address > address && above == nullptr) above = allocation;
  }
  const std::string where = constant ? " of constant memory" : " of global memory";
  const std::uint64_t past = below == nullptr ? ~std::uint64_t{0} : address - below->address;
  if (below != nullptr && past < below->bytes) return ", the last of them beyond the end of " + named(*below);
  const std::uint64_t behind = below == nullptr ? past : past - below->bytes;
  const std::uint64_t before = above == nullptr ? ~std::uint64_t{0} : above->address - address;
  constexpr std::uint64_t kNear = std::uint64_t{1} << 40;
  if (std::min(behind, before) > kNear) return where + ", where nothing is";
  if (before < behind) return ", " + std::to_string(before) + " bytes before " + named(*above);
  return ", " + std::to_string(behind) + " bytes after " + named(*below);
}

std::uint32_t Grid::block_of(std::uint32_t cluster, std::uint32_t rank) const {
  const std::uint32_t clusters[3] = {request.grid[0] / request.cluster[0],
                                     request.grid[1] / request.cluster[1],
                                     request.grid[2] / request.cluster[2]};
  std::uint32_t at[3];
  std::uint32_t within[3];
  place(cluster, clusters, at);
  place(rank, request.cluster, within);
  for (int axis = 0; axis < 3; ++axis) at[axis] = at[axis] * request.cluster[axis] + within[axis];
  return at[0] + request.grid[0] * (at[1] + request.grid[1] * at[2]);
}

void Grid::cluster_place(std::uint32_t block, std::uint32_t (&cluster)[3], std::uint32_t (&within)[3]) const {
  std::uint32_t at[3];
  block_place(block, at);
  for (int axis = 0; axis < 3; ++axis) {
    cluster[axis] = at[axis] / request.cluster[axis];
    within[axis] = at[axis] % request.cluster[axis];
  }
}

void Grid::block_place(std::uint32_t block, std::uint32_t (&at)[3]) const { place(block, request.grid, at); }
void Grid::thread_place(std::uint32_t thread, std::uint32_t (&at)[3]) const {
  place(thread, request.block, at);
}

}  // namespace sparsekiln::emulator

#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "emulator/machine/async_operation.h"
#include "emulator/program/program.h"

/// wgmma on its way (PTX ISA 9.7.15), as a block keeps it.
namespace sparsekiln::emulator {

struct MatrixOperation;
/// Computes D of a warp.
using MatrixProduct = void (*)(Warp& warp, const MatrixOperation& operation);

inline constexpr std::uint32_t kWarpgroupWarps = 4;

/// One wgmma.mma_async that a warp has issued.
struct MatrixOperation {
  const Instruction* instruction = nullptr;
  MatrixProduct run = nullptr;
  std::uint32_t group = 0;
  std::uint64_t a = 0;  ///< descriptors
  std::uint64_t b = 0;
  bool accumulates = true;                                            ///< scale-d
  std::array<std::array<std::uint32_t, kLanes>, 4> a_registers = {};  ///< where A is not in memory
};

/// A register of Program::async_registers.
struct AsyncRegister {
  std::uint32_t accessed = 0;  ///< number of wgmma.fence before the last access by another instruction
  std::uint32_t group = 0;     ///< that ends the last access by a wgmma
  std::uint32_t fenced = 0;    ///< number of wgmma.fence before that access
  std::uint32_t shape = 0;     ///< of that wgmma; 0: none; kFragment: the register is one of A
  std::uint32_t pc = 0;        ///< of that wgmma
  bool copied = false;         ///< the register is another name of the one that the wgmma accesses

  static constexpr std::uint32_t kFragment = 0xffffffffu;
};

/// The wgmmas of one warp.
struct WarpMatrix {
  std::vector<MatrixOperation> queued;  ///< those that are not run yet
  std::uint32_t fences = 0;
  std::uint32_t committed = 0;  ///< groups
  std::uint32_t awaited = 0;    ///< groups whose end the warp knows of
  bool suspended = false;       ///< it waits for a group that another warp has not committed
  std::vector<AsyncRegister> registers;
};

/// What all warps of a warpgroup must execute alike.
struct WarpgroupStep {
  std::uint32_t pc = 0;
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  bool accumulates = false;
  std::vector<SharedRange> columns = {};  ///< that hold B: once the first warp has found out
};
struct WarpgroupSteps {
  std::deque<WarpgroupStep> steps;  ///< those that some warp has not reached, and the last that all have
  std::uint64_t first = 0;          ///< number of the first of them
  std::array<std::uint64_t, kWarpgroupWarps> executed = {};  ///< by warp
};

/// The wgmmas of one block.
struct BlockMatrix {
  std::vector<WarpMatrix> warps;
  std::vector<WarpgroupSteps> groups;

  void start(std::uint32_t warps_of_block, std::uint32_t registers) {
    if (registers == 0) return;
    warps.resize(warps_of_block);
    groups.assign((warps_of_block + kWarpgroupWarps - 1) / kWarpgroupWarps, {});
    for (WarpMatrix& warp : warps) {
      warp.queued.clear();
      warp.fences = warp.committed = warp.awaited = 0;
      warp.suspended = false;
      warp.registers.assign(registers, {});
    }
  }
};

}  // namespace sparsekiln::emulator

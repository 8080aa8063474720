#pragma once

#include <cstdint>
#include <vector>

#include "emulator/ptx/module.h"

namespace sparsekiln::emulator {

/// The registers of a block's warps, and those that no warp has (PTX ISA 9.7.19.5, setmaxnreg). A number of
/// registers is that of each thread of a warp.
struct RegisterPool {
  struct OfWarp {
    std::uint32_t has = 0;
    std::uint32_t wants = 0;     ///< waits for as many; 0: does not wait
    std::uint32_t executed = 0;  ///< setmaxnreg instructions
    std::uint32_t pc = 0;        ///< of the last
  };
  std::vector<OfWarp> warps;  ///< empty: how many there are is not known, and setmaxnreg has no effect
  std::uint32_t free = 0;

  void start(std::uint32_t warps_of_block, std::uint32_t registers);
};

/// Registers of a thread when a kernel starts, where the PTX says so for setmaxnreg: `.maxnreg`, or as many
/// as
/// `.minnctapersm` blocks of `.maxntid` threads can have of the 65,536 of a multiprocessor, in steps of 8, at
/// most 255; the less of both. 0: it does not; ptxas ignores setmaxnreg then (C7508). A warp gets them in
/// steps of 8.
[[nodiscard]] std::uint32_t registers_at_start(const ptx::Function& function);

}  // namespace sparsekiln::emulator

#pragma once

#include "emulator/program/layout.h"
#include "emulator/program/program.h"
#include "emulator/ptx/module.h"

namespace sparsekiln::emulator {

/// Makes a kernel ready: every instruction is decoded by its family, branches get the place where their lanes
/// join again, virtual registers get rows. `addresses` has the module's global and constant variables; those
/// of shared and local memory are laid out here. Throws ptx::Error at the first instruction or modifier that
/// is not implemented exactly.
[[nodiscard]] Program decode(const ptx::Module& module, const ptx::Function& function,
                             const Addresses& addresses);

}  // namespace sparsekiln::emulator

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "emulator/ptx/module.h"

namespace sparsekiln::emulator {

/// Where the variables of a module lie, by name: 64-bit for global and constant memory, offsets for shared
/// and local. The addresses are those that a program sees in that space.
using Addresses = std::map<std::string, std::uint64_t, std::less<>>;

/// Where each variable that a kernel may name lies, in the space it is in, and what that takes.
struct Layout {
  Addresses addresses;
  std::uint32_t shared_bytes = 0;  ///< from kSharedBase; dynamic shared memory begins after them
  std::uint32_t shared_alignment = 16;
  std::uint32_t local_bytes = 0;
  std::uint32_t param_bytes = 0;
};

/// Shared variables of the module take space only in kernels that name them. Those that are external all lie
/// where dynamic shared memory begins (PTX ISA 5.1.7). Throws ptx::Error where memory of one space would pass
/// 2³¹ bytes.
[[nodiscard]] Layout lay_out(const ptx::Module& module, const ptx::Function& function,
                             const Addresses& addresses);

}  // namespace sparsekiln::emulator

#pragma once

#include <string>
#include <string_view>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

namespace sparsekiln {

/// The command that makes a pack of one kernel: "sparsekiln precompile FILE --block 32 … --arch sm_90:132 -o
/// kernels.pack". Options that have their default are left out. `file` stands where the layout's file goes,
/// quoted for a shell if it has to be; `config` is empty for that of the default plan, and `driver_version`
/// is 0 where the driver that will load the pack is not known.
[[nodiscard]] std::string precompile_command(const Problem& problem, const Target& target, bool attached,
                                             std::string_view config, std::string_view file,
                                             int driver_version = 0);

}  // namespace sparsekiln

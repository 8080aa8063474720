#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <sparsekiln/binary.h>

namespace sparsekiln::cuda {

/// What one kernel of a cubin takes: registers, shared memory, stack and code size from the ELF's sections
/// and attributes, spills from ptxas's report in `log`. Throws `internal` where the kernel is not in the
/// cubin.
[[nodiscard]] Resources read_resources(std::span<const std::byte> cubin, std::string_view kernel,
                                       std::string_view log);

/// What an entry takes whose passes are launched one after another: the most of any pass, and the code of
/// all.
[[nodiscard]] Resources combined(const Resources& a, const Resources& b);

}  // namespace sparsekiln::cuda

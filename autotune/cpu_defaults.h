#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

namespace sparsekiln::cpu {

/// The config of the cpu target for a batch of `n` where nothing was measured: the same for every layout and
/// block.
[[nodiscard]] Config default_config(const Target& target, std::int64_t n);

}  // namespace sparsekiln::cpu

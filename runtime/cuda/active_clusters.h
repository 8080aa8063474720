#pragma once

#include <cstdint>

#include "runtime/cuda/context.h"

namespace sparsekiln::cuda {

/// How many clusters of `ctas` CTAs are on the device at once where each CTA takes a multiprocessor for
/// itself; which may be fewer than it has multiprocessors for, since those of a cluster are in one GPC. As
/// the driver says, which is given a small kernel for that; 0 where the device has no clusters or the driver
/// does not say.
[[nodiscard]] std::int32_t active_clusters(const Context& context, std::int32_t ctas);

}  // namespace sparsekiln::cuda

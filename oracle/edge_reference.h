#pragma once

#include <cstdint>
#include <vector>

#include <sparsekiln/convolution.h>

namespace sparsekiln {

/// What EdgeSituations::of_position is, by its definition: tap by tap at each position, without the runs of
/// compiler/edge_runs.h.
[[nodiscard]] std::vector<std::int32_t> edge_reference(const Convolution& convolution);

}  // namespace sparsekiln

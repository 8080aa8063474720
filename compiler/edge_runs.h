#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <sparsekiln/convolution.h>
#include <sparsekiln/problem.h>

namespace sparsekiln {

/// The edge situations of a convolution (EdgeSituations) in a form whose size does not grow with the image:
/// which taps are outside of x changes from position to position near its ends alone. A *run* is positions of
/// one dimension, next to each other, that are the same in this.
struct EdgeRuns {
  /// Where the runs of each dimension of y begin, in ascending order, without the first one, which begins
  /// at 0.
  std::array<std::vector<std::int32_t>, 3> begins;
  /// By runs: [runs of depth][of height][of width].
  std::vector<std::int32_t> situations;
  std::int32_t count = 0;  ///< of situations

  [[nodiscard]] std::int32_t runs(std::size_t dimension) const {
    return static_cast<std::int32_t>(begins[dimension].size()) + 1;
  }
};

/// Throws `invalid_argument` where there are too many.
[[nodiscard]] EdgeRuns edge_runs(const Convolution& convolution);
/// The same, also for what is no convolution.
[[nodiscard]] EdgeRuns checked_edge_runs(const Convolution& convolution);

/// Writes the situation of each position of an image of y, in row-major order.
void write_edge_situations(const Convolution& convolution, const EdgeRuns& runs, std::int32_t* of_position);

/// The rows of edge_gain and edge_bias; 0 without.
[[nodiscard]] std::int32_t count_edge_situations(const Computation& what);

}  // namespace sparsekiln

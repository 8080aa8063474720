#pragma once

#include <cstdint>
#include <vector>

#include <sparsekiln/problem.h>

namespace sparsekiln {

/// What decides where ranges of a batch end.
enum class BatchOf : std::uint8_t {
  rows,
  rows_from_one,  ///< rows, of which up to four have loops of their own
  images,         ///< each of which fills tiles by itself
};

/// The ranges of n that a plan has a config for each of, by their ends, the last of which is the bound. A
/// fixed batch has one. They end, up to 64, so that a tile is nearly full, and above so that the batch tiles
/// of the smallest n of a range, for which it is scheduled, are not far fewer than those of the largest.
[[nodiscard]] inline std::vector<std::int64_t> range_ends(Batch batch, BatchOf of = BatchOf::rows) {
  std::vector<std::int64_t> inner = of == BatchOf::images
                                        ? std::vector<std::int64_t>{1, 4, 16, 64, 256, 1024}
                                        : std::vector<std::int64_t>{8, 16, 32, 64, 256, 1024};
  if (of == BatchOf::rows_from_one) inner.insert(inner.begin(), {1, 2, 4});
  std::vector<std::int64_t> ends;
  if (batch.dynamic())
    for (const std::int64_t end : inner)
      if (end < batch.bound()) ends.push_back(end);
  ends.push_back(batch.bound());
  return ends;
}

/// The smallest n of the range that ends at `end`: of a fixed batch, `end`.
[[nodiscard]] inline std::int64_t range_begin(Batch batch, std::int64_t end, BatchOf of = BatchOf::rows) {
  if (!batch.dynamic()) return end;
  std::int64_t begin = 1;
  for (const std::int64_t other : range_ends(batch, of))
    if (other < end) begin = other + 1;
  return begin;
}

}  // namespace sparsekiln

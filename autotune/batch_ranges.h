#pragma once

#include <cstdint>
#include <vector>

#include <sparsekiln/problem.h>

namespace sparsekiln {

/// The ranges of n that a plan has a config for each of, by their ends, the last of which is the bound. A
/// fixed batch has one. They end, up to 64, so that a tile is nearly full, and above so that the batch tiles
/// of the smallest n of a range, for which it is scheduled, are not far fewer than those of the largest.
/// `images`: an entry of the batch is an image, which fills tiles by itself. `few`: up to four batch rows
/// have ranges of their own.
[[nodiscard]] inline std::vector<std::int64_t> range_ends(Batch batch, bool images = false,
                                                          bool few = false) {
  std::vector<std::int64_t> inner = images ? std::vector<std::int64_t>{1, 4, 16, 64, 256, 1024}
                                           : std::vector<std::int64_t>{8, 16, 32, 64, 256, 1024};
  if (few) inner.insert(inner.begin(), {1, 2, 4});
  std::vector<std::int64_t> ends;
  if (batch.dynamic())
    for (const std::int64_t end : inner)
      if (end < batch.bound()) ends.push_back(end);
  ends.push_back(batch.bound());
  return ends;
}

/// The smallest n of the range that ends at `end`: of a fixed batch, `end`.
[[nodiscard]] inline std::int64_t range_begin(Batch batch, std::int64_t end, bool images = false) {
  if (!batch.dynamic()) return end;
  std::int64_t begin = 1;
  for (const std::int64_t other : range_ends(batch, images))
    if (other < end) begin = other + 1;
  return begin;
}

}  // namespace sparsekiln

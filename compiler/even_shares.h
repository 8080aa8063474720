#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sparsekiln {

/// Which pieces of work each of so many workers gets, in ascending order, where pieces have these costs, of 1
/// and more: the longest first to the worker that has least (Graham 1969), ties to the lower piece and the
/// lower worker. Then the worker that has most exchanges a piece for a shorter one of another worker, as long
/// as that leaves both with less than it had. It exchanges none where there are more than 512: shares of many
/// pieces are even.
[[nodiscard]] std::vector<std::vector<std::int32_t>> even_shares(std::span<const std::int64_t> costs,
                                                                 std::int32_t workers);

}  // namespace sparsekiln

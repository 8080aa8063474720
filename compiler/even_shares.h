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

/// What a CTA has at most after so many rounds, in each of which it does what one worker has. CTAs change
/// places in every other round, the first with the last: that which does what worker w has does then what
/// worker W - 1 - w has. `costs`: of the W workers, most first.
[[nodiscard]] std::int64_t most_after_rounds(std::span<const std::int64_t> costs, std::int64_t rounds);

}  // namespace sparsekiln

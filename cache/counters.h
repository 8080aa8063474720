#pragma once

#include <cstdint>

namespace sparsekiln::cache {

/// Counts of what a store has done: in this process (Store::counters), or in all processes so far
/// (Store::totals).
struct Counters {
  std::uint64_t hits = 0;         ///< requests answered by the store
  std::uint64_t misses = 0;       ///< requests that it could not answer
  std::uint64_t stores = 0;       ///< entries published on disk
  std::uint64_t quarantined = 0;  ///< bad files set aside
  std::uint64_t failures = 0;     ///< writes that did not reach the disk

  friend bool operator==(const Counters&, const Counters&) = default;
};
[[nodiscard]] Counters operator+(const Counters& a, const Counters& b);
/// The difference since `before`.
[[nodiscard]] Counters operator-(const Counters& now, const Counters& before);

}  // namespace sparsekiln::cache

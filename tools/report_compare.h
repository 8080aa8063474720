#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/answer.h"
#include "tools/report_entry.h"

namespace sparsekiln::tools {

/// How B's best time stands to A's.
enum class Change : std::uint8_t {
  same,        ///< within kTie, or their spans from the 20th to the 80th percentile overlap
  faster,      ///< neither
  regression,  ///< neither, and slower
  unlike,      ///< one is measured, the other modelled: not judged
  untimed,     ///< one of them has no time
  only_a,
  only_b,
};
[[nodiscard]] std::string_view name(Change change);

/// The same problem and n on both sides; of what only one side has, the other is null.
struct ComparedPair {
  const ReportEntry* a = nullptr;
  const ReportEntry* b = nullptr;
  std::optional<double> ratio;  ///< B's median over A's: above 1 B is slower
  Change check_result = Change::untimed;
};

struct Comparison {
  std::vector<ComparedPair> pairs;  ///< in A's order, then what only B has
  [[nodiscard]] std::int64_t count(Change change) const;
};

/// Pairs entries of the same problem: of the same environment first, then of any, then for another target
/// (another machine). Each is in one pair. Points into the entries.
[[nodiscard]] Comparison compare(const std::vector<ReportEntry>& a, const std::vector<ReportEntry>& b);

[[nodiscard]] std::string comparison_text(const Comparison& comparison);
/// `compared`, and how many pairs have each result: docs/report.md names the keys.
[[nodiscard]] Json describe(const Comparison& comparison);

}  // namespace sparsekiln::tools

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "autotune/record.h"

namespace sparsekiln {

/// One thing that tuning found out. A record is the sum of its events: what is kept of a run that is killed.
struct Event {
  enum class Kind : std::uint8_t {
    settled,  ///< what became of a candidate: all of it but its samples
    sample,   ///< `us`, of the candidate
    finals,   ///< new finals begin; what was taken in the last ones counts as samples from now on
    final,    ///< `us`, of the candidate, in the finals
  };
  Kind kind = Kind::settled;
  std::int64_t n = 0;   ///< of the contest
  Candidate candidate;  ///< of samples the config alone; of `finals` nothing
  double us = 0;
  double relative = 1;  ///< of samples: `us` over the default's of the same round
};

/// Into the contest of its n. An event of a config that the contest does not have adds it.
void apply(const Event& event, Contest& contest);

/// One line of JSON, without a newline.
[[nodiscard]] std::string to_json(const Event& event);
/// Reads it back, trusting nothing. Throws Error(`invalid_argument`).
[[nodiscard]] Event parse_event(std::string_view json);

}  // namespace sparsekiln

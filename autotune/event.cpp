#include "autotune/event.h"

#include <utility>

namespace sparsekiln {
namespace {

Candidate& candidate_of(Contest& contest, const Config& config) {
  if (Candidate* const found = contest.find(config)) return *found;
  contest.candidates.push_back({.config = config});
  return contest.candidates.back();
}

}  // namespace

void apply(const Event& event, Contest& contest) {
  if (event.kind == Event::Kind::finals) {
    for (Candidate& candidate : contest.candidates) {
      candidate.samples_us.insert(candidate.samples_us.end(), candidate.final_us.begin(),
                                  candidate.final_us.end());
      candidate.final_us.clear();
    }
    return;
  }
  Candidate& candidate = candidate_of(contest, event.candidate.config);
  if (event.kind == Event::Kind::sample) candidate.samples_us.push_back(event.us);
  if (event.kind == Event::Kind::final) candidate.final_us.push_back(event.us);
  if (event.kind != Event::Kind::settled) return;
  Candidate settled = event.candidate;
  settled.samples_us = std::move(candidate.samples_us);
  settled.final_us = std::move(candidate.final_us);
  candidate = std::move(settled);
}

}  // namespace sparsekiln

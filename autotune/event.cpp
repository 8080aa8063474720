#include "autotune/event.h"

#include <cstddef>
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
    const Candidate* const standard = contest.find(contest.default_config);
    const std::vector<double> reference = standard == nullptr ? std::vector<double>{} : standard->final_us;
    for (Candidate& candidate : contest.candidates) {
      for (std::size_t i = 0; i < candidate.final_us.size(); ++i) {
        candidate.samples_us.push_back(candidate.final_us[i]);
        candidate.relative.push_back(i < reference.size() ? candidate.final_us[i] / reference[i] : 1);
      }
      candidate.final_us.clear();
    }
    return;
  }
  Candidate& candidate = candidate_of(contest, event.candidate.config);
  if (event.kind == Event::Kind::sample) {
    candidate.samples_us.push_back(event.us);
    candidate.relative.push_back(event.relative);
  }
  if (event.kind == Event::Kind::final) candidate.final_us.push_back(event.us);
  if (event.kind != Event::Kind::settled) return;
  Candidate settled = event.candidate;
  settled.samples_us = std::move(candidate.samples_us);
  settled.relative = std::move(candidate.relative);
  settled.final_us = std::move(candidate.final_us);
  candidate = std::move(settled);
}

}  // namespace sparsekiln

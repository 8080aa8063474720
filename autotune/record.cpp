#include "autotune/record.h"

#include <algorithm>

#include <fmt/format.h>

namespace sparsekiln {
namespace {

/// Times of `a` over those of `b`, round by round; without rounds, of all their samples.
Spread ratio(const Candidate& a, const Candidate& b) {
  const std::size_t rounds = std::min(a.final_us.size(), b.final_us.size());
  std::vector<double> ratios;
  for (std::size_t i = 0; i < rounds; ++i) ratios.push_back(a.final_us[i] / b.final_us[i]);
  if (!ratios.empty()) return spread(std::move(ratios));
  const Spread time_a = *a.time_us();
  const Spread time_b = *b.time_us();
  return {time_a.median / time_b.median, time_a.p20 / time_b.p80, time_a.p80 / time_b.p20};
}

/// Whether `a`, which is no faster, cannot be told from `b`.
bool ties(const Candidate& a, const Candidate& b) {
  const Spread of = ratio(a, b);
  return of.median <= 1 + kTie || of.p20 <= 1;
}

/// Those whose times are worth the most: of the finals, else measured, else modelled.
std::vector<const Candidate*> contenders(const Contest& contest) {
  std::vector<const Candidate*> timed;
  for (const Candidate& candidate : contest.candidates)
    if (candidate.time_us()) timed.push_back(&candidate);
  const auto keep_if_any = [&](auto worth) {
    if (std::any_of(timed.begin(), timed.end(), worth))
      std::erase_if(timed, [&](const Candidate* one) { return !worth(one); });
  };
  keep_if_any([](const Candidate* one) { return one->outcome == Outcome::measured; });
  keep_if_any([](const Candidate* one) { return !one->final_us.empty(); });
  return timed;
}

double median_of(const Candidate* candidate) { return candidate->time_us()->median; }

/// The fastest besides `other`; null where there is none.
const Candidate* fastest(const std::vector<const Candidate*>& of, const Candidate* other = nullptr) {
  const Candidate* best = nullptr;
  for (const Candidate* const one : of)
    if (one != other && (best == nullptr || median_of(one) < median_of(best))) best = one;
  return best;
}

}  // namespace

std::string_view name(Outcome outcome) {
  static constexpr std::string_view kNames[] = {"untried", "pruned", "failed", "measured", "modelled"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Outcome::modelled) + 1);
  return kNames[static_cast<std::size_t>(outcome)];
}

std::optional<Spread> Candidate::time_us() const {
  if (outcome == Outcome::measured && !final_us.empty()) return spread(final_us);
  if (outcome == Outcome::measured && !samples_us.empty()) return spread(samples_us);
  if (outcome == Outcome::modelled) return Spread{predicted_us, predicted_us, predicted_us};
  return std::nullopt;
}

const Candidate* Contest::find(const Config& config) const {
  const auto at = std::find_if(candidates.begin(), candidates.end(),
                               [&](const Candidate& candidate) { return candidate.config == config; });
  return at == candidates.end() ? nullptr : &*at;
}

Candidate* Contest::find(const Config& config) {
  return const_cast<Candidate*>(static_cast<const Contest&>(*this).find(config));
}

Standing standing(const Contest& contest) {
  Standing standing;
  const std::vector<const Candidate*> all = contenders(contest);
  if (all.empty()) return standing;
  const Candidate* const first = fastest(all);
  const auto tied = [&](const Candidate* one) { return one == first || ties(*one, *first); };
  // Noise that hides a difference is no leave to choose what is slower than not to tune.
  const Candidate* const standard = contest.find(contest.default_config);
  const bool comparable = std::find(all.begin(), all.end(), standard) != all.end();
  const auto no_loss = [&](const Candidate* one) {
    return !comparable ||
           (median_of(one) <= median_of(standard) * (1 + kTie) && ratio(*one, *standard).median <= 1 + kTie);
  };
  standing.best = *std::find_if(all.begin(), all.end(), [&](const Candidate* one) {
    return one == first || (tied(one) && no_loss(one));
  });
  standing.tie = std::count_if(all.begin(), all.end(), tied) > 1;
  standing.second = fastest(all, standing.best);
  standing.measured = standing.best->outcome == Outcome::measured;
  if (standing.second != nullptr) standing.margin = median_of(standing.second) / median_of(standing.best) - 1;
  if (standard != nullptr && standard->time_us()) {
    standing.standard = standard;
    standing.speedup = median_of(standard) / median_of(standing.best);
  }
  return standing;
}

std::string Environment::to_string() const {
  std::string text = fmt::format("{}, {} workers", device, workers);
  if (cache_bytes != 0)
    text += fmt::format(", {:.1f} MiB cache", static_cast<double>(cache_bytes) / (1 << 20));
  if (!driver.empty()) text += ", driver " + driver;
  return text + ", " + policy;
}

std::string_view Record::field(std::string_view name) const {
  for (const auto& [field, value] : problem)
    if (field == name) return value;
  return {};
}

bool Record::measured() const {
  return !contests.empty() && std::all_of(contests.begin(), contests.end(),
                                          [](const Contest& contest) { return standing(contest).measured; });
}

Plan Record::plan() const {
  Plan plan;
  for (const Contest& contest : contests) {
    const Candidate* const best = standing(contest).best;
    const Candidate* const standard = contest.find(contest.default_config);
    const bool open = best == nullptr || (standard != nullptr && standard->outcome == Outcome::untried);
    plan.push_back({contest.n, open ? contest.default_config : best->config});
  }
  return plan;
}

}  // namespace sparsekiln

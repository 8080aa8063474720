#include "autotune/tuner.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "autotune/prediction.h"
#include "autotune/space.h"

namespace sparsekiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kNoChance = 3;  ///< times the best prediction: not worth a compile
constexpr std::size_t kMostCandidates = 256;
constexpr std::size_t kBatch = 8;  ///< candidates that are compiled before they are timed
constexpr int kFirstSamples = 3;
constexpr std::size_t kFinalists = 4;  ///< and the default
constexpr int kFewestRounds = 11;
constexpr int kMostRounds = 41;
constexpr double kExplore = 0.6;  ///< of the budget
constexpr double kHalve = 0.75;   ///< the same limit, from the beginning

/// The common part of reasons that differ in their numbers; a config quoted in front is left out.
std::string shape_of(std::string reason) {
  if (const std::size_t end = reason.find("': "); reason.starts_with("config '") && end != std::string::npos)
    reason.erase(0, end + 3);
  std::string shape;
  for (const char c : reason) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit)
      shape += c;
    else if (shape.empty() || shape.back() != '#')
      shape += '#';
  }
  return shape;
}

class Groups {
 public:
  void add(const Config& config, const std::string& reason) {
    const auto [seen, fresh] = seen_.try_emplace(reason, 0);
    if (fresh) seen->second = place_of(reason, config);
    ++groups_[seen->second].count;
  }
  [[nodiscard]] std::vector<PrunedGroup> take() { return std::move(groups_); }

 private:
  std::size_t place_of(const std::string& reason, const Config& config) {
    const auto [at, fresh] = places_.try_emplace(shape_of(reason), groups_.size());
    if (fresh) groups_.push_back({reason, config, 0});
    return at->second;
  }
  std::unordered_map<std::string, std::size_t> seen_;  ///< most reasons come again word for word
  std::unordered_map<std::string, std::size_t> places_;
  std::vector<PrunedGroup> groups_;
};

/// Nothing was tried of it, or a run was killed between its check and its first sample.
bool is_open(const Candidate& candidate) {
  return candidate.outcome == Outcome::untried ||
         (candidate.outcome == Outcome::measured && candidate.samples_us.empty() &&
          candidate.final_us.empty());
}

bool spills(const Resources& resources) {
  return resources.spill_load_bytes > 0 || resources.spill_store_bytes > 0;
}

class Tuner {
 public:
  Tuner(Contest& contest, Workbench& bench, const TuneLimits& limits,
        const std::function<void(const Event&)>& note)
      : contest_(contest), bench_(bench), limits_(limits), note_(note) {}

  void run() {
    explore();
    if (bench_.measures()) {
      halve();
      finals();
    }
    for (const auto& [config, binary] : ready_) bench_.drop(contest_.candidates[config].config);
  }

 private:
  using Index = std::size_t;  // of a candidate; candidates are never taken away

  [[nodiscard]] bool stopped() const { return limits_.stop && limits_.stop(); }
  [[nodiscard]] bool past(double share) const {
    return stopped() || Clock::now() - begin_ > share * limits_.budget;
  }

  void emit(Event event) {
    event.n = contest_.n;
    apply(event, contest_);
    if (note_) note_(event);
  }
  void settle(Index index, Outcome outcome, std::string reason) {
    Event event;
    event.candidate = contest_.candidates[index];
    event.candidate.samples_us.clear();
    event.candidate.relative.clear();
    event.candidate.final_us.clear();
    event.candidate.outcome = outcome;
    event.candidate.reason = std::move(reason);
    emit(std::move(event));
  }
  void fail(Index index, std::string reason) {
    settle(index, Outcome::failed, std::move(reason));
    ready_.erase(index);
    bench_.drop(contest_.candidates[index].config);
  }

  /// Takes one sample, and answers with it; a candidate that cannot be launched fails. `reference`: the
  /// default's of the same round; 0 where it has none.
  double sample(Index index, Event::Kind kind, double reference) {
    Event event;
    event.kind = kind;
    event.candidate.config = contest_.candidates[index].config;
    try {
      event.us = bench_.sample(event.candidate.config);
    } catch (const Error& error) {
      fail(index, fmt::format("a launch failed: {}", error.what()));
      return 0;
    }
    const double us = event.us;
    if (reference > 0) event.relative = us / reference;
    emit(std::move(event));
    return us;
  }

  /// One round: a sample of each, the default's first.
  void round(const std::vector<Index>& field) {
    const double reference = has(standard_) ? sample(standard_, Event::Kind::sample, 0) : 0;
    for (const Index index : field)
      if (index != standard_ && has(index)) sample(index, Event::Kind::sample, reference);
  }

  void took(Index index, Workbench::Compiled compiled, std::vector<Index>& to_check) {
    if (compiled.stopped) return;
    Candidate& candidate = contest_.candidates[index];
    candidate.compile_ms = compiled.ms;
    if (compiled.binary == nullptr) return fail(index, std::move(compiled.failure));
    candidate.resources = compiled.binary->entries.front().resources;
    // The default must only compute the right result: it is what users get who do not tune.
    const bool standard = index == standard_;
    if (!standard && spills(candidate.resources))
      return settle(index, Outcome::pruned,
                    fmt::format("it spills: {} bytes stored, {} loaded",
                                candidate.resources.spill_store_bytes, candidate.resources.spill_load_bytes));
    ready_[index] = std::move(compiled.binary);
    to_check.push_back(index);
  }

  /// Whether a candidate that is ready has the very same code and data.
  [[nodiscard]] bool has_twin(Index index) const {
    const Binary& binary = *ready_.at(index);
    for (const auto& [other, ready] : ready_)
      if (other != index && checked_.contains(other) && ready->code == binary.code &&
          ready->data == binary.data && ready->entries == binary.entries)
        return true;
    return false;
  }

  void check(Index index) {
    const Config& config = contest_.candidates[index].config;
    if (index != standard_ && has_twin(index)) {
      settle(index, Outcome::pruned, "the same code as an earlier candidate");
      ready_.erase(index);
      return;
    }
    std::string wrong;
    try {
      wrong = bench_.check(config, ready_.at(index));
    } catch (const Error& error) {
      wrong = error.what();
    }
    if (!wrong.empty()) return fail(index, "its answer is wrong: " + wrong);
    checked_.insert(index);
    settle(index, bench_.measures() ? Outcome::measured : Outcome::modelled, {});
  }

  /// Compiles and checks those that are not ready.
  void prepare(std::span<const Index> candidates) {
    prepare(candidates, [&] { return past(1); });
  }
  void prepare(std::span<const Index> candidates, const std::function<bool()>& over) {
    std::vector<Index> missing;
    std::vector<Config> configs;
    for (const Index index : candidates) {
      if (ready_.contains(index)) continue;
      missing.push_back(index);
      configs.push_back(contest_.candidates[index].config);
    }
    std::vector<Index> to_check;
    bench_.compile(
        configs,
        [&](std::size_t i, Workbench::Compiled compiled) { took(missing[i], std::move(compiled), to_check); },
        over);
    std::sort(to_check.begin(), to_check.end());
    for (const Index index : to_check) {
      if (over()) break;
      check(index);
    }
  }

  [[nodiscard]] bool has(Index index) const { return checked_.contains(index) && ready_.contains(index); }

  void explore() {
    std::vector<Index> untried;
    for (Index i = 0; i < contest_.candidates.size(); ++i)
      if (is_open(contest_.candidates[i])) untried.push_back(i);
    if (untried.empty()) return;
    // The default before all others, whatever the budget: the rounds are held against it.
    if (untried.front() == standard_ || contest_.candidates[standard_].outcome == Outcome::measured)
      prepare(std::span(&standard_, 1), [&] { return stopped(); });
    for (std::size_t at = 0; at < untried.size() && !(at > 0 && past(kExplore)); at += kBatch) {
      const std::vector<Index> batch(
          untried.begin() + static_cast<std::ptrdiff_t>(at),
          untried.begin() + static_cast<std::ptrdiff_t>(std::min(at + kBatch, untried.size())));
      prepare(batch);
      if (!bench_.measures()) continue;
      for (int i = 0; i < kFirstSamples && !stopped(); ++i) round(batch);
    }
  }

  /// Those with samples, the fastest first by what they took relative to the default, or, where that cannot
  /// be launched, by what they took; the default is always among the first `most`.
  [[nodiscard]] std::vector<Index> fastest(std::size_t most) const {
    const bool standard = contest_.candidates[standard_].outcome == Outcome::measured;
    std::vector<std::pair<double, Index>> order;
    for (Index i = 0; i < contest_.candidates.size(); ++i) {
      const Candidate& candidate = contest_.candidates[i];
      const std::vector<double>& times = standard ? candidate.relative : candidate.samples_us;
      if (candidate.outcome != Outcome::measured || times.empty()) continue;
      order.emplace_back(spread(times).median, i);
    }
    std::sort(order.begin(), order.end());
    std::vector<Index> field;
    for (const auto& [us, index] : order)
      if (field.size() < most || index == standard_) field.push_back(index);
    return field;
  }

  void drop_others(const std::vector<Index>& field) {
    for (auto at = ready_.begin(); at != ready_.end();) {
      const bool stays = std::find(field.begin(), field.end(), at->first) != field.end();
      if (!stays) bench_.drop(contest_.candidates[at->first].config);
      at = stays ? std::next(at) : ready_.erase(at);
    }
  }

  void halve() {
    int samples = 2 * kFirstSamples;
    std::size_t most = fastest(contest_.candidates.size()).size();
    while (most > kFinalists && !past(kHalve)) {
      most = std::max(kFinalists, (most + 1) / 2);
      const std::vector<Index> field = fastest(most);
      drop_others(field);
      prepare(field);
      for (int i = 0; i < samples && !past(kHalve); ++i) round(field);
      samples *= 2;
    }
  }

  /// In rounds, each of which begins with another finalist.
  void finals() {
    std::vector<Index> field = fastest(kFinalists);
    drop_others(field);
    prepare(field);
    std::erase_if(field, [&](Index index) { return !has(index); });
    if (field.empty() || stopped()) return;
    Event begin;
    begin.kind = Event::Kind::finals;
    emit(std::move(begin));
    for (int round = 0; round < kMostRounds && (round < kFewestRounds || !past(1)) && !stopped(); ++round)
      for (std::size_t i = 0; i < field.size(); ++i) {
        const Index index = field[(i + static_cast<std::size_t>(round)) % field.size()];
        if (has(index)) sample(index, Event::Kind::final, 0);
      }
  }

  Contest& contest_;
  Workbench& bench_;
  const TuneLimits& limits_;
  const std::function<void(const Event&)>& note_;
  const Clock::time_point begin_ = Clock::now();
  const Index standard_ = 0;  ///< the default, see make_contest
  std::map<Index, std::shared_ptr<const Binary>> ready_;
  std::set<Index> checked_;
};

}  // namespace

Contest make_contest(const Problem& problem, const Target& target, const RangedConfig& chosen,
                     const Part& part) {
  const Floor floor = floor_of(problem, chosen.up_to);
  Contest contest{.n = chosen.up_to,
                  .flops = floor.flops,
                  .bytes = floor.bytes,
                  .floor_us = 0,
                  .default_config = chosen.config,
                  .candidates = {},
                  .pruned = {}};
  Space space = space_of(problem, target, chosen.up_to, part);
  Groups groups;
  for (const RejectedConfig& rejected : space.rejected) groups.add(rejected.config, rejected.reason);

  Pricing pricing(problem, target, part);
  const auto candidate_of = [&](const Config& config) {
    return Candidate{.config = config, .predicted_us = pricing.of(config, chosen.up_to).us};
  };
  std::vector<Candidate> candidates;
  for (const Config& config : space.configs)
    if (config != chosen.config) candidates.push_back(candidate_of(config));
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.predicted_us < b.predicted_us; });
  contest.candidates.push_back(candidate_of(chosen.config));
  const double best = candidates.empty() ? 0 : candidates.front().predicted_us;
  const std::string later = fmt::format("the cost model ranks it after {} others", kMostCandidates);
  const std::string no_chance =
      fmt::format("the cost model gives it over {} times the time of the best", kNoChance);
  for (Candidate& candidate : candidates) {
    if (contest.candidates.size() == kMostCandidates)
      groups.add(candidate.config, later);
    else if (candidate.predicted_us > kNoChance * best)
      groups.add(candidate.config, no_chance);
    else
      contest.candidates.push_back(std::move(candidate));
  }
  contest.pruned = groups.take();
  return contest;
}

Contest merged(Contest fresh, const Contest& earlier, bool same_compiler) {
  for (const Candidate& old : earlier.candidates) {
    if (!same_compiler && old.outcome != Outcome::measured) continue;
    if (Candidate* const same = fresh.find(old.config)) {
      const double predicted = same->predicted_us;
      *same = old;
      same->predicted_us = predicted;
    } else if (old.outcome == Outcome::measured) {
      fresh.candidates.push_back(old);
    }
  }
  if (!same_compiler) {  // its finals were of other code
    Event no_finals;
    no_finals.kind = Event::Kind::finals;
    apply(no_finals, fresh);
  }
  return fresh;
}

bool settled(const Contest& contest) {
  const auto any = [&](auto is) {
    return std::any_of(contest.candidates.begin(), contest.candidates.end(), is);
  };
  if (any(is_open)) return false;
  if (!any([](const Candidate& one) { return one.outcome == Outcome::measured; })) return true;
  return any(
      [](const Candidate& one) { return one.final_us.size() >= static_cast<std::size_t>(kFewestRounds); });
}

void tune(Contest& contest, Workbench& bench, const TuneLimits& limits,
          const std::function<void(const Event&)>& note) {
  Tuner(contest, bench, limits, note).run();
}

}  // namespace sparsekiln

#include "runtime/tune.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "autotune/architecture.h"
#include "autotune/cost_model.h"
#include "autotune/tuner.h"
#include "cache/store.h"
#include "compiler/build.h"
#include "compiler/cuda/emit.h"
#include "compiler/layout_picture.h"
#include "runtime/build.h"
#include "runtime/elapsed.h"
#include "runtime/environment.h"
#include "runtime/records.h"
#ifdef SPARSEKILN_CPU
#include "runtime/cpu/machine_peak.h"
#endif

namespace sparsekiln {
namespace {

constexpr std::int32_t kPictureSide = 64;

LayoutSummary summary_of(const Layout& layout) {
  LayoutSummary summary{layout.rows(), layout.cols(), layout.blocks(), {}};
  if (layout.rows() == 0 || layout.cols() == 0) return summary;
  const Coverage seen =
      coverage(layout, std::min(layout.cols(), kPictureSide), std::min(layout.rows(), kPictureSide));
  for (std::int32_t y = 0; y < seen.height; ++y) {
    std::string row;
    for (std::int32_t x = 0; x < seen.width; ++x) {
      const float share = seen.at(x, y);
      const int shade = share <= 0 ? 0 : std::clamp(static_cast<int>(std::lround(15 * share)), 1, 15);
      row += "0123456789abcdef"[shade];
    }
    summary.picture.push_back(std::move(row));
  }
  return summary;
}

/// Of the machine where there is one that can be asked, else of the usual part of the architecture.
MachinePeak peak_for(const Problem& problem, const Target& target, [[maybe_unused]] double bytes,
                     [[maybe_unused]] bool at_hand) {
#ifdef SPARSEKILN_CPU
  if (target.kind == Target::Kind::cpu && at_hand) {
    const cpu::MeasuredPeak peak = cpu::measure_peak(target, static_cast<std::int64_t>(bytes));
    return {peak.gflops, peak.gbytes, true};
  }
#endif
  return peak_of(problem, target);
}

double floor_us(const Contest& contest, const MachinePeak& peak) {
  if (peak.gflops == 0 || peak.gbytes == 0) return 0;
  return 1e-3 * std::max(contest.flops / peak.gflops, contest.bytes / peak.gbytes);
}

/// Problem, target and device of one run.
class Run {
 public:
  Run(const BuildJob& job, std::string_view asked)
      : problem_(job.problem), target_(job.target), asked_(asked) {
    if (job.pinned || cuda::attached(job.plan))
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("tuning with {}: its config is not chosen by tuning; leave it out",
                              job.pinned ? "a pinned config" : "attached tables"));
    if (problem_.batch.bound() == 0)
      throw Error(ErrorKind::invalid_argument, "tuning for a batch of 0: there is nothing to compute");
    device_ = device_at_hand(target_, asked_);
    store_ = store_in(job.cache_dir);
    const auto environment = environment_of(target_, asked_);
    blank_.problem = problem_fields(problem_, target_);
    blank_.layout = summary_of(problem_.layout);
    blank_.environment = environment.value_or(Environment{"none", target_.workers, 0, {}, "modelled"});
    blank_.compiler = compiler_digest();
  }

  [[nodiscard]] const Record& blank() const { return blank_; }
  [[nodiscard]] cache::Store& store() const { return *store_; }
  [[nodiscard]] cache::Identity identity() const { return record_identity(blank_); }
  [[nodiscard]] const std::shared_ptr<const Device>& device() const { return device_; }
  [[nodiscard]] const std::string& asked() const { return asked_; }
  [[nodiscard]] const Target& target() const { return target_; }

  /// The contests of this version's space, with what an earlier record knows.
  [[nodiscard]] Record begin(const std::optional<Record>& earlier) const {
    Record record = blank_;
    if (earlier) record.seconds = earlier->seconds;
    for (const RangedConfig& chosen : choose_plan(problem_, target_)) {
      Contest contest = make_contest(problem_, target_, chosen);
      if (earlier)
        for (const Contest& old : earlier->contests)
          if (old.n == contest.n) contest = merged(std::move(contest), old);
      record.contests.push_back(std::move(contest));
    }
    record.peak = peak_for(problem_, target_, record.contests.back().bytes, device_ != nullptr);
    for (Contest& contest : record.contests) contest.floor_us = floor_us(contest, record.peak);
    return record;
  }

  /// Of a machine that others use, too, the peak is what it reached at the beginning or at the end.
  void look_again(Record& record) const {
    if (!record.peak.measured) return;
    const MachinePeak now = peak_for(problem_, target_, record.contests.back().bytes, true);
    record.peak.gflops = std::max(record.peak.gflops, now.gflops);
    record.peak.gbytes = std::max(record.peak.gbytes, now.gbytes);
    for (Contest& contest : record.contests) contest.floor_us = floor_us(contest, record.peak);
  }

  /// What is measured for one contest: its largest batch, as if it were the only one.
  [[nodiscard]] Problem problem_of(const Contest& contest) const {
    Problem problem = problem_;
    problem.batch = contest.n;
    return problem;
  }

 private:
  Problem problem_;
  Target target_;
  std::string asked_;
  std::shared_ptr<const Device> device_;
  std::shared_ptr<cache::Store> store_;
  Record blank_;
};

bool complete(const Record& record) {
  return record.compiler == compiler_digest() && !record.contests.empty() &&
         std::all_of(record.contests.begin(), record.contests.end(), settled);
}

/// What a killed run had found out.
void replay(const std::optional<cache::Journal>& journal, Record& record) {
  if (!journal) return;
  for (const std::string& line : journal->lines()) {
    try {
      const Event event = parse_event(line);
      for (Contest& contest : record.contests)
        if (contest.n == event.n) apply(event, contest);
    } catch (const Error&) {  // another version's; what it says is measured again
    }
  }
}

TuneProgress progress_of(const Record& record, std::size_t contest, double seconds) {
  const Contest& now = record.contests[contest];
  const auto untried = std::count_if(now.candidates.begin(), now.candidates.end(),
                                     [](const Candidate& one) { return one.outcome == Outcome::untried; });
  const Candidate* const best = standing(now).best;
  return {.contest = contest,
          .contests = record.contests.size(),
          .settled = now.candidates.size() - static_cast<std::size_t>(untried),
          .candidates = now.candidates.size(),
          .best_us = best == nullptr ? 0 : best->time_us()->median,
          .seconds = seconds};
}

std::size_t compiles_at_once(const TuneOptions& how) {
  return how.at_once != 0 ? how.at_once : std::max<std::size_t>(std::thread::hardware_concurrency(), 1);
}

void explain_untried(Record& record, const TuneOptions& how) {
  for (Contest& contest : record.contests)
    for (Candidate& candidate : contest.candidates)
      if (candidate.outcome == Outcome::untried)
        candidate.reason = how.stop && how.stop() ? "the run was stopped before it"
                                                  : fmt::format("the budget of {:.3g} s was spent before it",
                                                                how.budget.count());
}

/// With the key's lock.
Record tune_locked(const Run& run, const TuneOptions& how, const std::optional<Record>& earlier) {
  const Elapsed elapsed;
  Record record = run.begin(earlier);
  std::optional<cache::Journal> journal = run.store().journal(run.identity());
  replay(journal, record);
  const bool fresh = earlier && earlier->compiler == record.compiler;
  for (std::size_t i = 0; i < record.contests.size(); ++i) {
    Contest& contest = record.contests[i];
    if (settled(contest) && fresh && !how.again) continue;
    DeviceWorkbench bench(run.problem_of(contest), run.target(), run.device(), run.asked(),
                          {compiles_at_once(how), how.compile_limit}, how.hooks);
    const TuneLimits limits{how.budget / static_cast<double>(record.contests.size()), how.stop};
    tune(contest, bench, limits, [&](const Event& event) {
      if (journal) journal->append(to_json(event));
      if (how.progress) how.progress(progress_of(record, i, elapsed.ms() / 1e3));
    });
  }
  run.look_again(record);
  explain_untried(record, how);
  record.seconds += elapsed.ms() / 1e3;
  publish(run.store(), record);
  if (journal) journal->remove();
  return record;
}

}  // namespace

Record untuned(const BuildJob& job, std::string_view asked) {
  const Run run(job, asked);
  return run.begin(find_record(run.store(), run.blank()));
}

Record tune(const BuildJob& job, std::string_view asked, const TuneOptions& how) {
  const Run run(job, asked);
  std::optional<Record> earlier = find_record(run.store(), run.blank());
  if (earlier && complete(*earlier) && !how.again) return *earlier;
  const bool had = earlier.has_value();
  // Somebody who tunes the same has at most as long as this one would take, and then some.
  const auto patience =
      std::chrono::duration_cast<std::chrono::milliseconds>(2 * how.budget + std::chrono::minutes(1));
  std::optional<Record> arrived;
  const auto lock = run.store().lock(run.identity(), {.holder = patience}, [&] {
    if (how.stop && how.stop()) return true;
    arrived = find_record(run.store(), run.blank());
    return arrived && complete(*arrived) && !(had && how.again);
  });
  if (lock && !lock->held() && arrived && complete(*arrived)) return *arrived;
  earlier = find_record(run.store(), run.blank());  // another one may have ended in the meantime
  if (earlier && complete(*earlier) && !how.again) return *earlier;
  return tune_locked(run, how, earlier);
}

}  // namespace sparsekiln

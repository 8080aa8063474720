#include "runtime/tune.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/digest.h>
#include <sparsekiln/error.h>

#include "autotune/default_plan.h"
#include "autotune/prediction.h"
#include "autotune/record_json.h"
#include "autotune/tuner.h"
#include "cache/store.h"
#include "compiler/build.h"
#include "compiler/layout_picture.h"
#include "compiler/plan.h"
#include "runtime/backend.h"
#include "runtime/elapsed.h"
#include "runtime/environment.h"
#include "runtime/records.h"
#include "runtime/stores.h"

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

/// The peak of this machine where it can be measured, else what documents say of the usual part of the
/// architecture.
MachinePeak peak_for(const Problem& problem, const Target& target, const Part& part, double bytes,
                     bool at_hand, bool again = false) {
  const auto measured_peak = devices_of(target).measured_peak;
  return measured_peak != nullptr && at_hand ? measured_peak(target, bytes, again)
                                             : peak_of(problem, target, part);
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
    if (job.pinned || attached(job.plan))
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("tuning with {}: its config is not chosen by tuning; leave it out",
                              job.pinned ? "a pinned config" : "attached tables"));
    if (problem_.batch.bound() == 0)
      throw Error(ErrorKind::invalid_argument, "tuning for a batch of 0: there is nothing to compute");
    device_ = device_at_hand(target_, asked_);
    store_ = store_in(job.cache_dir);
    blank_.problem = problem_fields(problem_, target_);
    blank_.layout = summary_of(problem_.layout);
    blank_.environment = device_ == nullptr ? Environment{"none", target_.workers, 0, {}, kModelledPolicy}
                                            : environment_on(target_, *device_);
    blank_.compiler = compiler_digest();
    part_ = part_of(blank_.environment);
    if (device_ != nullptr) part_.clusters_of_four = device_->active_clusters(4);
  }

  [[nodiscard]] const Record& blank() const { return blank_; }
  [[nodiscard]] cache::Store& store() const { return *store_; }
  [[nodiscard]] cache::Identity identity() const { return record_identity(blank_); }
  [[nodiscard]] const std::shared_ptr<const Device>& device() const { return device_; }
  [[nodiscard]] const std::string& asked() const { return asked_; }
  [[nodiscard]] const Target& target() const { return target_; }

  /// The contests of this version's space, with what an earlier record knows. `measures`: whether the
  /// machine's peak may take time to be known.
  [[nodiscard]] Record begin(const std::optional<Record>& earlier, bool measures) const {
    Record record = blank_;
    if (earlier) record.seconds = earlier->seconds;
    for (const RangedConfig& chosen : choose_plan(problem_, target_)) {
      Contest contest = make_contest(problem_, target_, chosen, part_);
      if (earlier)
        for (const Contest& old : earlier->contests)
          if (old.n == contest.n)
            contest = merged(std::move(contest), old, earlier->compiler == record.compiler);
      record.contests.push_back(std::move(contest));
    }
    const bool known = !measures && earlier && earlier->peak.measured;
    record.peak = known ? earlier->peak
                        : peak_for(problem_, target_, part_, record.contests.back().bytes,
                                   measures && device_ != nullptr);
    for (Contest& contest : record.contests) contest.floor_us = floor_us(contest, record.peak);
    return record;
  }

  /// Measures the peak again: where others use the machine, too, the peak is the better of the first and
  /// last.
  void look_again(Record& record) const {
    if (!record.peak.measured) return;
    record.peak = peak_for(problem_, target_, part_, record.contests.back().bytes, true, true);
    for (Contest& contest : record.contests) contest.floor_us = floor_us(contest, record.peak);
  }

  /// The problem that is measured for one contest: its largest batch, as if it were the only one.
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
  Part part_;
};

bool complete(const Record& record) {
  return record.compiler == compiler_digest() && !record.contests.empty() &&
         std::all_of(record.contests.begin(), record.contests.end(), settled);
}

/// What a run adds to the record that it began with, kept event by event until the record is. The first line
/// says with which: the notes of one that was killed when it had just published are in its record already.
class Notes {
 public:
  Notes(std::optional<cache::Journal> journal, const std::optional<Record>& earlier)
      : journal_(std::move(journal)),
        first_(std::string(compiler_digest()) + " after " +
               (earlier ? Digest::of(to_json(*earlier)).hex() : std::string("nothing"))) {
    if (!journal_) return;
    lines_ = journal_->lines();
    if (!lines_.empty() && lines_.front() != first_) remove();
  }
  /// What a killed run had found out.
  void replay(Record& record) const {
    for (const std::string& line : lines_) {
      try {
        const Event event = parse_event(line);
        for (Contest& contest : record.contests)
          if (contest.n == event.n) apply(event, contest);
      } catch (const Error&) {  // the first line, or another version's; what it says is measured again
      }
    }
  }
  void append(const Event& event) {
    if (!journal_) return;
    if (lines_.empty()) journal_->append(lines_.emplace_back(first_));
    journal_->append(to_json(event));
  }
  void remove() {
    if (journal_) journal_->remove();
    lines_.clear();
  }

 private:
  std::optional<cache::Journal> journal_;
  std::string first_;
  std::vector<std::string> lines_;  ///< that were there; not empty once the first is
};

TuningProgress progress_of(const Record& record, std::size_t contest, double seconds) {
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

/// A machine that was short of something may have it now.
void try_failed_again(Record& record) {
  for (Contest& contest : record.contests)
    for (Candidate& candidate : contest.candidates)
      if (candidate.outcome == Outcome::failed) candidate.outcome = Outcome::untried;
}

/// `alone`: with the key's lock. Without it the journal is another one's.
Record tune_from(const Run& run, const TuneOptions& how, const std::optional<Record>& earlier, bool alone) {
  const Elapsed elapsed;
  Record record = run.begin(earlier, true);
  Notes notes(alone ? run.store().journal(run.identity()) : std::nullopt, earlier);
  notes.replay(record);
  const bool fresh = earlier && earlier->compiler == record.compiler;
  if (how.again) try_failed_again(record);
  for (std::size_t i = 0; i < record.contests.size(); ++i) {
    Contest& contest = record.contests[i];
    if (settled(contest) && fresh && !how.again) continue;
    DeviceWorkbench bench(run.problem_of(contest), run.target(), run.device(), run.asked(),
                          {compiles_at_once(how), how.compile_limit}, how.hooks);
    const TuneLimits limits{how.budget / static_cast<double>(record.contests.size()), how.stop};
    tune(contest, bench, limits, [&](const Event& event) {
      notes.append(event);
      if (how.progress) how.progress(progress_of(record, i, elapsed.ms() / 1e3));
    });
  }
  run.look_again(record);
  explain_untried(record, how);
  record.seconds += elapsed.ms() / 1e3;
  publish(run.store(), record);
  if (run.store().why_not_on_disk(run.identity()).empty()) notes.remove();
  return record;
}

}  // namespace

Record untuned(const BuildJob& job, std::string_view asked) {
  const Run run(job, asked);
  return run.begin(find_record(run.store(), run.blank()), false);
}

Record tune(const BuildJob& job, std::string_view asked, const TuneOptions& how) {
  const Run run(job, asked);
  const std::optional<Record> earlier = find_record(run.store(), run.blank());
  if (earlier && complete(*earlier) && !how.again) {
    keep_choices(run.store(), *earlier, false);  // they may have been trimmed away
    return *earlier;
  }
  // Another process that tunes the same is given the time that this one would take, and a margin.
  const auto patience =
      std::chrono::duration_cast<std::chrono::milliseconds>(2 * how.budget + std::chrono::minutes(1));
  // Its record is taken, settled or not: processes that tune at the same time choose the same.
  std::optional<Record> arrived;
  const auto has_arrived = [&] {
    arrived = find_record(run.store(), run.blank());
    return arrived && arrived != earlier;
  };
  const auto stopped = [&] { return how.stop && how.stop(); };
  const auto lock =
      run.store().lock(run.identity(), {.holder = patience}, [&] { return stopped() || has_arrived(); });
  if (has_arrived()) return *arrived;
  const bool alone = lock && lock->held();
  if (lock && !alone && stopped()) return run.begin(earlier, false);
  return tune_from(run, how, earlier, alone);
}

}  // namespace sparsekiln

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>
#include <unistd.h>

#include "autotune/prediction.h"
#include "autotune/space.h"
#include "runtime/records.h"
#include "runtime/tune.h"
#include "system/standard_streams.h"
#include "tools/command.h"
#include "tools/jobs.h"
#include "tools/options.h"
#include "tools/report_entry.h"
#include "tools/report_json.h"
#include "tools/report_text.h"
#include "tools/shard.h"

namespace sparsekiln::tools {
namespace {

struct TuneArguments {
  KernelArguments what;
  std::vector<std::filesystem::path> files;
  std::string target = "auto";
  std::string budget = "30s";
  std::string shard = "0/1";
  std::int64_t workers = 0;  ///< 0: one a processor
  bool from_store = false;
  bool again = false;
  bool model = false;
  bool space = false;
};

/// "30s", "2m", "500ms", or seconds as a number.
std::chrono::duration<double> parse_budget(const std::string& text) {
  double value = 0;
  std::size_t read = 0;
  try {
    value = std::stod(text, &read);
  } catch (const std::exception&) {
  }
  const std::string unit = text.substr(read);
  const double seconds = unit == "ms" ? 1e-3 : unit == "m" ? 60 : unit == "h" ? 3600 : 1;
  const bool known = unit.empty() || unit == "s" || seconds != 1;
  if (read == 0 || !known || !(value > 0) || value * seconds > 1e7)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--budget {}: a time such as 30s, 500ms or 2m", printable(text)));
  return std::chrono::duration<double>(value * seconds);
}

/// Set by Ctrl-C. A second one ends the process at once, as it would without us.
std::atomic<bool> interrupted = false;
extern "C" void interrupt(int) {
  interrupted = true;
  std::signal(SIGINT, SIG_DFL);
}

/// On standard error: a bar that is drawn over where that is a terminal, else a line a problem.
class TuneBar {
 public:
  TuneBar(std::size_t job, std::size_t jobs, double budget)
      : job_(job), jobs_(jobs), budget_(budget), terminal_(::isatty(STDERR_FILENO) == 1) {}
  TuneBar(const TuneBar&) = delete;
  TuneBar& operator=(const TuneBar&) = delete;
  ~TuneBar() {
    if (terminal_) write_message("\r\x1b[K");
  }
  void draw(const TuningProgress& now) {
    if (!terminal_ || (now.seconds - drawn_ < 0.1 && drawn_ != 0)) return;
    drawn_ = now.seconds;
    constexpr std::size_t kBar = 24;
    const double share = std::min(1.0, now.seconds / budget_);
    const auto full = static_cast<std::size_t>(share * kBar);
    std::string line =
        fmt::format("[{}{}] {}/{}: {}/{} configs", std::string(full, '='), std::string(kBar - full, ' '),
                    job_ + 1, jobs_, now.settled, now.candidates);
    if (now.contests > 1) line += fmt::format(" of range {}/{}", now.contest + 1, now.contests);
    if (now.best_us > 0) line += fmt::format(", best {:.1f} us", now.best_us);
    line += fmt::format(", {:.0f} s of {:.0f}", now.seconds, budget_);
    write_message(fmt::format("\r\x1b[K{}", line));
  }

 private:
  std::size_t job_;
  std::size_t jobs_;
  double budget_;
  bool terminal_;
  double drawn_ = 0;
};

/// All of the space, with the reasons of those that are no candidates.
void list_space(const KernelJob& job, Answer& answer) {
  const Space space = space_of(job.job.problem, job.job.target, job.job.problem.batch.bound());
  Json configs = Json::array();
  Json rejected = Json::array();
  for (const Config& config : space.configs) {
    configs.push_back(to_string(config));
    answer.text += fmt::format("{}\n", to_string(config));
  }
  for (const RejectedConfig& one : space.rejected) {
    rejected.push_back({{"config", to_string(one.config)}, {"reason", one.reason}});
    answer.text += fmt::format("{}\n  no: {}\n", to_string(one.config), one.reason);
  }
  answer.text +=
      fmt::format("{}: {} configs, {} rejected\n", job.name, space.configs.size(), space.rejected.size());
  answer.json["problems"].push_back(
      {{"name", job.name}, {"configs", std::move(configs)}, {"rejected", std::move(rejected)}});
}

/// While this object exists, an interrupt (SIGINT) sets `interrupted`, unless the process was started with
/// SIGINT ignored.
class InterruptWatch {
 public:
  InterruptWatch() {
    interrupted = false;
    before_ = std::signal(SIGINT, interrupt);
    if (before_ == SIG_IGN) std::signal(SIGINT, SIG_IGN);
  }
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;
  ~InterruptWatch() {
    if (before_ != SIG_ERR) std::signal(SIGINT, before_);
  }

 private:
  void (*before_)(int);
};

Record tune_one(const TuneArguments& arguments, const BuildJob& job, TuneBar& bar,
                std::chrono::duration<double> budget) {
  if (arguments.model) return untuned(job, arguments.target);
  return tune(job, arguments.target,
              {.budget = budget,
               .again = arguments.again,
               .at_once = static_cast<std::size_t>(arguments.workers),
               .stop = [] { return interrupted.load(); },
               .progress = [&](const TuningProgress& now) { bar.draw(now); }});
}

/// What the model says of the default, and of the candidate that it ranks first.
Json modelled(const BuildJob& job, const Part& part, const Contest& contest, std::string& text) {
  Pricing pricing(job.problem, job.target, part);
  const auto one = [&](std::string_view which, const Config& config) {
    const Prediction predicted = pricing.of(config, contest.n);
    text += fmt::format("  the model: {} takes {:.4g} us, bound by {}: {}\n", which, predicted.us,
                        name(predicted.bound), to_string(config));
    return Json{
        {"config", to_string(config)}, {"predicted_us", predicted.us}, {"bound", name(predicted.bound)}};
  };
  Json json;
  json["default"] = one("the default", contest.default_config);
  const Candidate* first = nullptr;
  for (const Candidate& candidate : contest.candidates)
    if (candidate.predicted_us > 0 && (first == nullptr || candidate.predicted_us < first->predicted_us))
      first = &candidate;
  json["first"] = first == nullptr ? Json(nullptr) : one("what it ranks first", first->config);
  return json;
}

/// Records, and the job of each.
struct TunedJobs {
  std::vector<Record> records;
  std::vector<const BuildJob*> jobs;
};

/// The records of the jobs, each problem once, until the run is interrupted. Where the space alone is asked
/// for, the answer lists that, and there are none.
TunedJobs tune_jobs(const TuneArguments& arguments, const std::vector<KernelJob>& jobs,
                    std::chrono::duration<double> budget, Answer& answer) {
  TunedJobs tuned;
  std::set<std::vector<std::pair<std::string, std::string>>> done;  ///< a store has a problem once a config
  const InterruptWatch watch;
  for (std::size_t i = 0; i < jobs.size() && !interrupted; ++i) {
    if (arguments.space) {
      list_space(jobs[i], answer);
      continue;
    }
    if (!done.insert(problem_fields(jobs[i].job.problem, jobs[i].job.target)).second) continue;
    try {
      TuneBar bar(i, jobs.size(), budget.count());
      tuned.records.push_back(tune_one(arguments, jobs[i].job, bar, budget));
      tuned.jobs.push_back(&jobs[i].job);
    } catch (const Error& error) {
      if (jobs.size() == 1 || error.kind() != ErrorKind::invalid_argument) throw;
      answer.warnings.push_back(fmt::format("left out: {}: {}", jobs[i].name, error.what()));
    }
  }
  return tuned;
}

Answer tune_all(const TuneArguments& arguments) {
  Answer answer;
  answer.json["problems"] = Json::array();
  const auto budget = parse_budget(arguments.budget);
  if (arguments.workers < 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--jobs {}: 1 or more candidates are compiled at once", arguments.workers));
  const Shard shard = parse_shard(arguments.shard);
  check_shard(shard, arguments.from_store);
  const std::string arch = resolve_target(arguments.target).to_string();
  std::vector<KernelJob> jobs =
      jobs_of(arguments.what, arguments.files, {arch}, arguments.from_store, answer);
  if (jobs.empty())
    throw Error(ErrorKind::invalid_argument,
                "tune: of what? Give layout files, a jobs file (.json), or --from-store");
  jobs = jobs_of_shard(std::move(jobs), shard);
  const TunedJobs tuned = tune_jobs(arguments, jobs, budget, answer);
  const std::vector<ReportEntry> entries = entries_of(tuned.records);
  std::string models;
  for (const ReportEntry& entry : entries) {
    Json& problem = answer.json["problems"].emplace_back(describe(entry));
    if (!arguments.model) continue;
    models += fmt::format("{}\n", title(entry));
    problem["model"] = modelled(*tuned.jobs[entry.record - tuned.records.data()],
                                part_of(entry.record->environment), *entry.contest, models);
  }
  if (!entries.empty()) answer.text += report_text(entries) + models;
  answer.json["interrupted"] = interrupted.load();
  if (interrupted) {
    answer.text += "stopped; what was measured is kept, and the same command goes on from there\n";
    answer.status = kFailed;
  }
  return answer;
}

}  // namespace

void add_tune(CLI::App& root, Invocation& invocation) {
  CLI::App& app = *root.add_subcommand(
      "tune", "finds the fastest configs by measuring, and keeps them for `compile` and `report`");
  const auto arguments = std::make_shared<TuneArguments>();
  app.add_option("FILE", arguments->files,
                 "layouts, tuned with the options below; and jobs files (.json), which have their own");
  app.add_option("--target", arguments->target,
                 "the device: auto, cpu, cuda, cuda:1, emulated; or an architecture (sm_90), whose times are "
                 "the cost model's where this machine has none")
      ->capture_default_str();
  app.add_option("--budget", arguments->budget, "time for each problem: 30s, 500ms, 2m")
      ->capture_default_str();
  add_shard(app, arguments->shard);
  app.add_option("--jobs", arguments->workers,
                 "candidates to compile at once (one a processor where not given)")
      ->check(whole_number());
  app.add_flag("--from-store", arguments->from_store, "all kernels that the store has seen, too");
  app.add_flag("--again", arguments->again, "time the best again where a problem is tuned already");
  app.add_flag("--model", arguments->model, "compile and measure nothing: what the cost model says");
  app.add_flag("--space", arguments->space, "list all configs, and why those cannot serve that do not");
  add_problem(app, arguments->what);
  add_json(app, invocation);
  app.callback(
      [&invocation, arguments] { invocation.command = [arguments] { return tune_all(*arguments); }; });
}

}  // namespace sparsekiln::tools

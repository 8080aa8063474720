#include "runtime/plan_choice.h"

#include <chrono>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "autotune/default_plan.h"
#include "compiler/backend.h"
#include "compiler/build.h"
#include "compiler/plan.h"
#include "runtime/environment.h"
#include "runtime/prebuilt.h"
#include "runtime/records.h"
#include "runtime/stores.h"
#include "runtime/tune.h"

namespace sparsekiln {
namespace {

void tune_now(const BuildJob& job, const Options& options) {
  TuneOptions how{.budget = std::chrono::duration<double>(options.tuning_seconds)};
  TuningProgress progress;
  bool going_on = true;
  if (TuningWatch* const watch = options.tuning_watch) {
    how.progress = [&](const TuningProgress& now) { progress = now; };
    how.stop = [&, watch] {
      going_on = going_on && watch->goes_on(progress);
      return !going_on;
    };
  }
  static_cast<void>(tune(job, options.target, how));
}

/// The plan that was tuned before, or is tuned now where that is asked for; else the default plan.
Plan tuned_plan(const BuildJob& job, const Options& options) {
  const auto store = store_in(job.cache_dir);
  const auto environment = environment_of(job.target, options.target);
  if (options.tuning == Tuning::now) {
    if (!environment)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("tuning now for {}: this machine has no such device; `sparsekiln tune` on one "
                              "that has, or leave tuning out",
                              job.target.to_string()));
    if (auto plan = own_plan(*store, job.problem, job.target, *environment)) return std::move(*plan);
    tune_now(job, options);
  }
  if (auto plan = chosen_plan(*store, job.problem, job.target, environment)) return std::move(*plan);
  return choose_plan(job.problem, job.target);
}

/// What the caller pins, with tables in the form that the specialization asks for. Both kernels of a tiered
/// one have the numbers that the attached one is given: its workspace, too, serves both.
Plan pinned_plan(const BuildJob& job, const Config& config, Specialization specialization) {
  Config asked = config;
  if (specialization != Specialization::baked) asked.table = TableForm::attached;
  Plan plan = pinned(asked, job.problem, job.target);
  if (specialization != Specialization::tiered) return plan;
  // What the compiler will refuse has no price.
  if (ConfigCheck(job.problem, job.target).refusal(asked).empty())
    plan = at_layout(std::move(plan), job.problem, job.target);
  if (config.table == TableForm::attached) return with_baked_tables(std::move(plan), job.problem, job.target);
  plan.front().config.table = config.table;
  return plan;
}

/// What code for a target is specialized to, see Backend::tiered.
Specialization specialization_on(const Target& target, const Options& options) {
  const bool baked = options.specialization == Specialization::tiered && !backend_of(target).tiered;
  return baked ? Specialization::baked : options.specialization;
}

Plan wanted_plan(const BuildJob& job, const Options& options) {
  const Specialization specialization = specialization_on(job.target, options);
  if (options.config) return pinned_plan(job, *options.config, specialization);
  switch (specialization) {
    case Specialization::baked:
      break;
    case Specialization::attached:
      return choose_attached_plan(job.problem, job.target);
    case Specialization::tiered:
      return with_baked_tables(choose_attached_plan(job.problem, job.target), job.problem, job.target);
  }
  return tuned_plan(job, options);
}

/// What asks for code that serves every layout; empty: nothing does.
std::string_view asked_for_any_layout(const BuildJob& job, const Options& options) {
  const Specialization specialization = specialization_on(job.target, options);
  if (specialization != Specialization::baked) return name(specialization);
  return options.config && options.config->table == TableForm::attached ? "table=attached" : "";
}

/// A mask with taps for each block belongs to the blocks of one layout.
void refuse_masks_of_blocks(const BuildJob& job, std::string_view asked) {
  const Convolution& convolution = job.problem.convolution;
  if (asked.empty() || !convolution.present() || convolution.taps_of_block() != 0) return;
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("a mask of taps for each block with {}: it belongs to one layout; a mask of {} taps "
                  "for all blocks, or no {}, would work",
                  asked, convolution.taps(), asked));
}

void refuse_any_layout(const BuildJob& job, std::string_view asked) {
  const auto check = backend_of(job.target).check_any_layout;
  if (!asked.empty() && check != nullptr) check(job.problem, job.target, asked);
}

}  // namespace

Plan plan_for(const BuildJob& job, const Options& options) {
  const std::string_view asked = asked_for_any_layout(job, options);
  refuse_masks_of_blocks(job, asked);
  refuse_any_layout(job, asked);
  Plan plan = wanted_plan(job, options);
  if (job.require != Require::prebuilt || job.pinned) return plan;
  ReadOnlyStores packs = packs_of(job);
  return held_plan(job, std::move(plan), packs);
}

}  // namespace sparsekiln

#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string_view>

#include <sparsekiln/compile.h>

#include "autotune/record.h"
#include "runtime/build_job.h"
#include "runtime/workbench.h"

namespace sparsekiln {

struct TuneOptions {
  std::chrono::duration<double> budget{30};  ///< of all contests together; what goes on then is ended first
  bool again = false;                        ///< times the best again although nothing is left to try
  std::size_t at_once = 0;                   ///< compiles; 0: one a processor
  std::chrono::milliseconds compile_limit{60'000};  ///< of one compile
  std::function<bool()> stop = {};                  ///< asked often; what is known by then is kept
  std::function<void(const TuningProgress&)> progress = {};
  WorkbenchHooks hooks = {};
};

/// Finds the fastest configs for a problem, and keeps the record in the job's store, from which `compile`
/// then chooses. Goes on where an earlier run stopped, killed or not. Where several processes
/// tune the same at once, one does it, and the others take its record. Where the machine has no such device,
/// or has an emulated one, candidates are compiled (and checked), and their times are modelled.
///
/// Throws `invalid_argument` for what is not chosen by tuning: a pinned config, attached tables.
///
/// `asked`: the device, as Options::target; else that of this machine that is what the job's target says.
[[nodiscard]] Record tune(const BuildJob& job, std::string_view asked, const TuneOptions& how = {});

/// The record that tuning would begin with: what the store has of it, else all candidates untried, with
/// predicted times.
[[nodiscard]] Record untuned(const BuildJob& job, std::string_view asked);

}  // namespace sparsekiln

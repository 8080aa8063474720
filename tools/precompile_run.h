#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "cache/pack_format.h"
#include "tools/jobs.h"

namespace sparsekiln::tools {

/// What came of a list of jobs.
struct Precompiled {
  cache::PackEntries entries;  ///< of those that did not fail
  std::size_t compiled = 0;
  std::size_t found = 0;  ///< in the store
  struct Failure {
    std::string job;
    std::string message;
    std::string log;
  };
  std::set<std::string> compilers;    ///< that made the entries: "NVRTC 13.0"
  std::set<std::string> without_ptx;  ///< those whose PTX the jobs' driver does not load
  std::vector<Failure> failures;      ///< in the order of the jobs
  std::vector<std::string> warnings;  ///< each once
};

/// Makes every job's Binary on `workers` threads, through the store, so that work that was cut off goes on
/// where it was. Jobs of the same identity count once. Shows its progress on standard error.
[[nodiscard]] Precompiled precompile_all(const std::vector<KernelJob>& jobs, std::size_t workers);

}  // namespace sparsekiln::tools

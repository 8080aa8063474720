#include "tools/precompile_run.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <utility>

#include <sparsekiln/error.h>

#include "cache/entry.h"
#include "compiler/cuda/compatibility.h"
#include "compiler/stored_binaries.h"
#include "runtime/build.h"
#include "runtime/request.h"
#include "runtime/stored_binary.h"
#include "system/parallel.h"
#include "tools/progress.h"

namespace sparsekiln::tools {
namespace {

/// A job, and what came of it; written by one thread.
struct Work {
  const KernelJob* job;
  cache::Identity identity;
  std::vector<std::byte> entry;
  int nvrtc = 0;
  std::string compiler;
  bool compiled = false;
  std::string warning;
  std::optional<Precompiled::Failure> failure;
};

void make(Work& work) {
  try {
    const Built built = build_without_layout(work.job->job);
    work.entry = cache::encode(work.identity, serialize_binary(work.identity, *built.binary));
    work.compiler = built.binary->compiler;
    work.nvrtc = nvrtc_version(*built.binary);
    work.compiled = built.from == From::compiled;
    work.warning = built.cache_warning;
  } catch (const Error& error) {
    work.failure = {work.job->name, error.what(), error.log()};
  } catch (const std::exception& error) {
    work.failure = {work.job->name, error.what(), {}};
  }
}

std::vector<Work> each_once(const std::vector<KernelJob>& jobs) {
  std::vector<Work> all;
  std::set<Digest> seen;
  for (const KernelJob& job : jobs) {
    cache::Identity identity = identity_of(job.job.problem, job.job.target, job.job.plan);
    if (seen.insert(identity.key()).second)
      all.push_back({&job, std::move(identity), {}, 0, {}, false, {}, {}});
  }
  return all;
}

}  // namespace

Precompiled precompile_all(const std::vector<KernelJob>& jobs, std::size_t workers) {
  std::vector<Work> all = each_once(jobs);
  {
    Progress progress(all.size());
    std::atomic<std::size_t> next = 0;
    in_parallel(std::min(workers, all.size()), [&](std::size_t) {
      for (std::size_t mine = next++; mine < all.size(); mine = next++) {
        make(all[mine]);
        const bool failed = all[mine].failure.has_value();
        progress.done(all[mine].job->name, !all[mine].compiled && !failed, failed);
      }
    });
  }
  Precompiled result;
  for (Work& work : all) {
    if (!work.warning.empty() &&
        std::find(result.warnings.begin(), result.warnings.end(), work.warning) == result.warnings.end())
      result.warnings.push_back(work.warning);
    if (work.failure) {
      result.failures.push_back(std::move(*work.failure));
      continue;
    }
    ++(work.compiled ? result.compiled : result.found);
    result.compilers.insert(work.compiler);
    if (cuda::loads(work.job->job.toolchain.driver_version, work.nvrtc) == cuda::Loads::cubin)
      result.without_ptx.insert(work.compiler);
    result.entries.emplace(work.identity.key(), std::move(work.entry));
  }
  return result;
}

}  // namespace sparsekiln::tools

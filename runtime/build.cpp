#include <map>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>

#include "autotune/cost_model.h"
#include "cache/store.h"
#include "compiler/build.h"
#include "compiler/cuda/attach.h"
#include "compiler/cuda/emit.h"
#include "runtime/build.h"
#include "runtime/cuda/driver.h"
#include "runtime/elapsed.h"
#include "runtime/request.h"
#include "runtime/single_flight.h"

namespace sparsekiln {
namespace {

/// One Store per folder for the life of the process, so that its counters and its memory are shared.
std::shared_ptr<cache::Store> store_in(const std::filesystem::path& asked) {
  static std::mutex mutex;
  static std::map<std::filesystem::path, std::shared_ptr<cache::Store>> stores;
  const std::filesystem::path folder = asked.empty() ? cache::Store::default_folder() : asked;
  const std::lock_guard lock(mutex);
  std::shared_ptr<cache::Store>& store = stores[folder];
  if (store == nullptr) store = std::make_shared<cache::Store>(folder);
  return store;
}

/// What the store holds under an identity, if it is whole and what was asked for.
std::shared_ptr<const Binary> find(cache::Store& store, const cache::Identity& identity,
                                   const BuildJob& job) {
  const auto payload = store.get(identity);
  if (!payload) return nullptr;
  try {
    auto binary = std::make_shared<const Binary>(deserialize(*payload));
    // One that all layouts share has none yet.
    const bool fits =
        binary->target == job.target && binary->plan == job.plan &&
        (job.target.kind != Target::Kind::cuda || cuda::attached(job.plan) == binary->lacks_layout());
    return fits ? binary : nullptr;
  } catch (const Error&) {
    return nullptr;  // damaged although the checksum held: as good as absent, and about to be written anew
  }
}

/// A Binary that lacks its layout, with it.
std::shared_ptr<const Binary> with_layout(std::shared_ptr<const Binary> binary, const BuildJob& job) {
  if (!binary->lacks_layout()) return binary;
  return std::make_shared<const Binary>(cuda::attach(job.problem.layout, *binary));
}

Plan plan_for(const Problem& problem, const Target& target, const Options& options) {
  const bool tiered = options.tiered && target.kind == Target::Kind::cuda;
  if (options.config) {
    Plan pinned{{problem.batch.bound(), *options.config}};
    if (options.attached) return with_attached_tables(std::move(pinned));
    return tiered ? with_baked_tables(std::move(pinned), problem, target) : pinned;
  }
  if (options.attached) return choose_attached_plan(problem, target);
  if (tiered) return with_baked_tables(choose_attached_plan(problem, target), problem, target);
  return choose_plan(problem, target);
}

/// Code that serves every layout has whole blocks.
void refuse_cut_layouts(const BuildJob& job, const Options& options) {
  if (job.target.kind != Target::Kind::cuda) return;
  if (!options.tiered && !cuda::attached(job.plan)) return;
  const std::string_view asked = options.tiered ? "tiered" : options.attached ? "attached" : "table=attached";
  throw Error(ErrorKind::invalid_argument,
              fmt::format("{} x {} features with {}: code that serves every layout has whole blocks; without "
                          "{} it would work",
                          job.problem.out_features(), job.problem.in_features(), asked, asked));
}

struct Found {
  std::shared_ptr<const Binary> binary;
  From from = From::compiled;
  std::string cache_warning;
};

}  // namespace

std::string_view name(From from) {
  switch (from) {
    case From::compiled:
      return "compiled";
    case From::store:
      return "store";
    case From::memory:
      return "memory";
  }
  return "unknown";
}

std::string_view name(Tier tier) { return tier == Tier::baked ? "baked" : "attached"; }

Problem make_problem(const Layout& layout, const Options& options) {
  Problem problem;
  problem.operation = options.operation;
  problem.layout = layout;
  problem.block = options.block;
  problem.batch = options.batch;
  problem.dtype = options.dtype;
  problem.out_dtype = options.out_dtype.value_or(options.dtype);
  problem.math = options.math;
  problem.order = options.order;
  problem.strict_absent = options.strict_absent;
  problem.epilogue = options.epilogue;
  problem.derivative = options.derivative;
  problem.gates = options.gates;
  problem.bias_gradient = options.bias_gradient;
  problem.gate_gradient = options.gate_gradient;
  problem.alignment = options.alignment;
  // Whole blocks have one spelling, so that they are one kernel.
  if (options.in_features != problem.in_features()) problem.cut_in_features = options.in_features;
  if (options.out_features != problem.out_features()) problem.cut_out_features = options.out_features;
  validate(problem);
  return problem;
}

BuildJob job_of(const Layout& layout, const Options& options) {
  BuildJob job{make_problem(layout, options), resolve_target(options.target), {}, options.cache_dir};
  if (options.attached && options.tiered)
    throw Error(
        ErrorKind::invalid_argument,
        "attached and tiered: a tiered kernel is attached until the baked one is there; ask for one of "
        "them");
  if (options.config && job.problem.batch.dynamic())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("config '{}': a pinned config takes a fixed batch, not {}",
                            to_string(*options.config), to_string(job.problem.batch)));
  job.plan = plan_for(job.problem, job.target, options);
  if (job.problem.cut_in_features != 0 || job.problem.cut_out_features != 0) refuse_cut_layouts(job, options);
  return job;
}

Built build(const BuildJob& job) {
  const Elapsed elapsed;
  const cache::Identity identity = identity_of(job.problem, job.target, job.plan);
  Built built;
  built.key = identity.key();
  const std::shared_ptr<cache::Store> store = store_in(job.cache_dir);
  static SingleFlight<std::string, Found> flights;
  const auto [found, first] = flights.run(built.key.hex() + store->folder().string(), [&]() -> Found {
    if (auto stored = find(*store, identity, job))
      return {std::move(stored), From::store, store->why_not_on_disk(identity)};
    auto made = std::make_shared<const Binary>(
        build_binary(job.problem, job.target, job.plan, {.driver_cuda_major = cuda::driver_cuda_major()}));
    store->put(identity, serialize(*made));
    return {std::move(made), From::compiled, store->why_not_on_disk(identity)};
  });
  built.binary = with_layout(found.binary, job);
  built.from = first ? found.from : From::memory;
  built.cache_warning = found.cache_warning;
  built.compile_ms = elapsed.ms();
  return built;
}

std::optional<Built> find_built(const BuildJob& job) {
  const Elapsed elapsed;
  const cache::Identity identity = identity_of(job.problem, job.target, job.plan);
  const std::shared_ptr<cache::Store> store = store_in(job.cache_dir);
  auto stored = find(*store, identity, job);
  if (stored == nullptr) return std::nullopt;
  return Built{with_layout(std::move(stored), job), From::store, identity.key(), elapsed.ms(),
               store->why_not_on_disk(identity)};
}

Built build(const Layout& layout, const Options& options) {
  const Elapsed elapsed;
  Built built = build(job_of(layout, options));
  built.compile_ms = elapsed.ms();
  return built;
}

}  // namespace sparsekiln

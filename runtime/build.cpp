#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "autotune/default_plan.h"
#include "cache/store.h"
#include "compiler/attach.h"
#include "compiler/build.h"
#include "compiler/computation_fields.h"
#include "compiler/cuda/compatibility.h"
#include "compiler/cuda/nvrtc.h"
#include "compiler/stored_binaries.h"
#include "runtime/build.h"
#include "runtime/cuda/driver.h"
#include "runtime/elapsed.h"
#include "runtime/environment.h"
#include "runtime/prebuilt.h"
#include "runtime/read_only_stores.h"
#include "runtime/records.h"
#include "runtime/request.h"
#include "runtime/single_flight.h"
#include "runtime/stored_binary.h"
#include "runtime/stored_layout.h"
#include "runtime/tune.h"
#ifdef SPARSEKILN_CPU
#include "compiler/cpu/object.h"
#endif

namespace sparsekiln {
namespace {

bool is_refused(const Binary& binary, const BuildJob& job) {
  return std::any_of(job.refused.begin(), job.refused.end(), [&](const std::shared_ptr<const Binary>& other) {
    return other->code == binary.code && other->ptx == binary.ptx;
  });
}

/// What a layer or the store holds under an identity, if it is what was asked for and no device has refused
/// it.
std::shared_ptr<const Binary> read(const cache::Identity& identity, std::span<const std::byte> payload,
                                   const BuildJob& job) {
  return best_binary(identity, payload, job.toolchain, [&](const Binary& binary) {
    // One that all layouts share has none yet.
    return attached(job.plan) == binary.lacks_layout() && !is_refused(binary, job);
  });
}

/// What stays beside a Binary that is being made, of what the store holds under its identity: what
/// other drivers may need. Not what this driver should have loaded, and did not.
std::vector<StoredBinary> kept_beside(const cache::Identity& identity, std::span<const std::byte> payload,
                                      const BuildJob& job) {
  const int driver = job.toolchain.driver_version;
  const auto bad = [&](const StoredBinary& stored) {
    return cuda::loads(driver, stored.nvrtc) == cuda::Loads::both;
  };
  try {
    std::vector<StoredBinary> kept = stored_binaries(identity, payload);
    std::erase_if(kept, bad);
    return kept;
  } catch (const Error&) {
    return {};
  }
}

/// Keeps the layout, too, so that its kernels can be made for other architectures from the store alone.
void keep_layout(cache::Store& store, const BuildJob& job) {
  if (attached(job.plan)) return;  // serves any
  const Layout& layout = job.problem.layout;
  store.keep(layout_identity(layout.digest().hex()), [&] { return serialize_layout(layout); });
}

ReadOnlyStores read_only_stores_of(const BuildJob& job) {
  return {job.packs, job.environment_packs, job.require};
}

/// The compiler that would make a job's Binary. Throws where there is none.
std::string compiler_for(const BuildJob& job) {
#ifdef SPARSEKILN_CPU
  if (job.target.kind == Target::Kind::cpu) return cpu::compiler_version();
#endif
  return cuda::Nvrtc::find(job.toolchain, job.target.arch)->name();
}

/// A Binary that lacks its layout, with it.
std::shared_ptr<const Binary> with_layout(std::shared_ptr<const Binary> binary, const BuildJob& job) {
  if (!binary->lacks_layout()) return binary;
  const Cuts cuts{job.problem.cut_in_features, job.problem.cut_out_features};
  return std::make_shared<const Binary>(attach(job.problem.layout, *binary, cuts));
}

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

/// Tuned before, or now where that is asked for; else the cost model's.
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

Plan plan_for(const BuildJob& job, const Options& options) {
  const Problem& problem = job.problem;
  const Target& target = job.target;
  const bool tiered = options.tiered && target.kind == Target::Kind::cuda;
  if (options.config) {
    Plan pinned{{problem.batch.bound(), *options.config}};
    if (options.attached) return with_attached_tables(std::move(pinned));
    return tiered ? with_baked_tables(std::move(pinned), problem, target) : pinned;
  }
  if (options.attached) return choose_attached_plan(problem, target);
  if (tiered) return with_baked_tables(choose_attached_plan(problem, target), problem, target);
  return tuned_plan(job, options);
}

/// On CUDA targets code that serves every layout has whole blocks.
void refuse_cut_layouts(const BuildJob& job, const Options& options) {
  if (job.target.kind != Target::Kind::cuda) return;
  if (!options.tiered && !attached(job.plan)) return;
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
  std::string pack_warning;
};

std::shared_ptr<const Binary> find(ReadOnlyStores& layers, const cache::Identity& identity,
                                   const BuildJob& job) {
  std::shared_ptr<const Binary> found;
  layers.find(identity, [&](std::span<const std::byte> payload) {
    found = read(identity, payload, job);
    return found != nullptr;
  });
  return found;
}

/// The job's Binary from a pack or the store; else made, and put into the store.
Found find_or_make(cache::Store& store, const cache::Identity& identity, const BuildJob& job) {
  ReadOnlyStores layers = read_only_stores_of(job);
  Found found;
  found.from = From::pack;
  found.binary = find(layers, identity, job);
  found.pack_warning = layers.warning();
  if (found.binary != nullptr) return found;
  if (job.require == Require::prebuilt) throw MissingPrebuilt(job, layers);
  std::vector<std::byte> of_others;  // what is there, and does not serve
  const auto accept = [&](std::span<const std::byte> payload) {
    found.binary = read(identity, payload, job);
    if (found.binary == nullptr) of_others.assign(payload.begin(), payload.end());
    return found.binary != nullptr;
  };
  const auto make = [&] {
    found.binary =
        std::make_shared<const Binary>(build_binary(job.problem, job.target, job.plan, job.toolchain));
    return serialize_binary(identity, *found.binary, kept_beside(identity, of_others, job));
  };
  const auto got = store.get_or_make(identity, accept, make, [&] { return compiler_for(job); });
  keep_layout(store, job);
  found.from = got.made ? From::compiled : From::store;
  found.cache_warning = store.why_not_on_disk(identity);
  return found;
}

/// What equal requests at the same time have in common.
std::string flight_of(const BuildJob& job, const cache::Identity& identity, const cache::Store& store) {
  std::string text = fmt::format("{} {} {} {} {} {}", identity.key().hex(), static_cast<int>(job.require),
                                 job.refused.size(), job.environment_packs ? 1 : 0,
                                 job.toolchain.driver_version, store.folder().string());
  for (const std::filesystem::path& pack : job.packs) text += '\0' + pack.string();
  return text;
}

}  // namespace

std::shared_ptr<cache::Store> store_in(const std::filesystem::path& asked) {
  static std::mutex mutex;
  static std::map<std::filesystem::path, std::shared_ptr<cache::Store>> stores;
  const std::filesystem::path folder = asked.empty() ? cache::Store::default_folder() : asked;
  const std::lock_guard lock(mutex);
  std::shared_ptr<cache::Store>& store = stores[folder];
  if (store == nullptr) store = std::make_shared<cache::Store>(folder);
  return store;
}

std::string_view name(From from) {
  switch (from) {
    case From::compiled:
      return "compiled";
    case From::store:
      return "store";
    case From::memory:
      return "memory";
    case From::pack:
      return "pack";
  }
  return "unknown";
}

std::string_view name(Require require) { return require == Require::prebuilt ? "prebuilt" : "anything"; }

Require parse_require(std::string_view text) {
  for (const Require require : {Require::anything, Require::prebuilt})
    if (text == name(require)) return require;
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("require '{}' is not known: anything, or prebuilt (never compiles)", printable(text)));
}

std::string_view name(Tuning tuning) { return tuning == Tuning::now ? "now" : "recorded"; }

std::string_view name(Tier tier) { return tier == Tier::baked ? "baked" : "attached"; }

Problem make_problem(const Layout& layout, const Options& options) {
  Problem problem;
  static_cast<Computation&>(problem) = computation_of(options);
  problem.layout = layout;
  // Whole blocks have one spelling, so that they are one kernel.
  if (options.in_features != problem.in_features()) problem.cut_in_features = options.in_features;
  if (options.out_features != problem.out_features()) problem.cut_out_features = options.out_features;
  validate(problem);
  return problem;
}

Toolchain toolchain_for(const Target& target, std::string_view asked) {
  const bool by_driver = target.kind == Target::Kind::cuda && !asked.starts_with("emulated");
  return by_driver ? cuda::machine_toolchain() : Toolchain{};
}

BuildJob job_of(const Layout& layout, const Options& options) {
  BuildJob job{.problem = make_problem(layout, options),
               .target = resolve_target(options.target),
               .plan = {},
               .cache_dir = options.cache_dir,
               .packs = options.packs,
               .require = options.require,
               .pinned = options.config.has_value()};
  job.toolchain = toolchain_for(job.target, options.target);
  if (options.tiered && options.require == Require::prebuilt)
    throw Error(
        ErrorKind::invalid_argument,
        "tiered and prebuilt: a tiered kernel is compiled while it runs, and prebuilt never compiles; "
        "leave one of them out");
  if (options.tuning == Tuning::now && options.require == Require::prebuilt)
    throw Error(ErrorKind::invalid_argument,
                "tuning now and prebuilt: tuning compiles, and prebuilt never does; leave one of them out");
  if (options.tuning == Tuning::now && !(options.tuning_seconds > 0 && options.tuning_seconds <= 1e6))
    throw Error(ErrorKind::invalid_argument,
                fmt::format("tuning for {} s: above 0, up to 1000000", options.tuning_seconds));
  if (options.attached && options.tiered)
    throw Error(
        ErrorKind::invalid_argument,
        "attached and tiered: a tiered kernel is attached until the baked one is there; ask for one of "
        "them");
  if (options.config && job.problem.batch.dynamic())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("config '{}': a pinned config takes a fixed batch, not {}",
                            to_string(*options.config), to_string(job.problem.batch)));
  job.plan = plan_for(job, options);
  if (job.problem.cut_in_features != 0 || job.problem.cut_out_features != 0) refuse_cut_layouts(job, options);
  if (job.require == Require::prebuilt && !job.pinned) {
    ReadOnlyStores layers = read_only_stores_of(job);
    job.plan = held_plan(job, layers);
  }
  return job;
}

Built build_without_layout(const BuildJob& job) {
  const Elapsed elapsed;
  const cache::Identity identity = identity_of(job.problem, job.target, job.plan);
  Built built;
  built.key = identity.key();
  const std::shared_ptr<cache::Store> store = store_in(job.cache_dir);
  static SingleFlight<std::string, Found> flights;
  const auto [found, first] =
      flights.run(flight_of(job, identity, *store), [&] { return find_or_make(*store, identity, job); });
  built.binary = found.binary;
  built.from = first ? found.from : From::memory;
  built.cache_warning = found.cache_warning;
  built.pack_warning = found.pack_warning;
  built.compile_ms = elapsed.ms();
  return built;
}

Built build(const BuildJob& job) {
  const Elapsed elapsed;
  Built built = build_without_layout(job);
  built.binary = with_layout(std::move(built.binary), job);
  built.compile_ms = elapsed.ms();
  return built;
}

std::optional<Built> find_built(const BuildJob& job) {
  const Elapsed elapsed;
  const cache::Identity identity = identity_of(job.problem, job.target, job.plan);
  const std::shared_ptr<cache::Store> store = store_in(job.cache_dir);
  ReadOnlyStores layers = read_only_stores_of(job);
  From from = From::pack;
  auto found = find(layers, identity, job);
  if (found == nullptr && job.require != Require::prebuilt) {
    from = From::store;
    const auto payload = store->get(identity);
    found = payload ? read(identity, *payload, job) : nullptr;
  }
  if (found == nullptr) return std::nullopt;
  Built built;
  built.binary = with_layout(std::move(found), job);
  built.from = from;
  built.key = identity.key();
  built.compile_ms = elapsed.ms();
  built.cache_warning = store->why_not_on_disk(identity);
  built.pack_warning = layers.warning();
  return built;
}

Built build(const Layout& layout, const Options& options) {
  const Elapsed elapsed;
  Built built = build(job_of(layout, options));
  built.compile_ms = elapsed.ms();
  return built;
}

}  // namespace sparsekiln

#include "runtime/build.h"

#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "autotune/default_plan.h"
#include "compiler/backend.h"
#include "compiler/build.h"
#include "runtime/elapsed.h"
#include "runtime/plan_choice.h"
#include "runtime/prebuilt.h"
#include "runtime/request.h"
#include "runtime/single_flight.h"
#include "runtime/stored_binary.h"
#include "runtime/stores.h"

namespace sparsekiln {
namespace {

/// A Binary that lacks its layout, with it.
std::shared_ptr<const Binary> with_layout(std::shared_ptr<const Binary> binary, const BuildJob& job) {
  if (!binary->lacks_layout()) return binary;
  const Cuts cuts{job.problem.cut_in_features, job.problem.cut_out_features};
  return std::make_shared<const Binary>(attach_as_priced(job.problem.layout, *binary, cuts));
}

struct Found {
  std::shared_ptr<const Binary> binary;
  From from = From::compiled;
  std::string cache_warning;
  std::string pack_warning;
};

/// The job's Binary from the store; null where that has none that serves.
std::shared_ptr<const Binary> in_store(cache::Store& store, const cache::Identity& identity,
                                       const BuildJob& job) {
  const auto payload = store.get(identity);
  return payload ? usable_binary(identity, *payload, job) : nullptr;
}

/// The job's Binary from a pack or the store; else made, and put into the store.
Found find_or_make(cache::Store& store, const cache::Identity& identity, const BuildJob& job) {
  ReadOnlyStores packs = packs_of(job);
  Found found;
  found.from = From::pack;
  found.binary = find_in_packs(packs, identity, job);
  found.pack_warning = packs.warning();
  if (found.binary != nullptr) return found;
  if (job.require == Require::prebuilt) throw MissingPrebuilt(job, packs);
  if (job.require == Require::built) {
    found.from = From::store;
    found.binary = in_store(store, identity, job);
    if (found.binary != nullptr) return found;
    throw Error(
        ErrorKind::cache,
        fmt::format("a kernel that is built already is required, and neither packs ({}) nor the store "
                    "'{}' have {} as the driver loads it; require anything would compile it",
                    packs.names(), printable(store.folder().string()), identity.key().hex()));
  }
  std::vector<std::byte> of_others;  // what is there, and does not serve
  const auto accept = [&](std::span<const std::byte> payload) {
    found.binary = usable_binary(identity, payload, job);
    if (found.binary == nullptr) of_others.assign(payload.begin(), payload.end());
    return found.binary != nullptr;
  };
  const auto make = [&]() -> cache::Store::Made {
    found.binary =
        std::make_shared<const Binary>(build_binary(job.problem, job.target, job.plan, job.toolchain));
    const std::vector<StoredBinary> kept = kept_beside(identity, of_others, job);
    return {serialize_binary(identity, *found.binary, kept), serialize_binary(identity, *found.binary)};
  };
  const auto got = store.get_or_make(
      identity, accept, make, [&] { return backend_of(job.target).compiler(job.target, job.toolchain); });
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

BuildJob job_of(const Layout& layout, const Options& options) {
  BuildJob job = job_without_plan(layout, options);
  job.plan = plan_for(job, options);
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
  ReadOnlyStores packs = packs_of(job);
  From from = From::pack;
  auto found = find_in_packs(packs, identity, job);
  if (found == nullptr && job.require != Require::prebuilt) {
    from = From::store;
    found = in_store(*store, identity, job);
  }
  if (found == nullptr) return std::nullopt;
  Built built;
  built.binary = with_layout(std::move(found), job);
  built.from = from;
  built.key = identity.key();
  built.compile_ms = elapsed.ms();
  built.cache_warning = store->why_not_on_disk(identity);
  built.pack_warning = packs.warning();
  return built;
}

Built build(const Layout& layout, const Options& options) {
  const Elapsed elapsed;
  Built built = build(job_of(layout, options));
  built.compile_ms = elapsed.ms();
  return built;
}

}  // namespace sparsekiln

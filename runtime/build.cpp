#include <map>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>

#include "autotune/cost_model.h"
#include "cache/store.h"
#include "compiler/build.h"
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

/// What the store holds under an identity, if it is whole and for this target.
std::shared_ptr<const Binary> find(cache::Store& store, const cache::Identity& identity,
                                   const Target& target) {
  const auto payload = store.get(identity);
  if (!payload) return nullptr;
  try {
    auto binary = std::make_shared<const Binary>(deserialize(*payload));
    return binary->target == target ? binary : nullptr;
  } catch (const Error&) {
    return nullptr;  // damaged although the checksum held: as good as absent, and about to be written anew
  }
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
  validate(problem);
  return problem;
}

Built build(const Layout& layout, const Options& options) {
  const Elapsed elapsed;
  const Problem problem = make_problem(layout, options);
  const Target target = resolve_target(options.target);
  if (options.config && problem.batch.dynamic())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("config '{}': a pinned config takes a fixed batch, not {}",
                            to_string(*options.config), to_string(problem.batch)));
  const Plan plan =
      options.config ? Plan{{problem.batch.bound(), *options.config}} : choose_plan(problem, target);
  const cache::Identity identity = identity_of(problem, target, plan);

  Built built;
  built.key = identity.key();
  const std::shared_ptr<cache::Store> store = store_in(options.cache_dir);
  static SingleFlight<std::string, Found> flights;
  const auto [found, first] = flights.run(built.key.hex() + store->folder().string(), [&]() -> Found {
    if (auto stored = find(*store, identity, target))
      return {std::move(stored), From::store, store->why_not_on_disk(identity)};
    auto made = std::make_shared<const Binary>(
        build_binary(problem, target, plan, {.driver_cuda_major = cuda::driver_cuda_major()}));
    store->put(identity, serialize(*made));
    return {std::move(made), From::compiled, store->why_not_on_disk(identity)};
  });
  built.binary = found.binary;
  built.from = first ? found.from : From::memory;
  built.cache_warning = found.cache_warning;
  built.compile_ms = elapsed.ms();
  return built;
}

}  // namespace sparsekiln

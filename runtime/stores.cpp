#include "runtime/stores.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include <sparsekiln/error.h>

#include "compiler/cuda/compatibility.h"
#include "compiler/plan.h"
#include "compiler/recipe.h"
#include "runtime/stored_binary.h"
#include "runtime/stored_layout.h"
#include "runtime/warnings.h"

namespace sparsekiln {
namespace {

bool is_refused(const Binary& binary, const BuildJob& job) {
  return std::any_of(job.refused.begin(), job.refused.end(), [&](const std::shared_ptr<const Binary>& other) {
    return other->code == binary.code && other->ptx == binary.ptx;
  });
}

}  // namespace

const SharedLevel& shared_level() {
  static const SharedLevel level = [] {
    SharedLevel found;
    found.remote = cache::Remote::from_environment(found.complaint);
    if (!found.complaint.empty()) warn(found.complaint);
    return found;
  }();
  return level;
}

std::shared_ptr<cache::Store> store_in(const std::filesystem::path& asked) {
  // Before the stores: what is made later is destroyed earlier when the process ends, and a store must end
  // its requests before the TLS library that libcurl has loaded cleans up after itself.
  static const std::shared_ptr<cache::Remote> remote = shared_level().remote;
  static std::mutex mutex;
  static std::map<std::filesystem::path, std::shared_ptr<cache::Store>> stores;
  const std::filesystem::path folder = asked.empty() ? cache::Store::default_folder() : asked;
  const std::lock_guard lock(mutex);
  std::shared_ptr<cache::Store>& store = stores[folder];
  if (store == nullptr) store = std::make_shared<cache::Store>(folder, warn, cache::Limits(), remote);
  return store;
}

ReadOnlyStores packs_of(const BuildJob& job) { return {job.packs, job.environment_packs, job.require}; }

std::shared_ptr<const Binary> usable_binary(const cache::Identity& identity,
                                            std::span<const std::byte> payload, const BuildJob& job,
                                            std::string* damage) {
  return best_binary(identity, payload, job.toolchain, [&](const Binary& binary) {
    if (is_refused(binary, job)) return false;
    std::string wrong = wrong_numbers(binary, job.problem, job.target, job.plan);
    const bool whole = wrong.empty();
    if (!whole && damage != nullptr) *damage = std::move(wrong);
    return whole;
  });
}

std::shared_ptr<const Binary> find_in_packs(ReadOnlyStores& packs, const cache::Identity& identity,
                                            const BuildJob& job) {
  std::shared_ptr<const Binary> found;
  packs.find(identity, [&](std::span<const std::byte> payload, std::string& damage) {
    found = usable_binary(identity, payload, job, &damage);
    return found != nullptr;
  });
  return found;
}

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

void keep_layout(cache::Store& store, const BuildJob& job) {
  if (attached(job.plan)) return;  // serves any
  const Layout& layout = job.problem.layout;
  store.keep(layout_identity(layout.digest().hex()), [&] { return serialize_layout(layout); });
}

}  // namespace sparsekiln

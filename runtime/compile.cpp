#include <future>
#include <memory>
#include <shared_mutex>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>

#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>

#include "compiler/backend.h"
#include "runtime/build.h"
#include "runtime/elapsed.h"
#include "runtime/kernel.h"
#include "runtime/open_device.h"
#include "runtime/plan_choice.h"
#include "runtime/request.h"
#include "runtime/single_flight.h"

namespace sparsekiln {
namespace {

using Handle = std::shared_ptr<const Kernel::Impl>;

/// The kernels of this process that someone still holds.
class Table {
 public:
  Handle find(const Request& request) const {
    const std::shared_lock lock(mutex_);
    const auto row = rows_.find(request);
    return row == rows_.end() ? nullptr : row->second.lock();
  }

  void insert(const Request& request, const Handle& kernel) {
    const std::unique_lock lock(mutex_);
    if (rows_.size() >= sweep_at_) {
      std::erase_if(rows_, [](const auto& row) { return row.second.expired(); });
      sweep_at_ = 2 * rows_.size() + kSweepAtLeast;
    }
    rows_.insert_or_assign(request, kernel);
  }

 private:
  static constexpr std::size_t kSweepAtLeast = 64;
  mutable std::shared_mutex mutex_;
  std::unordered_map<Request, std::weak_ptr<const Kernel::Impl>, RequestHash> rows_;
  std::size_t sweep_at_ = kSweepAtLeast;
};

template <typename Pointer>
Pointer load_on(const std::shared_ptr<const Device>& device, std::shared_ptr<const Binary> binary,
                Digest key) {
  Pointer kernel(new Kernel::Impl(std::move(binary)));
  kernel->module = device->load(kernel->binary);
  kernel->device = device;
  kernel->key = key;
  return kernel;
}

/// How often code from packs and the store may be refused before that ends: other processes may put other
/// code there in the meantime.
constexpr std::size_t kMostRefused = 8;

/// Finds or makes a Binary and loads it. Where the device refuses its code in every form, the next source is
/// searched, and in the end it is compiled again, once, for the driver of this machine.
template <typename Pointer>
std::pair<Pointer, From> build_on(const std::shared_ptr<const Device>& device, BuildJob job,
                                  std::optional<Built> found = std::nullopt) {
  for (;; found.reset()) {
    const Built built = found ? std::move(*found) : build(job);
    try {
      return {load_on<Pointer>(device, built.binary, built.key), built.from};
    } catch (const CodeRefused&) {
      const bool compiled_again = built.from == From::compiled || job.refused.size() == kMostRefused;
      if (compiled_again) throw;
      job.refused.push_back(built.binary);
      if (job.require != Require::anything && !find_built(job)) throw;  // nor is there another
    }
  }
}

/// Begins to make the baked kernel that will serve instead of `kernel`.
void begin_baking(Kernel::Impl& kernel, BuildJob job) {
  const auto bake = [&kernel, job = std::move(job)] {
    kernel.baked = build_on<std::unique_ptr<Kernel::Impl>>(kernel.device, job).first;
    kernel.successor.store(kernel.baked.get(), std::memory_order_release);
  };
  try {
    kernel.baking = std::async(std::launch::async, bake).share();
  } catch (const std::system_error& error) {  // no thread can be had
    std::promise<void> failed;
    failed.set_exception(std::make_exception_ptr(Error(
        ErrorKind::internal,
        std::string("making the baked kernel of a tiered one: there is no thread for it: ") + error.what())));
    kernel.baking = failed.get_future().share();
  }
}

/// The attached kernel, while the baked one is made.
std::pair<Handle, From> make_tiered(const BuildJob& job, Options options,
                                    const std::shared_ptr<const Device>& device) {
  options.specialization = Specialization::attached;
  BuildJob attached = job;
  attached.plan = plan_for(job, options);
  auto [kernel, from] = build_on<std::shared_ptr<Kernel::Impl>>(device, std::move(attached));
  begin_baking(*kernel, job);
  return {std::move(kernel), from};
}

std::pair<Handle, From> make(const BuildJob& job, const Options& options) {
  const bool tiered = options.specialization == Specialization::tiered && backend_of(job.target).tiered;
  std::optional<Built> found = tiered ? find_built(job) : std::nullopt;
  const auto device = [&] { return open_device_for(job.target, options.target); };
  if (tiered && !found) return make_tiered(job, options, device());
  if (!found)
    found = build(job);  // before a device is looked for: what is wrong with the request comes first
  return build_on<std::shared_ptr<Kernel::Impl>>(device(), job, std::move(found));
}

}  // namespace

Kernel load(std::shared_ptr<const Binary> binary, std::string_view device) {
  const Elapsed elapsed;
  const auto opened = open_device_for(binary->target, device);
  Handle kernel = load_on<std::shared_ptr<Kernel::Impl>>(opened, std::move(binary), {});
  return {std::move(kernel), From::compiled, elapsed.ms()};
}

Kernel compile(const Layout& layout, const Options& options) {
  const Elapsed elapsed;
  static Table table;
  static SingleFlight<Request, std::pair<Handle, From>, RequestHash> flights;
  Request request{layout.digest(), options, context_for(options.target)};
  request.options.tuning_watch = nullptr;  // it does not change what is asked for
  if (Handle kernel = table.find(request)) return {std::move(kernel), From::memory, elapsed.ms()};
  auto [made, first] = flights.run(request, [&]() -> std::pair<Handle, From> {
    // A flight may have landed between the look and this take-off.
    if (Handle kernel = table.find(request)) return {std::move(kernel), From::memory};
    auto [kernel, from] = make(job_of(layout, options), options);
    table.insert(request, kernel);
    return {std::move(kernel), from};
  });
  return {std::move(made.first), first ? made.second : From::memory, elapsed.ms()};
}

}  // namespace sparsekiln

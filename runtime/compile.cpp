#include <memory>
#include <shared_mutex>
#include <unordered_map>

#include <sparsekiln/compile.h>

#include "runtime/device.h"
#include "runtime/elapsed.h"
#include "runtime/kernel.h"
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

Handle make_handle(std::shared_ptr<const Binary> binary, const std::shared_ptr<const Device>& device,
                   Digest key) {
  auto kernel = std::make_shared<Kernel::Impl>();
  kernel->module = device->load(binary);
  kernel->binary = std::move(binary);
  kernel->device = device;
  kernel->key = key;
  return kernel;
}

/// The device that a target's Binary is loaded on: the one it names, else the current one of its kind.
std::string_view device_for(const Target& target, std::string_view asked) {
  if (target.kind == Target::Kind::cpu) return "cpu";
  return asked.starts_with("cuda") || asked.starts_with("emulated") ? asked : "cuda";
}

}  // namespace

Kernel load(std::shared_ptr<const Binary> binary, std::string_view device) {
  const Elapsed elapsed;
  const auto opened = open_device(device_for(binary->target, device));
  Handle kernel = make_handle(std::move(binary), opened, {});
  return {std::move(kernel), From::compiled, elapsed.ms()};
}

Kernel compile(const Layout& layout, const Options& options) {
  const Elapsed elapsed;
  static Table table;
  static SingleFlight<Request, std::pair<Handle, From>, RequestHash> flights;
  const Request request{layout.digest(), options, context_for(options.target)};
  if (Handle kernel = table.find(request)) return {std::move(kernel), From::memory, elapsed.ms()};
  auto [made, first] = flights.run(request, [&]() -> std::pair<Handle, From> {
    // A flight may have landed between the look and this take-off.
    if (Handle kernel = table.find(request)) return {std::move(kernel), From::memory};
    const Built built = build(layout, options);
    const auto device = open_device(device_for(built.binary->target, options.target));
    Handle kernel = make_handle(built.binary, device, built.key);
    table.insert(request, kernel);
    return {std::move(kernel), built.from};
  });
  return {std::move(made.first), first ? made.second : From::memory, elapsed.ms()};
}

}  // namespace sparsekiln

#include "runtime/environment.h"

#include <algorithm>

#include <sparsekiln/error.h>
#include <sparsekiln/threads.h>

#include "runtime/cuda/driver.h"
#include "runtime/open_device.h"

namespace sparsekiln {
namespace {

/// How time is taken, see Sampler, rotate and Tuner. A change of it makes other records.
constexpr const char* kCudaPolicy = "interleaved rounds, cold L2, 1";
constexpr const char* kCpuPolicy = "interleaved rounds, 1";

bool names_device(std::string_view asked) {
  return asked == "auto" || asked.starts_with("cuda") || asked.starts_with("emulated");
}

}  // namespace

std::shared_ptr<const Device> device_at_hand(const Target& target, std::string_view asked) {
  try {
    if (target.kind == Target::Kind::cpu)
      return target.arch == Target::host().arch ? open_device("cpu") : nullptr;
    if (names_device(asked)) return open_device(asked);
    if (!cuda::available()) return nullptr;
    std::shared_ptr<const Device> device = open_device("cuda");
    return device->target() == target ? device : nullptr;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::driver) throw;
    return nullptr;
  }
}

Environment environment_on(const Target& target, const Device& device) {
  const About about = device.about();
  if (target.kind == Target::Kind::cuda)
    return {about.name, target.workers, about.cache_bytes, about.driver, kCudaPolicy};
  return {about.name, std::min(target.workers, threads()), about.cache_bytes, about.driver, kCpuPolicy};
}

std::optional<Environment> environment_of(const Target& target, std::string_view asked) {
  if (target.kind == Target::Kind::cuda && !names_device(asked)) return std::nullopt;
  const std::shared_ptr<const Device> device = device_at_hand(target, asked);
  return device == nullptr ? std::nullopt : std::optional(environment_on(target, *device));
}

}  // namespace sparsekiln

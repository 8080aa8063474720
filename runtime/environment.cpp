#include "runtime/environment.h"

#include <sparsekiln/error.h>

#include "runtime/cuda/driver.h"

namespace sparsekiln {
namespace {

/// How time is taken, see Sampler, rotate and Tuner: medians of interleaved rounds. A change of it makes
/// other records.
constexpr const char* kPolicy = "interleaved rounds, cold L2, 1";

bool names_device(std::string_view asked) {
  return asked == "auto" || asked.starts_with("cuda") || asked.starts_with("emulated");
}

std::optional<Environment> of_device(const Target& target, const std::shared_ptr<const Device>& device) {
  if (device == nullptr) return std::nullopt;
  const About about = device->about();
  return Environment{about.name, target.workers, about.cache_bytes, about.driver, kPolicy};
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

std::optional<Environment> environment_of(const Target& target, std::string_view asked) {
  return of_device(target, device_at_hand(target, asked));
}

}  // namespace sparsekiln

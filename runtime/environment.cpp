#include "runtime/environment.h"

#include <sparsekiln/error.h>

#include "runtime/backend.h"
#include "runtime/open_device.h"

namespace sparsekiln {

std::shared_ptr<const Device> device_at_hand(const Target& target, std::string_view asked) {
  try {
    return devices_of(target).at_hand(target, asked);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::driver) throw;
    return nullptr;
  }
}

Environment environment_on(const Target& target, const Device& device) {
  const About about = device.about();
  return {about.name, device.workers_at_once(target), about.cache_bytes, about.driver,
          std::string(device.timing().policy)};
}

std::optional<Environment> environment_of(const Target& target, std::string_view asked) {
  if (!devices_of(target).records_of_architecture && !names_device(asked)) return std::nullopt;
  const std::shared_ptr<const Device> device = device_at_hand(target, asked);
  return device == nullptr ? std::nullopt : std::optional(environment_on(target, *device));
}

}  // namespace sparsekiln
